# SPDX-License-Identifier: Apache-2.0
"""Steps that have run before, without asking again what cannot be answered otherwise.

A step's descriptors and parameters never change, so a call that the pipeline let through once is
let through always; only values differ. Here a step goes straight to the emulator's arithmetic, and
where a value does not come out clean it goes back to the pipeline, which tells status and
violation.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from nnpa_emulator import FUNCTIONS, Guest, Ztensor, stick, widened
from nnpa_emulator.dlfloat import MAX_VALUE, Flags
from nnpa_emulator.instruction import Operation
from nnpa_emulator.ztensor import DataLayouts, DataTypes

from nnpa_network.program import AcceleratorStep, Array, ArrayInfo, HostStep

Values: TypeAlias = dict[int, Any]
Take: TypeAlias = Callable[[Values], bool]
"""Takes a step over live values, its new tensors allocated; False: nothing has been done."""
_BAD = Flags.INVALID | Flags.OVERFLOW
_PLAIN = (DataLayouts.ZDNN_NHWC, DataLayouts.ZDNN_HWCK)
_INTO_STICKS = {"transform_ztensor": False, "transform_ztensor_with_saturation": True}


def bind(
    guest: Guest, step: AcceleratorStep, result: ArrayInfo | None, limits: HostStep | None = None
) -> Take | None:
    """Return the short way of a step, None where it has none.

    `limits` is a step that `saturates`, whose result only this step reads: its input is read
    instead, and infinities do not come out clean.
    """
    if step.verb in _INTO_STICKS:
        data = step.arguments["data"] if limits is None else limits.inputs
        return _into_sticks(step.arguments["ztensor"], data[0], saturate=_INTO_STICKS[step.verb])
    if step.verb == "transform_origtensor" and result is not None:
        return _out_of_sticks(step, result)
    operation = FUNCTIONS[step.verb].operation
    return None if operation is None or result is not None else _compute(guest, step, operation)


def _into_sticks(target: int, source: int, *, saturate: bool) -> Take:
    def take(values: Values) -> bool:
        tensor: Ztensor = values[target]
        desc, pre = tensor.transformed_desc, tensor.pre_transformed_desc
        array = values[source]
        widened.written(tensor.buffer)
        if array.dtype != np.float32 or desc.layout not in _PLAIN:
            return False
        nchw = pre.layout == DataLayouts.ZDNN_NCHW
        met = stick.stickify(array, desc, tensor.sticks, saturate=saturate, nchw=nchw, fresh=True)
        tensor.is_transformed = not (met.any_ninf or met.flags & _BAD)
        return tensor.is_transformed

    return take


def _out_of_sticks(step: AcceleratorStep, result: ArrayInfo) -> Take:
    source = step.arguments["ztensor"]

    def take(values: Values) -> bool:
        tensor: Ztensor = values[source]
        desc, pre = tensor.transformed_desc, tensor.pre_transformed_desc
        plain = desc.type == DataTypes.ZDNN_DLFLOAT16 and desc.layout == DataLayouts.ZDNN_NHWC
        if not plain or pre.type != DataTypes.FP32 or pre.layout == DataLayouts.ZDNN_4DS:
            return False
        nchw = pre.layout == DataLayouts.ZDNN_NCHW
        array, met = stick.unstickify(tensor.sticks, desc, pre.type, nchw=nchw)
        if met.any_ninf:
            return False
        values[step.result] = array.astype(result.dtype, copy=False).reshape(result.shape)
        return True

    return take


def _compute(guest: Guest, step: AcceleratorStep, operation: Operation) -> Take:
    names = {name: step.arguments[name] for name in operation.tensors}
    written = FUNCTIONS[step.verb].written
    arguments: dict[str, Any] = {
        name: one for name, one in step.arguments.items() if name not in names
    }
    fields: Mapping[str, Any] = operation.fields
    arguments |= {name: rule(guest, arguments.get(name)) for name, rule in fields.items()}
    if operation.takes_guest:
        arguments["guest"] = guest

    def take(values: Values) -> bool:
        tensors: dict[str, Ztensor] = {name: values[one] for name, one in names.items()}
        for name in written:
            widened.written(tensors[name].buffer)
        if operation.compute(**tensors, **arguments):
            return False
        for name in operation.marks:
            tensors[name].is_transformed = True
        return True

    return take


def limited(
    op_type: str, inputs: Sequence[int], constants: Mapping[int, Any], dtypes: Sequence[Any]
) -> Callable[[Sequence[Array]], list[Array]] | None:
    """Return Clip of FP32 between two finite constants other than 0, None for any other node.

    The host's own takes longer to be asked than the values take; both give the same bits, but for
    the sign of zeros at a bound that is zero.
    """
    if op_type != "Clip" or len(inputs) != 3 or any(dtype != np.float32 for dtype in dtypes):
        return None
    ends = _ends(inputs, constants)
    if ends is None:
        return None
    least, most = ends

    def kernel(arrays: Sequence[Array]) -> list[Array]:
        return [np.minimum(np.maximum(arrays[0], least), most)]

    return kernel


def saturates(step: HostStep, constants: Mapping[int, Any], dtypes: Sequence[Any]) -> bool:
    """Tell whether a step is Clip of FP32 to DLFLOAT16's range, as a saturating transform's."""
    if len(step.inputs) != 3 or any(dtype != np.float32 for dtype in dtypes):
        return False
    ends = _ends(step.inputs, constants)
    wide = ends is not None and ends[0] == -MAX_VALUE and ends[1] == MAX_VALUE
    return wide and onnx.NodeProto.FromString(step.onnx).op_type == "Clip"


def _ends(
    inputs: Sequence[int], constants: Mapping[int, Any]
) -> tuple[np.float32, np.float32] | None:
    """Return the constants that a Clip has for its ends, None unless finite and other than 0."""
    ends = [np.ravel(constants.get(number, 0)) for number in inputs[1:]]
    if any(one.size != 1 or one[0] == 0 or not np.isfinite(one[0]) for one in ends):
        return None
    least, most = (np.float32(one[0]) for one in ends)
    return least, most
