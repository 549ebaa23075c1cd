# SPDX-License-Identifier: Apache-2.0
"""User data into sticks and back: the transforms.

Two engines convert. Software raises IEEE flags and judges by them; NNPA-TRANSFORM (function 240,
Telum II, library 1.1 and later) answers with a range violation. Which one runs depends on machine,
layout, type and size, and shows in status and state, never in finite values.

Fidelity: conversions are exact against the published format; statuses are those of the zDNN 1.2.0
library. Not public: what NNPA-TRANSFORM stores for non-numeric input of INT8 tensors and how it
rounds ties there (half to even here). Upstream defects that lose data are not reproduced: a range
violation in one gate does not end a concatenated transform, and quantizing BFLOAT converts the last
elements like all others.

Source: zDNN API Reference 1.2.0, "Data Transformation"; order of checks as in the library.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nnpa_emulator import dlfloat, stick
from nnpa_emulator.arith import RangeViolation, explain_source, explain_violation
from nnpa_emulator.checks import (
    FEATURE_LAYOUTS,
    PLAIN_LAYOUTS,
    require_buffer,
    require_in,
    require_limits,
    require_state,
)
from nnpa_emulator.dlfloat import Flags
from nnpa_emulator.instruction import require_storage, require_vector_nnp, response
from nnpa_emulator.machine import FORMAT_1, FunctionCode
from nnpa_emulator.pipeline import (
    Call,
    Outcome,
    function,
    require_facility,
)
from nnpa_emulator.status import Malformed, Refused, Status
from nnpa_emulator.stick import Conversion
from nnpa_emulator.ztensor import (
    FLOAT_TYPES,
    LAYOUT_GATES,
    DataFormats,
    DataLayouts,
    DataTypes,
    TensorDesc,
    Ztensor,
    padded,
)

Data: TypeAlias = Sequence[Any]
Array: TypeAlias = npt.NDArray[Any]

_DTYPES: dict[int, np.dtype[Any]] = {
    DataTypes.FP32: np.dtype("<f4"),
    DataTypes.FP16: np.dtype("<f2"),
    DataTypes.BFLOAT: np.dtype("<u2"),
    DataTypes.INT8: np.dtype("i1"),
}
# FP32 tensors whose dim3 * dim2 * dim1 is larger go to NNPA-TRANSFORM.
_HARDWARE_ABOVE = 2048
_QUANTIZABLE_LAYOUTS = PLAIN_LAYOUTS - {DataLayouts.ZDNN_4DS, DataLayouts.ZDNN_NCHW}
_BIDIR_LAYOUTS = frozenset((DataLayouts.ZDNN_BIDIR_FICO, DataLayouts.ZDNN_BIDIR_ZRH))


@function()
def transform_ztensor(call: Call, ztensor: Ztensor, data: Data) -> Outcome:
    """Convert user data to DLFLOAT16 sticks: one array, or one per gate of a concatenated tensor.

    1. Format, layouts and types fit each other: transformed 4DFEATURE or 4DKERNEL, else
       ZDNN_INVALID_FORMAT; transformed layout, then type (4DKERNEL: type, then layout), then
       pre-transformed layout, else ZDNN_INVALID_LAYOUT or ZDNN_INVALID_TYPE; pre-transformed type
       FP32, FP16 or BFLOAT, else ZDNN_INVALID_TYPE.
    2. The transformed dims are within the machine's limits, else ZDNN_INVALID_SHAPE, or
       ZDNN_UNSUPPORTED_AIU_EXCEPTION without NNPA.
    3. The buffer is there, aligned and large enough, else ZDNN_INVALID_BUFFER.
    4. The ztensor is not transformed, else ZDNN_INVALID_STATE.
    5. Concatenated only: behind a bidirectional layer dim2 is even, else ZDNN_INVALID_SHAPE; the
       pre-transformed layout is 3DS or 2DS, else ZDNN_INVALID_LAYOUT; it has as many slices as
       the transformed dim4, else ZDNN_INVALID_SHAPE.

    Infinity and NaN: ZDNN_CONVERT_FAILURE in software, ZDNN_ELEMENT_RANGE_VIOLATION in hardware.
    4DS data is read in the order of the transformed dims.
    Source: zDNN API Reference 1.2.0, zdnn_transform_ztensor.
    """
    _require_transformable(call, ztensor)
    if ztensor.transformed_desc.layout in LAYOUT_GATES:
        return _transform_gates(call, ztensor, data)
    small = ztensor.transformed_desc.dim1 <= 2 and _pre_layout(ztensor) != DataLayouts.ZDNN_NCHW
    return _transform_plain(call, ztensor, data, saturate=False, software=small)


@function(since="1.1.0")
def transform_ztensor_with_saturation(call: Call, ztensor: Ztensor, data: Data) -> Outcome:
    """Convert one array to DLFLOAT16 sticks, finite FP32 and BFLOAT values clamped to the range.

    1. Format, layouts and types fit each other, as in transform_ztensor.
    2. The transformed dims are within the machine's limits, as in transform_ztensor.
    3. The buffer is there, aligned and large enough, else ZDNN_INVALID_BUFFER.
    4. The ztensor is not transformed, else ZDNN_INVALID_STATE.
    5. The tensor is not concatenated, else ZDNN_INVALID_LAYOUT.

    Infinity and NaN are not clamped: ZDNN_ELEMENT_RANGE_VIOLATION, and for FP16 data
    ZDNN_CONVERT_FAILURE. The reference asks for Telum II; the library also converts in software.
    Source: zDNN API Reference 1.2.0, zdnn_transform_ztensor_with_saturation.
    """
    _require_transformable(call, ztensor)
    layout = ztensor.transformed_desc.layout
    plain = (DataLayouts.ZDNN_NHWC, DataLayouts.ZDNN_HWCK)
    require_in(layout, plain, Status.ZDNN_INVALID_LAYOUT, "transformed_desc.layout", "c5")
    return _transform_plain(call, ztensor, data, saturate=True, software=False)


def _pre_layout(ztensor: Ztensor) -> int:
    return ztensor.pre_transformed_desc.layout


def _require_transformable(call: Call, ztensor: Ztensor) -> None:
    """Check descriptors, limits, buffer and state, in this order."""
    _require_float_descs(ztensor)
    require_limits(ztensor.transformed_desc, call.guest, "c2")
    require_buffer(ztensor, call.alignment.buffer_misaligned, "c3")
    require_state(ztensor, "ztensor", False, "c4")
    require_storage("ztensor", ztensor)


def _require_float_descs(ztensor: Ztensor) -> None:
    desc, pre = ztensor.transformed_desc, ztensor.pre_transformed_desc
    layout, kind = "transformed_desc.layout", "transformed_desc.type"
    bad_layout, bad_type = Status.ZDNN_INVALID_LAYOUT, Status.ZDNN_INVALID_TYPE
    formats = (DataFormats.ZDNN_FORMAT_4DFEATURE, DataFormats.ZDNN_FORMAT_4DKERNEL)
    float_type = (DataTypes.ZDNN_DLFLOAT16,)
    require_in(desc.format, formats, Status.ZDNN_INVALID_FORMAT, "transformed_desc.format", "c1")
    if desc.format == DataFormats.ZDNN_FORMAT_4DFEATURE:
        require_in(desc.layout, FEATURE_LAYOUTS, bad_layout, layout, "c1")
        require_in(desc.type, float_type, bad_type, kind, "c1")
        require_in(pre.layout, PLAIN_LAYOUTS, bad_layout, f"pre_{layout}", "c1")
    else:
        kernel = (DataLayouts.ZDNN_HWCK,)
        require_in(desc.type, float_type, bad_type, kind, "c1")
        require_in(desc.layout, kernel, bad_layout, layout, "c1")
        require_in(pre.layout, kernel, bad_layout, f"pre_{layout}", "c1")
    require_in(pre.type, FLOAT_TYPES, bad_type, f"pre_{kind}", "c1")


def _in_hardware(call: Call, ztensor: Ztensor, dims: Sequence[int]) -> bool:
    """Tell whether the library, as it remembers the machine, hands the tensor to NNPA-TRANSFORM."""
    return (
        ztensor.transformed_desc.layout in (DataLayouts.ZDNN_NHWC, *LAYOUT_GATES)
        and _pre_layout(ztensor) != DataLayouts.ZDNN_NCHW
        and ztensor.pre_transformed_desc.type == DataTypes.FP32
        and call.guest.library_version >= 0x010100
        and call.guest.cached.has_function(FunctionCode.NNPA_TRANSFORM)
        and dims[-1] * dims[-2] * dims[-3] > _HARDWARE_ABOVE
    )


def _engage(call: Call, hardware: bool) -> None:
    """Make sure that the machine has what converts: NNPA-TRANSFORM, or vector instructions."""
    if hardware:
        require_facility(call.guest, FunctionCode.NNPA_TRANSFORM, FORMAT_1)
    else:
        require_vector_nnp(call.guest)


def _arrays(data: Data, count: int, elements: int, kind: int) -> list[Array]:
    """View the user's bytes as `count` arrays of `elements` elements of a pre-transformed type."""
    if len(data) != count:
        raise Malformed("data", f"{len(data)} arrays", f"{count} arrays")
    dtype = _DTYPES[kind]
    arrays: list[Array] = []
    for number, array in enumerate(data):
        raw = _raw(array)
        size = elements * dtype.itemsize
        if raw.nbytes != size:
            raise Malformed(f"data[{number}]", f"{raw.nbytes} bytes", f"{size} bytes")
        arrays.append(np.frombuffer(raw, dtype))
    return arrays


def _raw(array: Any) -> memoryview:
    """View bytes-like data or an array, of whatever dtype, as its bytes."""
    view = (
        np.ravel(array).view(np.uint8).data if isinstance(array, np.ndarray) else memoryview(array)
    )
    return view.cast("B") if view.nbytes else memoryview(b"")


def _elements(dims: Sequence[int]) -> int:
    return math.prod(dims)


def _transform_plain(
    call: Call, ztensor: Ztensor, data: Data, *, saturate: bool, software: bool
) -> Outcome:
    desc, kind = ztensor.transformed_desc, ztensor.pre_transformed_desc.type
    (array,) = _arrays(data, 1, _elements(desc.dims), kind)
    hardware = not software and _in_hardware(call, ztensor, desc.dims)
    _engage(call, hardware)
    nchw = _pre_layout(ztensor) == DataLayouts.ZDNN_NCHW
    met = stick.stickify(array, desc, ztensor.sticks, saturate=saturate, nchw=nchw)
    violation = _explain(hardware, met, ztensor, array, nchw)
    clamped = saturate and kind != DataTypes.FP16
    return _judge(ztensor, hardware, met, violation, clamped)


def _explain(
    hardware: bool, met: Conversion, ztensor: Ztensor, array: Array, nchw: bool
) -> RangeViolation | None:
    if not (met.any_ninf if hardware else met.flags & (Flags.INVALID | Flags.OVERFLOW)):
        return None
    d4, d3, d2, d1 = ztensor.transformed_desc.dims
    shaped = array.reshape(d4, d1, d3, d2).transpose(0, 2, 3, 1) if nchw else array
    return explain_source(
        FunctionCode.NNPA_TRANSFORM if hardware else None, {"data": shaped.reshape(d4, d3, d2, d1)}
    )


def _judge(
    ztensor: Ztensor,
    hardware: bool,
    met: Conversion,
    violation: RangeViolation | None,
    clamped: bool = False,
) -> Outcome:
    """Turn what a conversion met into status and state.

    Source: behaviour of the zDNN 1.2.0 library; underflow is ignored, inexact never raised.
    """
    flags = Flags.NONE if hardware else met.flags
    status = Status.ZDNN_OK
    if violation is not None:
        warn = hardware or clamped
        status = Status.ZDNN_ELEMENT_RANGE_VIOLATION if warn else Status.ZDNN_CONVERT_FAILURE
    ztensor.is_transformed = status != Status.ZDNN_CONVERT_FAILURE
    return Outcome(status, violation=violation, fp_flags=int(flags))


def _transform_gates(call: Call, ztensor: Ztensor, data: Data) -> Outcome:
    """Convert the gates of every slice; each (slice, gate) is a tensor of its own."""
    slices, rows, columns = _gate_shape(ztensor)
    desc, pre = ztensor.transformed_desc, ztensor.pre_transformed_desc
    arrays = _arrays(data, LAYOUT_GATES[desc.layout], slices * rows * columns, pre.type)
    hardware = desc.layout not in _BIDIR_LAYOUTS and _in_hardware(call, ztensor, (1, rows, columns))
    _engage(call, hardware)
    stick.clear(ztensor.sticks, desc)
    flags, violated, failed = Flags.NONE, False, False
    for index in range(slices):
        for gate, array in enumerate(arrays):
            part = array.reshape(slices, rows, columns)[index]
            met = stick.stickify_gate(part, desc, ztensor.sticks, index=index, gate=gate)
            flags = met.flags
            violated |= met.any_ninf if hardware else False
            failed = not hardware and bool(flags & (Flags.INVALID | Flags.OVERFLOW))
            if failed:
                break
        if failed:
            break
    violation = None
    if violated or failed:
        shaped = {
            f"data[{gate}]": array.reshape(slices, 1, rows, columns)
            for gate, array in enumerate(arrays)
        }
        violation = explain_source(FunctionCode.NNPA_TRANSFORM if hardware else None, shaped)
    return _judge(ztensor, hardware, Conversion(flags, violated), violation)


def _gate_shape(ztensor: Ztensor) -> tuple[int, int, int]:
    """Return (slices, rows, columns) of one gate's array after the concatenated checks."""
    desc, pre = ztensor.transformed_desc, ztensor.pre_transformed_desc
    name = "pre_transformed_desc"
    shape, layout = Status.ZDNN_INVALID_SHAPE, Status.ZDNN_INVALID_LAYOUT
    allowed = (DataLayouts.ZDNN_2DS, DataLayouts.ZDNN_3DS)
    require_in(pre.layout, allowed, layout, f"{name}.layout", "c5")
    if pre.layout == DataLayouts.ZDNN_3DS:
        slices, rows = pre.dim3, pre.dim2
        if desc.layout in _BIDIR_LAYOUTS and rows % 2:
            raise Refused(shape, f"{name}.dim2", rows, "even behind a bidirectional layer", "c5")
    else:
        slices, rows = pre.dim2, 1
    if slices != desc.dim4:
        raise Refused(shape, "transformed_desc.dim4", desc.dim4, f"{slices} slices", "c5")
    halves = desc.layout in _BIDIR_LAYOUTS
    height = 2 * padded(rows // 2) if halves else rows
    width = LAYOUT_GATES[desc.layout] * padded(pre.dim1)
    if (desc.dim3, desc.dim2, desc.dim1) != (1, height, width):
        # The C library would follow such descriptors out of the buffer.
        dims = (slices, 1, height, width)
        raise Malformed("transformed_desc.dims", desc.dims, f"{dims} for {name} {pre.layout_dims}")
    return slices, rows, pre.dim1


@function(since="1.1.0")
def transform_quantized_ztensor(
    call: Call,
    ztensor: Ztensor,
    saturation_control: bool,
    clip_min: int,
    clip_max: int,
    data: Data,
) -> Outcome:
    """Convert one array for quantized operations.

    1. The buffer is there, aligned and large enough, else ZDNN_INVALID_BUFFER.
    2. The ztensor is not transformed, else ZDNN_INVALID_STATE.
    3. The transformed layout is NHWC, then the pre-transformed layout is 1D, 2D, 2DS, 3D, 3DS, 4D
       or NHWC, else ZDNN_INVALID_LAYOUT.
    4. The transformed dims are within the machine's limits, as in transform_ztensor.
    5. Format, transformed type and pre-transformed type are a known combination: an unknown format
       is ZDNN_INVALID_FORMAT, an unknown combination of types ZDNN_INVALID_TYPE.
    6. Where NNPA-TRANSFORM is needed, its parameter block format is installed, else
       ZDNN_UNAVAILABLE_FUNCTION.
    7. Quantizing, clip_min is less than clip_max, else ZDNN_INVALID_CLIPPING_VALUE; the reciprocal
       scale is neither zero nor NINF and the offset not NINF in DLFLOAT16, else F001.

    FP32 becomes DLFLOAT16 in hardware, with saturation if asked; FP16 and BFLOAT in software,
    without. FP32, FP16 and BFLOAT become INT8 in hardware: clip(round(x / scale + offset)). INT8 is
    copied, into feature or weights sticks, whatever scale and clips say.
    Source: zDNN API Reference 1.2.0, zdnn_transform_quantized_ztensor.
    """
    require_buffer(ztensor, call.alignment.buffer_misaligned, "c1")
    require_state(ztensor, "ztensor", False, "c2")
    desc, pre = ztensor.transformed_desc, ztensor.pre_transformed_desc
    bad_layout, name = Status.ZDNN_INVALID_LAYOUT, "transformed_desc.layout"
    require_in(desc.layout, (DataLayouts.ZDNN_NHWC,), bad_layout, name, "c3")
    require_in(pre.layout, _QUANTIZABLE_LAYOUTS, bad_layout, f"pre_{name}", "c3")
    require_limits(desc, call.guest, "c4")
    _require_quantizable(desc, pre)
    require_storage("ztensor", ztensor)
    if pre.type == DataTypes.INT8:
        (array,) = _arrays(data, 1, _elements(desc.dims), pre.type)
        stick.stickify(array, desc, ztensor.sticks)
        ztensor.is_transformed = True
        return Outcome()
    if desc.type == DataTypes.ZDNN_DLFLOAT16:
        if pre.type != DataTypes.FP32:
            return _transform_plain(call, ztensor, data, saturate=False, software=True)
        return _stick_in_hardware(call, ztensor, data, bool(saturation_control))
    return _quantize(call, ztensor, data, clip_min, clip_max)


def _require_quantizable(desc: TensorDesc, pre: TensorDesc) -> None:
    formats = (DataFormats.ZDNN_FORMAT_4DFEATURE, DataFormats.ZDNN_FORMAT_4DWEIGHTS)
    require_in(desc.format, formats, Status.ZDNN_INVALID_FORMAT, "transformed_desc.format", "c5")
    bad = Status.ZDNN_INVALID_TYPE
    integers = (DataTypes.ZDNN_BINARY_INT8,)
    if desc.format == DataFormats.ZDNN_FORMAT_4DWEIGHTS:
        require_in(desc.type, integers, bad, "transformed_desc.type", "c5")
        sources = frozenset((DataTypes.INT8,))
    else:
        kinds = (DataTypes.ZDNN_DLFLOAT16, *integers)
        require_in(desc.type, kinds, bad, "transformed_desc.type", "c5")
        quantized = desc.type == DataTypes.ZDNN_BINARY_INT8
        sources = FLOAT_TYPES | {DataTypes.INT8} if quantized else FLOAT_TYPES
    require_in(pre.type, sources, bad, "pre_transformed_desc.type", "c5")


def _stick_in_hardware(call: Call, ztensor: Ztensor, data: Data, saturate: bool) -> Outcome:
    desc = ztensor.transformed_desc
    require_facility(call.guest, FunctionCode.NNPA_TRANSFORM, FORMAT_1)
    (array,) = _arrays(data, 1, _elements(desc.dims), DataTypes.FP32)
    met = stick.stickify(array, desc, ztensor.sticks, saturate=saturate)
    return _judge(ztensor, True, met, _explain(True, met, ztensor, array, False))


def _quantize(call: Call, ztensor: Ztensor, data: Data, clip_min: int, clip_max: int) -> Outcome:
    """Issue NNPA-TRANSFORM operation 6 after widening FP16 (through DLFLOAT16) or BFLOAT."""
    desc, kind = ztensor.transformed_desc, ztensor.pre_transformed_desc.type
    require_facility(call.guest, FunctionCode.NNPA_TRANSFORM, FORMAT_1)
    low, high = _int8(clip_min), _int8(clip_max)
    if low >= high:
        limit = f"less than clip_max {high}"
        raise Refused(Status.ZDNN_INVALID_CLIPPING_VALUE, "clip_min", low, limit, "c7")
    scale = dlfloat.scalar_to_dlfloat(ztensor.rec_scale) & dlfloat.MAGNITUDE
    if scale in (dlfloat.ZERO, dlfloat.NINF):
        raise response(0xF001, "rec_scale", ztensor.rec_scale, "a DLFLOAT16 number, not 0", "c7")
    if dlfloat.scalar_to_dlfloat(ztensor.offset) & dlfloat.MAGNITUDE == dlfloat.NINF:
        raise response(0xF001, "offset", ztensor.offset, "a DLFLOAT16 number", "c7")
    (array,) = _arrays(data, 1, _elements(desc.dims), kind)
    wide = _widened(array, kind)
    met = stick.quantize(
        wide,
        desc,
        ztensor.sticks,
        rec_scale=ztensor.rec_scale,
        offset=ztensor.offset,
        clip_min=low,
        clip_max=high,
    )
    return _judge(ztensor, True, met, _explain(True, met, ztensor, wide, False))


def _int8(value: int) -> int:
    """Reduce a C argument to int8_t."""
    return (int(value) + 128) % 256 - 128


def _widened(array: Array, kind: int) -> npt.NDArray[np.float32]:
    if kind == DataTypes.FP16:
        return dlfloat.to_fp32(dlfloat.from_fp16(array))
    if kind == DataTypes.BFLOAT:
        return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return array


@function()
def transform_origtensor(call: Call, ztensor: Ztensor) -> Outcome:
    """Convert sticks back to a dense array of the pre-transformed type, in its order.

    1. The format is 4DFEATURE, else ZDNN_INVALID_FORMAT; by transformed type the layouts and the
       pre-transformed type fit, else ZDNN_INVALID_LAYOUT or ZDNN_INVALID_TYPE.
    2. The transformed dims are within the machine's limits, as in transform_ztensor.
    3. The buffer is there and aligned, else ZDNN_INVALID_BUFFER; its size is not looked at.
    4. The ztensor is transformed, else ZDNN_INVALID_STATE.
    5. The layout is not a concatenated one, else ZDNN_INVALID_LAYOUT. For 4DS data with dim3 other
       than 1, dim3 is 2 and dim4 the transformed dim4, else ZDNN_INVALID_SHAPE.

    All elements are written also when NINF (or, for FP16, an overflow) makes the status
    ZDNN_CONVERT_FAILURE in software or ZDNN_ELEMENT_RANGE_VIOLATION in hardware.
    Source: zDNN API Reference 1.2.0, zdnn_transform_origtensor.
    """
    desc, pre = ztensor.transformed_desc, ztensor.pre_transformed_desc
    _require_readable(desc, pre)
    require_limits(desc, call.guest, "c2")
    require_buffer(ztensor, call.alignment.buffer_misaligned, "c3", sized=False)
    require_state(ztensor, "ztensor", True, "c4")
    require_storage("ztensor", ztensor)
    if desc.type == DataTypes.ZDNN_BINARY_INT32:
        cells = stick.read_cells(ztensor.sticks, desc)
        return Outcome(value=np.ascontiguousarray(cells[..., 0]))
    plain = (DataLayouts.ZDNN_NHWC,)
    require_in(desc.layout, plain, Status.ZDNN_INVALID_LAYOUT, "transformed_desc.layout", "c5")
    return _untransform(call, ztensor)


def _require_readable(desc: TensorDesc, pre: TensorDesc) -> None:
    formats = (DataFormats.ZDNN_FORMAT_4DFEATURE,)
    bad_layout, bad_type = Status.ZDNN_INVALID_LAYOUT, Status.ZDNN_INVALID_TYPE
    layout, kind = "transformed_desc.layout", "transformed_desc.type"
    require_in(desc.format, formats, Status.ZDNN_INVALID_FORMAT, "transformed_desc.format", "c1")
    types = (DataTypes.ZDNN_DLFLOAT16, DataTypes.ZDNN_BINARY_INT32)
    require_in(desc.type, types, bad_type, kind, "c1")
    if desc.type == DataTypes.ZDNN_DLFLOAT16:
        readable = _BIDIR_LAYOUTS | {DataLayouts.ZDNN_NHWC}
        require_in(desc.layout, readable, bad_layout, layout, "c1")
        require_in(pre.type, FLOAT_TYPES, bad_type, f"pre_{kind}", "c1")
    else:
        require_in(desc.layout, (DataLayouts.ZDNN_NHWC,), bad_layout, layout, "c1")
        require_in(pre.type, (DataTypes.INT32,), bad_type, f"pre_{kind}", "c1")
    require_in(pre.layout, PLAIN_LAYOUTS, bad_layout, f"pre_{layout}", "c1")


def _untransform(call: Call, ztensor: Ztensor) -> Outcome:
    desc, pre = ztensor.transformed_desc, ztensor.pre_transformed_desc
    bidirectional = pre.layout == DataLayouts.ZDNN_4DS and pre.dim3 != 1
    small = pre.layout != DataLayouts.ZDNN_NCHW and desc.dim1 <= 2
    if bidirectional and not small:
        desc = _both_directions(desc, pre)
    hardware = not small and _in_hardware(call, ztensor, desc.dims)
    _engage(call, hardware)
    nchw = pre.layout == DataLayouts.ZDNN_NCHW
    array, met = stick.unstickify(ztensor.sticks, desc, pre.type, nchw=nchw, target=call.target)
    violated = met.any_ninf if hardware else bool(met.flags & (Flags.INVALID | Flags.OVERFLOW))
    status, violation = Status.ZDNN_OK, None
    if violated:
        fp16 = pre.type == DataTypes.FP16
        least = dlfloat.FP16_OVERFLOW if fp16 else dlfloat.NINF
        code = FunctionCode.NNPA_TRANSFORM if hardware else None
        violation = explain_violation(code, {"ztensor": ztensor}, ("ztensor",), least)
        status = Status.ZDNN_ELEMENT_RANGE_VIOLATION if hardware else Status.ZDNN_CONVERT_FAILURE
    flags = 0 if hardware else int(met.flags)
    return Outcome(status, violation=violation, fp_flags=flags, value=array)


def _both_directions(desc: TensorDesc, pre: TensorDesc) -> TensorDesc:
    """Describe the output of a bidirectional layer as (2 timesteps, 1, batch, hidden)."""
    shape, name = Status.ZDNN_INVALID_SHAPE, "pre_transformed_desc"
    if pre.dim3 != 2:
        raise Refused(shape, f"{name}.dim3", pre.dim3, "1 or 2 directions", "c5")
    if pre.dim4 != desc.dim4:
        raise Refused(shape, f"{name}.dim4", pre.dim4, f"{desc.dim4} timesteps", "c5")
    if (desc.dim3, desc.dim1) != (1, 2 * padded(pre.dim1)):
        # The C library would follow such descriptors out of the buffer.
        limit = f"dim3 1 and dim1 {2 * padded(pre.dim1)} for {name} {pre.layout_dims}"
        raise Malformed("transformed_desc.dims", desc.dims, limit)
    return desc.with_dims((2 * desc.dim4, 1, desc.dim2, pre.dim1))
