# SPDX-License-Identifier: Apache-2.0
"""User data into sticks of quantized operations.

Fidelity: statuses and copies are as in the zDNN 1.2.0 library. Not public: the value that
NNPA-TRANSFORM stores for non-numeric input of INT8 tensors, and its rounding of ties there (half to
even here). An upstream defect that loses data is not reproduced: quantizing BFLOAT converts the
last elements like all others.

Source: zDNN API Reference 1.2.0, "Data Transformation"; order of checks as in the library.
"""

import math

import numpy as np
import numpy.typing as npt

from nnpa_emulator import dlfloat, stick
from nnpa_emulator.checks import (
    PLAIN_LAYOUTS,
    require_buffer,
    require_in,
    require_limits,
    require_state,
)
from nnpa_emulator.conversion import UserData, explain, judge, transform_plain, view_arrays
from nnpa_emulator.instruction import require_storage, response
from nnpa_emulator.machine import FORMAT_1, FunctionCode
from nnpa_emulator.pipeline import Call, Outcome, function, require_facility
from nnpa_emulator.status import Refused, Status
from nnpa_emulator.ztensor import (
    FLOAT_TYPES,
    Array,
    DataFormats,
    DataLayouts,
    DataTypes,
    TensorDesc,
    Ztensor,
)

_QUANTIZABLE_LAYOUTS = PLAIN_LAYOUTS - {DataLayouts.ZDNN_4DS, DataLayouts.ZDNN_NCHW}


@function(since="1.1.0")
def transform_quantized_ztensor(
    call: Call,
    ztensor: Ztensor,
    saturation_control: bool,
    clip_min: int,
    clip_max: int,
    data: UserData,
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
    require_in(desc.layout, (DataLayouts.ZDNN_NHWC,), bad_layout, f"ztensor.{name}", "c3")
    require_in(pre.layout, _QUANTIZABLE_LAYOUTS, bad_layout, f"ztensor.pre_{name}", "c3")
    require_limits(desc, call.guest, "c4")
    _require_quantizable(desc, pre)
    require_storage("ztensor", ztensor)
    if pre.type == DataTypes.INT8:
        (array,) = view_arrays(data, 1, math.prod(desc.dims), pre.type)
        stick.stickify(array, desc, ztensor.sticks)
        ztensor.is_transformed = True
        return Outcome()
    if desc.type == DataTypes.ZDNN_DLFLOAT16:
        if pre.type != DataTypes.FP32:
            return transform_plain(call, ztensor, data, saturate=False, software=True)
        return _stick_in_hardware(call, ztensor, data, bool(saturation_control))
    return _quantize(call, ztensor, data, clip_min, clip_max)


def _require_quantizable(desc: TensorDesc, pre: TensorDesc) -> None:
    formats = (DataFormats.ZDNN_FORMAT_4DFEATURE, DataFormats.ZDNN_FORMAT_4DWEIGHTS)
    field, bad_format = "ztensor.transformed_desc.format", Status.ZDNN_INVALID_FORMAT
    require_in(desc.format, formats, bad_format, field, "c5")
    bad = Status.ZDNN_INVALID_TYPE
    integers = (DataTypes.ZDNN_BINARY_INT8,)
    if desc.format == DataFormats.ZDNN_FORMAT_4DWEIGHTS:
        require_in(desc.type, integers, bad, "ztensor.transformed_desc.type", "c5")
        sources = frozenset((DataTypes.INT8,))
    else:
        kinds = (DataTypes.ZDNN_DLFLOAT16, *integers)
        require_in(desc.type, kinds, bad, "ztensor.transformed_desc.type", "c5")
        quantized = desc.type == DataTypes.ZDNN_BINARY_INT8
        sources = FLOAT_TYPES | {DataTypes.INT8} if quantized else FLOAT_TYPES
    require_in(pre.type, sources, bad, "ztensor.pre_transformed_desc.type", "c5")


def _stick_in_hardware(call: Call, ztensor: Ztensor, data: UserData, saturate: bool) -> Outcome:
    desc = ztensor.transformed_desc
    require_facility(call.guest, FunctionCode.NNPA_TRANSFORM, FORMAT_1)
    (array,) = view_arrays(data, 1, math.prod(desc.dims), DataTypes.FP32)
    met = stick.stickify(array, desc, ztensor.sticks, saturate=saturate)
    return judge(ztensor, True, met, explain(True, met, ztensor, array, False))


def _quantize(
    call: Call, ztensor: Ztensor, data: UserData, clip_min: int, clip_max: int
) -> Outcome:
    """Issue NNPA-TRANSFORM operation 6 after widening FP16 (through DLFLOAT16) or BFLOAT."""
    desc, kind = ztensor.transformed_desc, ztensor.pre_transformed_desc.type
    require_facility(call.guest, FunctionCode.NNPA_TRANSFORM, FORMAT_1)
    low, high = _int8(clip_min), _int8(clip_max)
    if low >= high:
        limit = f"less than clip_max {high}"
        raise Refused(Status.ZDNN_INVALID_CLIPPING_VALUE, "clip_min", low, limit, "c7")
    scale = dlfloat.scalar_to_dlfloat(ztensor.rec_scale) & dlfloat.MAGNITUDE
    if scale in (dlfloat.ZERO, dlfloat.NINF):
        limit = "numeric and not 0 in DLFLOAT16: give the ztensor another scale"
        raise response(0xF001, "ztensor.rec_scale", ztensor.rec_scale, limit, "c7")
    if dlfloat.scalar_to_dlfloat(ztensor.offset) & dlfloat.MAGNITUDE == dlfloat.NINF:
        limit = "numeric in DLFLOAT16"
        raise response(0xF001, "ztensor.offset", ztensor.offset, limit, "c7")
    (array,) = view_arrays(data, 1, math.prod(desc.dims), kind)
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
    return judge(ztensor, True, met, explain(True, met, ztensor, wide, False))


def _int8(value: int) -> int:
    """Reduce a C argument to int8_t."""
    return (int(value) + 128) % 256 - 128


def _widened(array: Array, kind: int) -> npt.NDArray[np.float32]:
    if kind == DataTypes.FP16:
        return dlfloat.to_fp32(dlfloat.from_fp16(array))
    if kind == DataTypes.BFLOAT:
        return dlfloat.widen_bfloat(array)
    return array
