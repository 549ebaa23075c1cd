# SPDX-License-Identifier: Apache-2.0
"""NNPA-TRANSFORM by itself, function 240: dense FP32 into sticks, and sticks into dense FP32.

The dense operand is in 4DGENERIC: elements in row-major order, without padding, on any address.
Fidelity: as `transform` and `transform_quantized`. Not public, and our reading: response code 0010
or 0011 for an operand of another format or type, and a data exception for clips out of order.
Source: nnpa.h of zDNN 1.2.0; zDNN API Reference 1.2.0, "Data Transformation".
"""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from nnpa_emulator import dlfloat, stick
from nnpa_emulator.checks import require_dims
from nnpa_emulator.instruction import OperandRule, response
from nnpa_emulator.machine import FORMAT_1, FunctionCode
from nnpa_emulator.pipeline import define
from nnpa_emulator.status import Refused, Status
from nnpa_emulator.ztensor import DataFormats, DataTypes, Ztensor

STICK_DLFLOAT, STICK_INT8, UNSTICK_DLFLOAT = 2, 6, 129
_DENSE: OperandRule = MappingProxyType(
    {DataFormats.ZDNN_FORMAT_4DGENERIC: frozenset((DataTypes.ZDNN_BINARY_FP32,))}
)
_STICKS = frozenset((DataTypes.ZDNN_DLFLOAT16, DataTypes.ZDNN_BINARY_INT8))
_EITHER: Mapping[int, frozenset[int]] = MappingProxyType(
    {**_DENSE, DataFormats.ZDNN_FORMAT_4DFEATURE: _STICKS}
)
_FORMS = {
    STICK_DLFLOAT: ("dense", DataTypes.ZDNN_DLFLOAT16),
    STICK_INT8: ("dense", DataTypes.ZDNN_BINARY_INT8),
    UNSTICK_DLFLOAT: (DataTypes.ZDNN_DLFLOAT16, "dense"),
}


def _form(tensor: Ztensor) -> object:
    desc = tensor.transformed_desc
    return "dense" if desc.format == DataFormats.ZDNN_FORMAT_4DGENERIC else desc.type


def _respond(
    operation_code: int, input: Ztensor, scale: int, offset: int, output: Ztensor, **_clips: int
) -> None:
    """Answer F000 (c1), 0011 (c2), F001 (c3)."""
    if operation_code not in _FORMS:
        raise response(0xF000, "operation_code", operation_code, "2, 6 or 129", "c1")
    if (_form(input), _form(output)) != _FORMS[operation_code]:
        limit = f"those of operation {operation_code}"
        raise response(0x0011, "types and formats", "of another operation", limit, "c2")
    if operation_code == STICK_INT8:
        limit = "a number in DLFLOAT16"
        if scale & dlfloat.MAGNITUDE in (dlfloat.ZERO, dlfloat.NINF):
            raise response(0xF001, "scale", f"code {scale:04X}", f"{limit}, not 0", "c3")
        if offset & dlfloat.MAGNITUDE == dlfloat.NINF:
            raise response(0xF001, "offset", f"code {offset:04X}", limit, "c3")


def _relate(
    operation_code: int, input: Ztensor, clip_min: int, clip_max: int, output: Ztensor, **_rest: int
) -> None:
    """Make the checks whose violation ends the program: c4, c5."""
    require_dims("input", input.transformed_desc, {"output": output}, "c4")
    if operation_code == STICK_INT8 and clip_min >= clip_max:
        status, limit = Status.ZDNN_INVALID_CLIPPING_VALUE, f"less than clip_max {clip_max}"
        raise Refused(status, "clip_min", clip_min, limit, "c5")


def _compute(
    input: Ztensor,
    saturation: int,
    operation_code: int,
    scale: int,
    offset: int,
    clip_min: int,
    clip_max: int,
    output: Ztensor,
) -> bool:
    """Convert; FP32 values lie dense in the memory of their tensor."""
    if operation_code == UNSTICK_DLFLOAT:
        _, any_ninf = stick.read_fp32(input.sticks, input.transformed_desc, output.sticks)
        return any_ninf
    values = input.sticks.view(np.float32)
    desc = output.transformed_desc
    if operation_code == STICK_DLFLOAT:
        return stick.stickify(values, desc, output.sticks, saturate=bool(saturation)).any_ninf
    rec_scale, shift = dlfloat.to_fp32(np.array([scale, offset], np.uint16))
    return stick.quantize(
        values,
        desc,
        output.sticks,
        rec_scale=float(rec_scale),
        offset=float(shift),
        clip_min=clip_min,
        clip_max=clip_max,
    ).any_ninf


TRANSFORM = define(
    _compute,
    FunctionCode.NNPA_TRANSFORM,
    FORMAT_1,
    verify=_relate,
    relations=_relate,
    responses=_respond,
    operands={"input": _EITHER, "output": _EITHER},
)
