# SPDX-License-Identifier: Apache-2.0
"""Descriptors and ztensors: zDNN's structures, and the pure functions over them.

Enumerations are open: a descriptor holds any number that the caller wrote, and the functions that
read it decide. Sources: zDNN API Reference 1.2.0, "Common Types and Structs" and the descriptor
functions; behaviour that it leaves out follows the zDNN 1.2.0 library.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nnpa_emulator.status import Refused, Status

Array: TypeAlias = npt.NDArray[Any]
"""An array of whatever dtype: user data, cells of sticks, dense values of either precision."""

PAGE = 4096
STICK = 128
STICKS_PER_PAGE = 32
CELLS_PER_STICK = 64


class DataLayouts(IntEnum):
    """`zdnn_data_layouts`."""

    ZDNN_1D = 0
    ZDNN_2D = 1
    ZDNN_2DS = 2
    ZDNN_3D = 3
    ZDNN_3DS = 4
    ZDNN_ZRH = 5
    ZDNN_4D = 6
    ZDNN_4DS = 7
    ZDNN_NHWC = 8
    ZDNN_NCHW = 9
    ZDNN_FICO = 10
    ZDNN_HWCK = 11
    ZDNN_BIDIR_ZRH = 12
    ZDNN_BIDIR_FICO = 13


class DataFormats(IntEnum):
    """`zdnn_data_formats`; the numbers are the hardware's."""

    ZDNN_FORMAT_4DFEATURE = 0
    ZDNN_FORMAT_4DKERNEL = 1
    ZDNN_FORMAT_4DWEIGHTS = 2
    ZDNN_FORMAT_4DGENERIC = 31


class DataTypes(IntEnum):
    """`zdnn_data_types`; the numbers of the ZDNN_ types are the hardware's."""

    ZDNN_DLFLOAT16 = 0
    ZDNN_BINARY_FP32 = 6
    ZDNN_BINARY_INT8 = 8
    ZDNN_BINARY_INT32 = 10
    INT8 = 251
    INT32 = 252
    BFLOAT = 253
    FP16 = 254
    FP32 = 255


class QuantizedTransformTypes(IntEnum):
    """`zdnn_quantized_transform_types`."""

    QUANTIZED_DLFLOAT16 = 0
    QUANTIZED_INT8 = 1
    QUANTIZED_WEIGHTS_INT8 = 2


def name_of(enum: type[IntEnum], number: int) -> str:
    """Return the C name of a number, or its decimal form where it has none."""
    try:
        return enum(number).name
    except ValueError:
        return str(number)


def limit_of_dim(size: int, largest: int, machine: str) -> str:
    """Name the sizes that a dimension may have on a machine, for the refusal of another one."""
    sizes = f"1 to {largest} on {machine}" if largest else "at least 1"
    return sizes if size else f"{sizes}: zDNN has no tensor without elements"


RNN_TYPE_LSTM, RNN_TYPE_GRU = 0, 0x01000000
PREV_LAYER_UNI = PREV_LAYER_NONE = 0
PREV_LAYER_BIDIR = 0x00010000
USAGE_WEIGHTS, USAGE_HIDDEN_WEIGHTS, USAGE_BIASES, USAGE_HIDDEN_BIASES = 0, 0x100, 0x200, 0x300
_RNN_TYPE_BYTE, _PREV_LAYER_BYTE, _USAGE_BYTE = 0xFF000000, 0x00FF0000, 0x0000FF00

_L = DataLayouts
LAYOUT_DIMS: Mapping[int, int] = {
    _L.ZDNN_1D: 1, _L.ZDNN_2D: 2, _L.ZDNN_2DS: 2, _L.ZDNN_3D: 3, _L.ZDNN_3DS: 3,
    _L.ZDNN_4D: 4, _L.ZDNN_4DS: 4, _L.ZDNN_NHWC: 4, _L.ZDNN_NCHW: 4, _L.ZDNN_HWCK: 4,
}  # fmt: skip
LAYOUT_GATES: Mapping[int, int] = {
    _L.ZDNN_FICO: 4, _L.ZDNN_BIDIR_FICO: 4, _L.ZDNN_ZRH: 3, _L.ZDNN_BIDIR_ZRH: 3,
}  # fmt: skip
_PLAIN_LAYOUTS = ", ".join(DataLayouts(layout).name for layout in LAYOUT_DIMS)
FLOAT_TYPES = frozenset((DataTypes.FP32, DataTypes.FP16, DataTypes.BFLOAT))
TYPE_BYTES: Mapping[int, int] = {
    DataTypes.INT8: 1, DataTypes.INT32: 4, DataTypes.BFLOAT: 2, DataTypes.FP16: 2,
    DataTypes.FP32: 4,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorDesc:
    """`zdnn_tensor_desc`: layout, format and type numbers, dims outermost first, in elements."""

    layout: int = 0
    format: int = 0
    type: int = 0
    dim4: int = 0
    dim3: int = 0
    dim2: int = 0
    dim1: int = 0

    @property
    def dims(self) -> tuple[int, int, int, int]:
        """The four dims, outermost first."""
        return self.dim4, self.dim3, self.dim2, self.dim1

    @property
    def layout_dims(self) -> tuple[int, ...]:
        """The dims that the layout has, outermost first; empty for a concatenated layout."""
        return self.dims[4 - LAYOUT_DIMS.get(self.layout, 0) :]

    def with_dims(self, dims: tuple[int, int, int, int]) -> "TensorDesc":
        """Return the same descriptor with other dims."""
        return replace(self, dim4=dims[0], dim3=dims[1], dim2=dims[2], dim1=dims[3])


UNSET = TensorDesc()


@dataclass(slots=True, eq=False)
class Ztensor:
    """`zdnn_ztensor`.

    `buffer` holds sticks, cells in the host's order, exactly the bytes that `getsize_ztensor`
    returns for the transformed descriptor; None is C's NULL. `buffer_size` is the field of the
    structure, in bytes. `rec_scale` and `offset` are FP32 values.
    """

    pre_transformed_desc: TensorDesc
    transformed_desc: TensorDesc
    buffer_size: int = 0
    buffer: npt.NDArray[np.uint8] | None = None
    is_transformed: bool = False
    rec_scale: float = 0.0
    offset: float = 0.0

    @property
    def sticks(self) -> npt.NDArray[np.uint8]:
        """The buffer, for callers that have made sure that there is one."""
        if self.buffer is None:
            raise ValueError("ztensor.buffer is NULL")
        return self.buffer


def padded(size: int) -> int:
    """Round a size up to a multiple of 64, in 32-bit unsigned arithmetic."""
    return (size + 63) // 64 * 64 & 0xFFFFFFFF


def init_pre_transformed_desc(layout: int, type: int, *dims: int) -> TensorDesc:  # noqa: A002 - C name
    """Describe user data; `dims` are the dims that the layout has, outermost first.

    Nothing is validated, a concatenated or unknown layout reads no dims.
    Source: zDNN API Reference 1.2.0, zdnn_init_pre_transformed_desc.
    """
    count = LAYOUT_DIMS.get(layout, 0)
    if len(dims) < count:
        raise TypeError(f"dims: {len(dims)} given, layout {layout} has {count}")
    innermost = (0,) * (4 - count) + tuple(dims[:count])
    return TensorDesc(layout, 0, type, *innermost)


def _feature_dims(pre: TensorDesc) -> tuple[int, int, int, int] | None:
    """Return the transformed dims of a plain layout that becomes NHWC, or None."""
    d4, d3, d2, d1 = pre.dims
    match pre.layout:
        case _L.ZDNN_1D:
            return 1, 1, 1, d1
        case _L.ZDNN_2D:
            return 1, 1, d2, d1
        case _L.ZDNN_2DS:
            return d2, 1, 1, d1
        case _L.ZDNN_3D:
            return 1, d3, d2, d1
        case _L.ZDNN_3DS:
            return d3, 1, d2, d1
        case _L.ZDNN_4D | _L.ZDNN_NHWC:
            return d4, d3, d2, d1
        case _:
            return None


def generate_transformed_desc(pre: TensorDesc) -> TensorDesc:
    """Describe the sticks of plain user data.

    1. The layout is 1D, 2D, 2DS, 3D, 3DS, 4D, 4DS, NHWC, NCHW or HWCK, else ZDNN_INVALID_LAYOUT.
    2. The type is FP32, FP16, BFLOAT or INT32, else ZDNN_INVALID_TYPE.

    Source: zDNN API Reference 1.2.0, zdnn_generate_transformed_desc.
    """
    layout, fmt = DataLayouts.ZDNN_NHWC, DataFormats.ZDNN_FORMAT_4DFEATURE
    dims = _feature_dims(pre)
    d4, d3, d2, d1 = pre.dims
    if pre.layout == _L.ZDNN_4DS:
        dims = (d4, 1, d2, d1 if d3 == 1 else d3 * padded(d1) & 0xFFFFFFFF)
    elif pre.layout == _L.ZDNN_NCHW:
        dims = (d4, d2, d1, d3)
    elif pre.layout == _L.ZDNN_HWCK:
        layout, fmt, dims = DataLayouts.ZDNN_HWCK, DataFormats.ZDNN_FORMAT_4DKERNEL, pre.dims
    if dims is None:
        raise Refused(
            Status.ZDNN_INVALID_LAYOUT, "pre_transformed_desc.layout",
            name_of(DataLayouts, pre.layout), _PLAIN_LAYOUTS, "generate_transformed_desc_c1",
        )  # fmt: skip
    if pre.type == DataTypes.INT32:
        kind = DataTypes.ZDNN_BINARY_INT32
    elif pre.type in FLOAT_TYPES:
        kind = DataTypes.ZDNN_DLFLOAT16
    else:
        raise Refused(
            Status.ZDNN_INVALID_TYPE, "pre_transformed_desc.type", name_of(DataTypes, pre.type),
            "FP32, FP16, BFLOAT or INT32", "generate_transformed_desc_c2",
        )  # fmt: skip
    return TensorDesc(layout, fmt, kind, *dims)


_QUANTIZED: Mapping[QuantizedTransformTypes, tuple[DataFormats, DataTypes]] = {
    QuantizedTransformTypes.QUANTIZED_DLFLOAT16: (
        DataFormats.ZDNN_FORMAT_4DFEATURE, DataTypes.ZDNN_DLFLOAT16,
    ),
    QuantizedTransformTypes.QUANTIZED_INT8: (
        DataFormats.ZDNN_FORMAT_4DFEATURE, DataTypes.ZDNN_BINARY_INT8,
    ),
    QuantizedTransformTypes.QUANTIZED_WEIGHTS_INT8: (
        DataFormats.ZDNN_FORMAT_4DWEIGHTS, DataTypes.ZDNN_BINARY_INT8,
    ),
}  # fmt: skip


def generate_quantized_transformed_desc(pre: TensorDesc, transform_type: int) -> TensorDesc:
    """Describe the sticks of quantized data.

    1. The layout is 1D, 2D, 2DS, 3D, 3DS, 4D or NHWC, else ZDNN_INVALID_LAYOUT.
    2. The type is FP32, FP16, BFLOAT or INT8, else ZDNN_INVALID_TYPE.
    3. `transform_type` is a QuantizedTransformTypes number, else ZDNN_INVALID_TRANSFORM_TYPE.

    Source: zDNN API Reference 1.2.0, zdnn_generate_quantized_transformed_desc.
    """
    dims = _feature_dims(pre)
    if dims is None:
        raise Refused(
            Status.ZDNN_INVALID_LAYOUT, "pre_transformed_desc.layout",
            name_of(DataLayouts, pre.layout),
            "ZDNN_1D, ZDNN_2D, ZDNN_2DS, ZDNN_3D, ZDNN_3DS, ZDNN_4D or ZDNN_NHWC",
            "generate_quantized_transformed_desc_c1",
        )  # fmt: skip
    if pre.type not in FLOAT_TYPES and pre.type != DataTypes.INT8:
        raise Refused(
            Status.ZDNN_INVALID_TYPE, "pre_transformed_desc.type", name_of(DataTypes, pre.type),
            "FP32, FP16, BFLOAT or INT8", "generate_quantized_transformed_desc_c2",
        )  # fmt: skip
    if transform_type not in _QUANTIZED:
        raise Refused(
            Status.ZDNN_INVALID_TRANSFORM_TYPE, "transform_type", transform_type,
            ", ".join(kind.name for kind in _QUANTIZED), "generate_quantized_transformed_desc_c3",
        )  # fmt: skip
    fmt, kind = _QUANTIZED[QuantizedTransformTypes(transform_type)]
    return TensorDesc(DataLayouts.ZDNN_NHWC, fmt, kind, *dims)


def generate_transformed_desc_concatenated(pre: TensorDesc, info: int) -> TensorDesc:
    """Describe the sticks of RNN weights or biases, the gates side by side in dim1.

    1. The type is FP32, FP16 or BFLOAT, else ZDNN_INVALID_TYPE.
    2. Input weights behind a bidirectional layer have an even dim2, else ZDNN_INVALID_SHAPE.
    3. Weights are 3DS and biases 2DS, else ZDNN_INVALID_LAYOUT; any other usage byte is
       ZDNN_INVALID_CONCAT_INFO.
    4. The RNN type is LSTM or GRU, else ZDNN_INVALID_CONCAT_INFO.

    Source: zDNN API Reference 1.2.0, zdnn_generate_transformed_desc_concatenated.
    """
    rnn_type, usage = info & _RNN_TYPE_BYTE, info & _USAGE_BYTE
    bidir = usage == USAGE_WEIGHTS and info & _PREV_LAYER_BYTE == PREV_LAYER_BIDIR
    name = "generate_transformed_desc_concatenated"
    if pre.type not in FLOAT_TYPES:
        raise Refused(
            Status.ZDNN_INVALID_TYPE, "pre_transformed_desc.type", name_of(DataTypes, pre.type),
            "FP32, FP16 or BFLOAT", f"{name}_c1",
        )  # fmt: skip
    if bidir and pre.dim2 % 2:
        raise Refused(
            Status.ZDNN_INVALID_SHAPE, "pre_transformed_desc.dim2", pre.dim2,
            "even behind a bidirectional layer", f"{name}_c2",
        )  # fmt: skip
    rows = _concatenated_rows(pre, info, bidir)
    if rnn_type not in (RNN_TYPE_LSTM, RNN_TYPE_GRU):
        raise Refused(
            Status.ZDNN_INVALID_CONCAT_INFO, "info", f"0x{info:08X}",
            "RNN_TYPE_LSTM or RNN_TYPE_GRU", f"{name}_c4",
        )  # fmt: skip
    lstm = rnn_type == RNN_TYPE_LSTM
    plain = DataLayouts.ZDNN_FICO if lstm else DataLayouts.ZDNN_ZRH
    halves = DataLayouts.ZDNN_BIDIR_FICO if lstm else DataLayouts.ZDNN_BIDIR_ZRH
    width = (4 if lstm else 3) * padded(pre.dim1) & 0xFFFFFFFF
    return TensorDesc(
        halves if bidir else plain,
        DataFormats.ZDNN_FORMAT_4DFEATURE,
        DataTypes.ZDNN_DLFLOAT16,
        pre.dim3 if usage in (USAGE_WEIGHTS, USAGE_HIDDEN_WEIGHTS) else pre.dim2,
        1,
        rows,
        width,
    )


def _concatenated_rows(pre: TensorDesc, info: int, bidir: bool) -> int:
    """Return dim2 of a concatenated tensor; refuse a layout that its usage does not take."""
    name, usage = "generate_transformed_desc_concatenated_c3", info & _USAGE_BYTE
    if usage in (USAGE_BIASES, USAGE_HIDDEN_BIASES):
        expected, rows = DataLayouts.ZDNN_2DS, 1
    elif usage in (USAGE_WEIGHTS, USAGE_HIDDEN_WEIGHTS):
        expected = DataLayouts.ZDNN_3DS
        rows = 2 * padded(pre.dim2 // 2) & 0xFFFFFFFF if bidir else pre.dim2
    else:
        raise Refused(
            Status.ZDNN_INVALID_CONCAT_INFO, "info", f"0x{info:08X}",
            "USAGE_WEIGHTS, USAGE_HIDDEN_WEIGHTS, USAGE_BIASES or USAGE_HIDDEN_BIASES", name,
        )  # fmt: skip
    if pre.layout != expected:
        raise Refused(
            Status.ZDNN_INVALID_LAYOUT,
            "pre_transformed_desc.layout",
            name_of(DataLayouts, pre.layout),
            expected.name,
            name,
        )
    return rows


def stick_bytes(desc: TensorDesc) -> int:
    """Return the bytes that the sticks of a transformed tensor take."""
    rows, cells = desc.dim2, CELLS_PER_STICK
    if desc.type == DataTypes.ZDNN_BINARY_INT8:
        if desc.format == DataFormats.ZDNN_FORMAT_4DWEIGHTS:
            rows = -(-rows // 2)
        else:
            cells = 2 * CELLS_PER_STICK
    elif desc.type == DataTypes.ZDNN_BINARY_INT32:
        cells = CELLS_PER_STICK // 2
    return desc.dim4 * desc.dim3 * -(-rows // STICKS_PER_PAGE) * -(-desc.dim1 // cells) * PAGE


def getsize_ztensor(desc: TensorDesc) -> int:
    """Return `stick_bytes` as C has it: 64 bits, wraps. Never fails.

    Source: zDNN API Reference 1.2.0, zdnn_getsize_ztensor.
    """
    return stick_bytes(desc) & 0xFFFFFFFFFFFFFFFF


def init_quantized_ztensor(
    pre: TensorDesc, transformed: TensorDesc, scale: float, offset: float
) -> Ztensor:
    """Return a quantized ztensor: it keeps 1/scale in FP32 (0 for scale 0) and the offset.

    Source: zDNN API Reference 1.2.0, zdnn_init_quantized_ztensor.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        single = np.float32(scale)
        rec_scale = np.float32(1) / single if single != 0 else single
        return Ztensor(
            pre, transformed, rec_scale=float(rec_scale), offset=float(np.float32(offset))
        )


def is_quantized_ztensor(ztensor: Ztensor) -> bool:
    """Tell whether the ztensor carries a scale; a NaN scale counts, an infinite one does not."""
    return ztensor.rec_scale != 0
