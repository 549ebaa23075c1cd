# SPDX-License-Identifier: Apache-2.0
"""User data into sticks and back: the transforms of floating-point tensors.

Fidelity: conversions are exact against the published format; statuses are as in the zDNN 1.2.0
library. An upstream defect that loses data is not reproduced: a range violation in one gate does
not end a concatenated transform.

Source: zDNN API Reference 1.2.0, "Data Transformation"; order of checks as in the library.
"""

import numpy as np

from nnpa_emulator import dlfloat, stick
from nnpa_emulator.arith import explain_source, explain_violation
from nnpa_emulator.checks import (
    FEATURE_LAYOUTS,
    PLAIN_LAYOUTS,
    require_buffer,
    require_in,
    require_limits,
    require_state,
)
from nnpa_emulator.conversion import (
    UserData,
    engage,
    judge,
    runs_in_hardware,
    transform_plain,
    view_arrays,
)
from nnpa_emulator.dlfloat import Flags
from nnpa_emulator.instruction import require_storage
from nnpa_emulator.interruption import go_on
from nnpa_emulator.machine import FunctionCode
from nnpa_emulator.pipeline import (
    Call,
    Outcome,
    function,
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
    stick_bytes,
)

_BIDIR_LAYOUTS = frozenset((DataLayouts.ZDNN_BIDIR_FICO, DataLayouts.ZDNN_BIDIR_ZRH))


@function()
def transform_ztensor(call: Call, ztensor: Ztensor, data: UserData) -> Outcome:
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
       pre-transformed layout is 3DS or 2DS, else ZDNN_INVALID_LAYOUT; its slices are the
       transformed dim4, else ZDNN_INVALID_SHAPE. The pre-transformed dims give rows and columns;
       nothing compares the transformed ones with them.

    Infinity and NaN: ZDNN_CONVERT_FAILURE in software, ZDNN_ELEMENT_RANGE_VIOLATION in hardware.
    4DS data is read in the order of the transformed dims.
    Source: zDNN API Reference 1.2.0, zdnn_transform_ztensor.
    """
    _require_transformable(call, ztensor)
    if ztensor.transformed_desc.layout in LAYOUT_GATES:
        return _transform_gates(call, ztensor, data)
    small = (
        ztensor.transformed_desc.dim1 <= 2
        and ztensor.pre_transformed_desc.layout != DataLayouts.ZDNN_NCHW
    )
    return transform_plain(call, ztensor, data, saturate=False, software=small)


@function(since="1.1.0")
def transform_ztensor_with_saturation(call: Call, ztensor: Ztensor, data: UserData) -> Outcome:
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
    require_in(layout, plain, Status.ZDNN_INVALID_LAYOUT, "ztensor.transformed_desc.layout", "c5")
    return transform_plain(call, ztensor, data, saturate=True, software=False)


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
    require_in(
        desc.format, formats, Status.ZDNN_INVALID_FORMAT, "ztensor.transformed_desc.format", "c1"
    )
    if desc.format == DataFormats.ZDNN_FORMAT_4DFEATURE:
        require_in(desc.layout, FEATURE_LAYOUTS, bad_layout, f"ztensor.{layout}", "c1")
        require_in(desc.type, float_type, bad_type, f"ztensor.{kind}", "c1")
        require_in(pre.layout, PLAIN_LAYOUTS, bad_layout, f"ztensor.pre_{layout}", "c1")
    else:
        kernel = (DataLayouts.ZDNN_HWCK,)
        require_in(desc.type, float_type, bad_type, f"ztensor.{kind}", "c1")
        require_in(desc.layout, kernel, bad_layout, f"ztensor.{layout}", "c1")
        require_in(pre.layout, kernel, bad_layout, f"ztensor.pre_{layout}", "c1")
    require_in(pre.type, FLOAT_TYPES, bad_type, f"ztensor.pre_{kind}", "c1")


def _transform_gates(call: Call, ztensor: Ztensor, data: UserData) -> Outcome:
    """Convert the gates of every slice; each (slice, gate) is a tensor of its own."""
    (slices, rows, columns), desc = _gate_shape(ztensor)
    pre = ztensor.pre_transformed_desc
    arrays = view_arrays(data, LAYOUT_GATES[desc.layout], slices * rows * columns, pre.type)
    hardware = desc.layout not in _BIDIR_LAYOUTS and runs_in_hardware(
        call, ztensor, (1, rows, columns)
    )
    engage(call, hardware)
    stick.clear(ztensor.sticks, desc)
    flags, violated, failed = Flags.NONE, False, False
    for index in range(slices):
        go_on()
        for gate, array in enumerate(arrays):
            part = array.reshape(slices, rows, columns)[index]
            met = stick.stickify_gate(part, desc, ztensor.sticks, index=index, gate=gate)
            flags = met.flags
            violated |= met.any_ninf
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
    return judge(ztensor, hardware, Conversion(flags, violated), violation)


def _gate_shape(ztensor: Ztensor) -> tuple[tuple[int, int, int], TensorDesc]:
    """Return (slices, rows, columns) of one gate's array after the concatenated checks.

    Return the descriptor of the written sticks, too.
    """
    desc, pre = ztensor.transformed_desc, ztensor.pre_transformed_desc
    name = "ztensor.pre_transformed_desc"
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
        limit = f"{slices} (the slices of {name})"
        raise Refused(shape, "ztensor.transformed_desc.dim4", desc.dim4, limit, "c5")
    halves = desc.layout in _BIDIR_LAYOUTS
    height = 2 * padded(rows // 2) if halves else rows
    width = LAYOUT_GATES[desc.layout] * padded(pre.dim1)
    written = desc.with_dims((slices, 1, height, width))
    if not 0 < stick_bytes(written) <= stick_bytes(desc):
        # The C library would follow such descriptors out of the buffer.
        limit = f"the size of {written.dims} for {name} {pre.layout_dims}"
        raise Malformed("ztensor.transformed_desc.dims", desc.dims, limit)
    return (slices, rows, pre.dim1), written


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
    require_in(
        desc.layout, plain, Status.ZDNN_INVALID_LAYOUT, "ztensor.transformed_desc.layout", "c5"
    )
    return _untransform(call, ztensor)


def _require_readable(desc: TensorDesc, pre: TensorDesc) -> None:
    formats = (DataFormats.ZDNN_FORMAT_4DFEATURE,)
    bad_layout, bad_type = Status.ZDNN_INVALID_LAYOUT, Status.ZDNN_INVALID_TYPE
    layout, kind = "transformed_desc.layout", "transformed_desc.type"
    require_in(
        desc.format, formats, Status.ZDNN_INVALID_FORMAT, "ztensor.transformed_desc.format", "c1"
    )
    types = (DataTypes.ZDNN_DLFLOAT16, DataTypes.ZDNN_BINARY_INT32)
    require_in(desc.type, types, bad_type, f"ztensor.{kind}", "c1")
    if desc.type == DataTypes.ZDNN_DLFLOAT16:
        readable = _BIDIR_LAYOUTS | {DataLayouts.ZDNN_NHWC}
        require_in(desc.layout, readable, bad_layout, f"ztensor.{layout}", "c1")
        require_in(pre.type, FLOAT_TYPES, bad_type, f"ztensor.pre_{kind}", "c1")
    else:
        require_in(desc.layout, (DataLayouts.ZDNN_NHWC,), bad_layout, f"ztensor.{layout}", "c1")
        require_in(pre.type, (DataTypes.INT32,), bad_type, f"ztensor.pre_{kind}", "c1")
    require_in(pre.layout, PLAIN_LAYOUTS, bad_layout, f"ztensor.pre_{layout}", "c1")


def _untransform(call: Call, ztensor: Ztensor) -> Outcome:
    pre, small = ztensor.pre_transformed_desc, _is_small(ztensor)
    desc = desc_of_rows(ztensor)
    hardware = not small and runs_in_hardware(call, ztensor, desc.dims)
    engage(call, hardware)
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


def _is_small(ztensor: Ztensor) -> bool:
    nchw = ztensor.pre_transformed_desc.layout == DataLayouts.ZDNN_NCHW
    return not nchw and ztensor.transformed_desc.dim1 <= 2


def desc_of_rows(ztensor: Ztensor) -> TensorDesc:
    """Describe sticks so that their rows are the rows of the dense array."""
    desc, pre = ztensor.transformed_desc, ztensor.pre_transformed_desc
    bidirectional = pre.layout == DataLayouts.ZDNN_4DS and pre.dim3 != 1
    return _both_directions(desc, pre) if bidirectional and not _is_small(ztensor) else desc


def _both_directions(desc: TensorDesc, pre: TensorDesc) -> TensorDesc:
    """Describe the output of a bidirectional layer as (2 timesteps, 1, batch, hidden)."""
    shape, name = Status.ZDNN_INVALID_SHAPE, "ztensor.pre_transformed_desc"
    if pre.dim3 != 2:
        raise Refused(shape, f"{name}.dim3", pre.dim3, "1 or 2 (directions)", "c5")
    if pre.dim4 != desc.dim4:
        limit = f"{desc.dim4} (ztensor.transformed_desc.dim4, timesteps)"
        raise Refused(shape, f"{name}.dim4", pre.dim4, limit, "c5")
    if (desc.dim3, desc.dim1) != (1, 2 * padded(pre.dim1)):
        # The C library would follow such descriptors out of the buffer.
        limit = f"dim3 1 and dim1 {2 * padded(pre.dim1)} for {name} {pre.layout_dims}"
        raise Malformed("ztensor.transformed_desc.dims", desc.dims, limit)
    return desc.with_dims((2 * desc.dim4, 1, desc.dim2, pre.dim1))
