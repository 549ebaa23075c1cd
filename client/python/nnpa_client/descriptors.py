# SPDX-License-Identifier: Apache-2.0
"""Local functions of zDNN: descriptors, sizes, limits, versions. They call no server.

Descriptors are `zdnn_tensor_desc` as the wire carries it: fields layout, format, type, dim4 to
dim1, which a program may read and write as in C.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NoReturn

import numpy as np
from nnpa.zdnn.v1.status_pb2 import Refusal
from nnpa.zdnn.v1.tensor_pb2 import (
    BFLOAT,
    FP16,
    FP32,
    INT8,
    INT32,
    QUANTIZED_DLFLOAT16,
    QUANTIZED_INT8,
    QUANTIZED_WEIGHTS_INT8,
    ZDNN_1D,
    ZDNN_2D,
    ZDNN_2DS,
    ZDNN_3D,
    ZDNN_3DS,
    ZDNN_4D,
    ZDNN_4DS,
    ZDNN_BIDIR_FICO,
    ZDNN_BIDIR_ZRH,
    ZDNN_BINARY_INT8,
    ZDNN_BINARY_INT32,
    ZDNN_DLFLOAT16,
    ZDNN_FICO,
    ZDNN_FORMAT_4DFEATURE,
    ZDNN_FORMAT_4DKERNEL,
    ZDNN_FORMAT_4DWEIGHTS,
    ZDNN_HWCK,
    ZDNN_NCHW,
    ZDNN_NHWC,
    ZDNN_ZRH,
    DataLayouts,
    DataTypes,
    TensorDesc,
)

from nnpa_client._values import constants as c
from nnpa_client._values.fields import UINT32_MAX, c_enum, c_uint32, enum_name, enum_number, whole
from nnpa_client._values.user_arrays import DTYPES, RANKS, dims
from nnpa_client.errors import ZdnnError
from nnpa_client.status import Status, get_status_message

__tracebackhide__ = True  # pytest shows the line that called, not these

__all__ = [
    "TensorDesc",
    "generate_quantized_transformed_desc",
    "generate_transformed_desc",
    "generate_transformed_desc_concatenated",
    "get_max_limit",
    "get_min_limit",
    "get_status_message",
    "getsize_ztensor",
    "init_pre_transformed_desc",
]

Dims = tuple[int, int, int, int]

_SIZES = ("dim4", "dim3", "dim2", "dim1")
_FLOATS = (FP32, FP16, BFLOAT)
# The transformed dims of a layout from its dims (d4, d3, d2, d1).
_PLAIN: Mapping[int, Callable[[int, int, int, int], Dims]] = MappingProxyType(
    {
        ZDNN_1D: lambda _d4, _d3, _d2, d1: (1, 1, 1, d1),
        ZDNN_2D: lambda _d4, _d3, d2, d1: (1, 1, d2, d1),
        ZDNN_2DS: lambda _d4, _d3, d2, d1: (d2, 1, 1, d1),
        ZDNN_3D: lambda _d4, d3, d2, d1: (1, d3, d2, d1),
        ZDNN_3DS: lambda _d4, d3, d2, d1: (d3, 1, d2, d1),
        ZDNN_4D: lambda d4, d3, d2, d1: (d4, d3, d2, d1),
        ZDNN_NHWC: lambda d4, d3, d2, d1: (d4, d3, d2, d1),
    }
)
# Layouts that no quantized tensor has; the directions of 4DS share dim1.
_NOT_QUANTIZED: Mapping[int, Callable[[int, int, int, int], Dims]] = MappingProxyType(
    {
        ZDNN_NCHW: lambda n, channels, h, w: (n, h, w, channels),
        ZDNN_HWCK: lambda h, w, channels, k: (h, w, channels, k),
        ZDNN_4DS: lambda ts, directions, b, s: (
            (ts, 1, b, s) if directions == 1 else (ts, 1, b, directions * _padded(s) & UINT32_MAX)
        ),
    }
)
_QUANTIZED = MappingProxyType(
    {
        QUANTIZED_DLFLOAT16: (ZDNN_FORMAT_4DFEATURE, ZDNN_DLFLOAT16),
        QUANTIZED_INT8: (ZDNN_FORMAT_4DFEATURE, ZDNN_BINARY_INT8),
        QUANTIZED_WEIGHTS_INT8: (ZDNN_FORMAT_4DWEIGHTS, ZDNN_BINARY_INT8),
    }
)


def _padded(size: int) -> int:
    """Return the size rounded up to whole sticks of 64 cells, as a uint32_t."""
    return (size + 63) // 64 * 64 & UINT32_MAX


def _refuse(
    status: Status, op: str, field: str, value: object, limit: str, number: int
) -> NoReturn:
    refusal = Refusal(field=field, value=str(value), limit=limit, constraint=f"{op}_c{number}")
    raise ZdnnError(status, op, refusal=refusal)


def init_pre_transformed_desc(
    layout: int | str,
    type: int | str,  # noqa: A002 - zDNN's name
    *sizes: int,
) -> TensorDesc:
    """Describe the user's tensor: `sizes` are the dims of `layout`, outermost first, in elements.

    Layout and type may be names, such as "NHWC" and "FP32"; their numbers are not checked here, as
    in C; a concatenated or unknown layout takes no sizes.
    Source: zDNN API Reference 1.2.0, zdnn_init_pre_transformed_desc.
    """
    layout = enum_number(DataLayouts.DESCRIPTOR, "layout", layout, "ZDNN_")
    kind = enum_number(DataTypes.DESCRIPTOR, "type", type)
    rank = RANKS.get(layout, 0)
    if rank and len(sizes) != rank:
        name = enum_name(DataLayouts.DESCRIPTOR, layout)
        raise TypeError(f"sizes: {sizes}, layout {name} has {rank}, not {len(sizes)}")
    fields = _SIZES[4 - rank :]
    desc = TensorDesc(layout=c_enum(layout), type=c_enum(kind))
    for name, size in zip(fields, sizes, strict=False):
        setattr(desc, name, c_uint32(name, size))
    return desc


def generate_transformed_desc(
    pre_tfrmd_desc: TensorDesc, tfrmd_desc: TensorDesc | None = None
) -> TensorDesc:
    """Describe the sticks of a tensor; fills and returns `tfrmd_desc`, or a new descriptor.

    Raises ZdnnError: ZDNN_INVALID_LAYOUT for a layout that has no transformed form;
    ZDNN_INVALID_TYPE for a type other than FP32, FP16, BFLOAT, INT32, after all but the type has
    been written. Source: zDNN API Reference 1.2.0, zdnn_generate_transformed_desc.
    """
    op = "generate_transformed_desc"
    layout = pre_tfrmd_desc.layout
    place = _PLAIN.get(layout) or _NOT_QUANTIZED.get(layout)
    if place is None:
        _refuse(Status.ZDNN_INVALID_LAYOUT, op, "pre_tfrmd_desc.layout", layout, "a plain one", 1)
    target = TensorDesc() if tfrmd_desc is None else tfrmd_desc
    kernel = layout == ZDNN_HWCK
    target.layout = ZDNN_HWCK if kernel else ZDNN_NHWC
    target.format = ZDNN_FORMAT_4DKERNEL if kernel else ZDNN_FORMAT_4DFEATURE
    target.dim4, target.dim3, target.dim2, target.dim1 = place(*dims(pre_tfrmd_desc))
    kind = pre_tfrmd_desc.type
    if kind not in (*_FLOATS, INT32):
        limit = "FP32, FP16, BFLOAT or INT32"
        _refuse(Status.ZDNN_INVALID_TYPE, op, "pre_tfrmd_desc.type", kind, limit, 2)
    target.type = ZDNN_BINARY_INT32 if kind == INT32 else ZDNN_DLFLOAT16
    return target


def generate_quantized_transformed_desc(
    pre_tfrmd_desc: TensorDesc, transform_type: int, tfrmd_desc: TensorDesc | None = None
) -> TensorDesc:
    """Describe the sticks of a quantized tensor; `transform_type` is one of QUANTIZED_*.

    Raises ZdnnError, in this order: ZDNN_INVALID_LAYOUT, ZDNN_INVALID_TYPE,
    ZDNN_INVALID_TRANSFORM_TYPE. Layout 4DS, NCHW, HWCK and concatenated ones are not allowed.
    Source: zDNN API Reference 1.2.0, zdnn_generate_quantized_transformed_desc.
    """
    op = "generate_quantized_transformed_desc"
    layout, kind = pre_tfrmd_desc.layout, pre_tfrmd_desc.type
    place = _PLAIN.get(layout)
    if place is None:
        limit = "1D, 2D, 2DS, 3D, 3DS, 4D or NHWC"
        _refuse(Status.ZDNN_INVALID_LAYOUT, op, "pre_tfrmd_desc.layout", layout, limit, 1)
    if kind not in (*_FLOATS, INT8):
        limit = "FP32, FP16, BFLOAT or INT8"
        _refuse(Status.ZDNN_INVALID_TYPE, op, "pre_tfrmd_desc.type", kind, limit, 2)
    chosen = _QUANTIZED.get(c_enum(whole("transform_type", transform_type)))
    if chosen is None:
        status = Status.ZDNN_INVALID_TRANSFORM_TYPE
        _refuse(status, op, "transform_type", transform_type, "0, 1 or 2", 3)
    target = TensorDesc() if tfrmd_desc is None else tfrmd_desc
    target.layout = ZDNN_NHWC
    target.format, target.type = chosen
    target.dim4, target.dim3, target.dim2, target.dim1 = place(*dims(pre_tfrmd_desc))
    return target


def generate_transformed_desc_concatenated(
    pre_tfrmd_desc: TensorDesc, info: int, tfrmd_desc: TensorDesc | None = None
) -> TensorDesc:
    """Describe the sticks of weights or biases of a recurrent layer, gates side by side in dim1.

    `info` is the sum of one RNN_TYPE_*, one PREV_LAYER_* and one USAGE_*. Raises ZdnnError, in
    this order: ZDNN_INVALID_TYPE; ZDNN_INVALID_SHAPE (odd dim2 of weights behind a bidirectional
    layer); ZDNN_INVALID_LAYOUT (weights are 3DS, biases 2DS) or ZDNN_INVALID_CONCAT_INFO (usage);
    ZDNN_INVALID_CONCAT_INFO (RNN type).
    Source: zDNN API Reference 1.2.0, zdnn_generate_transformed_desc_concatenated.
    """
    op = "generate_transformed_desc_concatenated"
    info = whole("info", info)
    pre, usage, rnn = pre_tfrmd_desc, c.CONCAT_USAGE(info), c.CONCAT_RNN_TYPE(info)
    halves = usage == c.USAGE_WEIGHTS and c.CONCAT_PREV_LAYER(info) == c.PREV_LAYER_BIDIR
    if pre.type not in _FLOATS:
        limit = "FP32, FP16 or BFLOAT"
        _refuse(Status.ZDNN_INVALID_TYPE, op, "pre_tfrmd_desc.type", pre.type, limit, 1)
    if halves and pre.dim2 % 2:
        limit = "even behind a bidirectional layer"
        _refuse(Status.ZDNN_INVALID_SHAPE, op, "pre_tfrmd_desc.dim2", pre.dim2, limit, 2)
    stack, rows = _concatenated_rows(op, pre, usage, halves)
    if rnn not in (c.RNN_TYPE_LSTM, c.RNN_TYPE_GRU):
        limit = "RNN_TYPE_LSTM or RNN_TYPE_GRU"
        _refuse(Status.ZDNN_INVALID_CONCAT_INFO, op, "info", f"0x{info:08X}", limit, 4)
    lstm = rnn == c.RNN_TYPE_LSTM
    layouts = (ZDNN_BIDIR_FICO, ZDNN_BIDIR_ZRH) if halves else (ZDNN_FICO, ZDNN_ZRH)
    target = TensorDesc() if tfrmd_desc is None else tfrmd_desc
    target.layout = layouts[0] if lstm else layouts[1]
    target.format, target.type = ZDNN_FORMAT_4DFEATURE, ZDNN_DLFLOAT16
    target.dim4, target.dim3, target.dim2 = stack, 1, rows
    target.dim1 = (4 if lstm else 3) * _padded(pre.dim1) & UINT32_MAX
    return target


def _concatenated_rows(op: str, pre: TensorDesc, usage: int, halves: bool) -> tuple[int, int]:
    """Return dim4 and dim2 of a concatenated tensor, after the checks of usage and layout."""
    if usage in (c.USAGE_BIASES, c.USAGE_HIDDEN_BIASES):
        layout, name, stack, rows = ZDNN_2DS, "ZDNN_2DS", pre.dim2, 1
    else:
        layout, name, stack, rows = ZDNN_3DS, "ZDNN_3DS", pre.dim3, pre.dim2
        if usage not in (c.USAGE_WEIGHTS, c.USAGE_HIDDEN_WEIGHTS):
            status = Status.ZDNN_INVALID_CONCAT_INFO
            _refuse(status, op, "info", f"usage 0x{usage:X}", "a USAGE_ number", 3)
    if pre.layout != layout:
        _refuse(Status.ZDNN_INVALID_LAYOUT, op, "pre_tfrmd_desc.layout", pre.layout, name, 3)
    return stack, 2 * _padded(rows // 2) & UINT32_MAX if halves else rows


def getsize_ztensor(tfrmd_desc: TensorDesc) -> int:
    """Return the bytes of the sticks that a transformed descriptor calls for, modulo 2^64.

    Source: zDNN API Reference 1.2.0, zdnn_getsize_ztensor.
    """
    rows, cells = tfrmd_desc.dim2, 64
    if tfrmd_desc.type == ZDNN_BINARY_INT32:
        cells = 32
    elif tfrmd_desc.type == ZDNN_BINARY_INT8 and tfrmd_desc.format == ZDNN_FORMAT_4DWEIGHTS:
        rows = (rows + 1) // 2
    elif tfrmd_desc.type == ZDNN_BINARY_INT8:
        cells = 128
    pages = (rows + 31) // 32 * ((tfrmd_desc.dim1 + cells - 1) // cells)
    return tfrmd_desc.dim4 * tfrmd_desc.dim3 * pages * 4096 & 0xFFFFFFFFFFFFFFFF


# Largest and smallest value; BFLOAT's is the largest that the truncated DLFLOAT16 maximum leaves.
_LIMITS: Mapping[int, Mapping[int, tuple[float, float]]] = MappingProxyType(
    {
        ZDNN_DLFLOAT16: {
            FP32: (8573157376.0, -8573157376.0),
            FP16: (65504.0, -65504.0),
            BFLOAT: (8556380160.0, -8556380160.0),
        },
        ZDNN_BINARY_INT8: dict.fromkeys((*_FLOATS, INT8), (127, -128)),
        ZDNN_BINARY_INT32: {INT32: (2147483647, -2147483648)},
    }
)


def _limit(op: str, transformed_type: int, pre_transformed_type: int, which: int) -> np.generic:
    transformed_type = enum_number(DataTypes.DESCRIPTOR, "transformed_type", transformed_type)
    limits = _LIMITS.get(c_enum(transformed_type))
    if limits is None:
        allowed = "ZDNN_DLFLOAT16, ZDNN_BINARY_INT8 or ZDNN_BINARY_INT32"
        _refuse(Status.ZDNN_INVALID_TYPE, op, "transformed_type", transformed_type, allowed, 1)
    pre_transformed_type = enum_number(
        DataTypes.DESCRIPTOR, "pre_transformed_type", pre_transformed_type
    )
    pair = limits.get(c_enum(pre_transformed_type))
    if pair is None:
        field, allowed = "pre_transformed_type", "a type that becomes transformed_type"
        _refuse(Status.ZDNN_INVALID_TYPE, op, field, pre_transformed_type, allowed, 2)
    value: np.generic = DTYPES[pre_transformed_type].type(pair[which])
    return value


def get_max_limit(transformed_type: int, pre_transformed_type: int) -> np.generic:
    """Return the largest value of a pre-transformed type that a transformed type can hold.

    A numpy scalar of the pre-transformed type. Raises ZdnnError ZDNN_INVALID_TYPE.
    Source: zDNN API Reference 1.2.0, zdnn_get_max_limit.
    """
    return _limit("get_max_limit", transformed_type, pre_transformed_type, 0)


def get_min_limit(transformed_type: int, pre_transformed_type: int) -> np.generic:
    """Return the smallest value; otherwise as `get_max_limit`.

    Source: zDNN API Reference 1.2.0, zdnn_get_min_limit.
    """
    return _limit("get_min_limit", transformed_type, pre_transformed_type, 1)
