# SPDX-License-Identifier: Apache-2.0
"""Steps that have run before, without asking again what cannot be answered otherwise.

A step's descriptors and parameters never change, so a call that the pipeline let through once is
let through always; only values differ. Here a step goes straight to the emulator's arithmetic, and
where a value does not come out clean it goes back to the pipeline, which tells status and
violation. A step is bound to the tensors of a frame, and taken as often as the frame serves.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import onnx
from nnpa_emulator import FUNCTIONS, Guest, Ztensor, prepared, widened
from nnpa_emulator.dlfloat import MAX_VALUE
from nnpa_emulator.instruction import Operation
from nnpa_emulator.kernels import elementwise
from nnpa_emulator.ztensor import DataLayouts, DataTypes

from nnpa_network.program import AcceleratorStep, Array, ArrayInfo, HostStep

Values: TypeAlias = dict[int, Any]
"""What is live during a run: arrays and ztensors by id."""
Take: TypeAlias = Callable[[Values], bool]
"""Takes a step over live values and the tensors it is bound to; False: nothing has been done."""
Bind: TypeAlias = Callable[[Values], Take]
"""Binds a step to its tensors among live values, new ones allocated."""
_PLAIN = (DataLayouts.ZDNN_NHWC, DataLayouts.ZDNN_HWCK)
_INTO_STICKS = {"transform_ztensor": False, "transform_ztensor_with_saturation": True}
_FP32 = np.dtype(np.float32)
COMBINING: Mapping[str, int] = {
    "add": elementwise.ADD,
    "sub": elementwise.SUB,
    "mul": elementwise.MUL,
    "div": elementwise.DIV,
    "min": elementwise.MIN,
    "max": elementwise.MAX,
}
"""Operations on two tensors, element by element, by verb: the kernel's numbers."""


def bind(
    guest: Guest, step: AcceleratorStep, result: ArrayInfo | None, limits: HostStep | None = None
) -> Bind | None:
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


def _never(_values: Values) -> bool:
    """Take no step: its tensor is of a kind that only the pipeline moves."""
    return False


def _into_sticks(target: int, source: int, *, saturate: bool) -> Bind:
    def to(values: Values) -> Take:
        tensor: Ztensor = values[target]
        desc, nchw = tensor.transformed_desc, _is_nchw(tensor)
        if desc.layout not in _PLAIN or desc.type != DataTypes.ZDNN_DLFLOAT16:
            return _never
        buffer = tensor.sticks
        write = prepared.prepare_stickify(desc, buffer, saturate=saturate, nchw=nchw)

        def take(values: Values) -> bool:
            array = values[source]
            widened.written(buffer)
            if array.dtype != _FP32:
                return False
            tensor.is_transformed = clean = write(array)
            return clean

        return take

    return to


def _out_of_sticks(step: AcceleratorStep, result: ArrayInfo) -> Bind:
    """Bind what reads sticks; what it leaves in `step.result` has no NaN."""
    source, target, shape = step.arguments["ztensor"], step.result, result.shape
    dtype = None if result.dtype == _FP32 else result.dtype

    def of(values: Values) -> Take:
        tensor: Ztensor = values[source]
        desc, pre = tensor.transformed_desc, tensor.pre_transformed_desc
        plain = desc.type == DataTypes.ZDNN_DLFLOAT16 and desc.layout == DataLayouts.ZDNN_NHWC
        if not plain or pre.type != DataTypes.FP32 or pre.layout == DataLayouts.ZDNN_4DS:
            return _never
        read = prepared.prepare_unstickify(desc, tensor.sticks, nchw=_is_nchw(tensor))

        def take(values: Values) -> bool:
            line = read()
            if line is None:
                return False
            values[target] = (line if dtype is None else line.astype(dtype)).reshape(shape)
            return True

        return take

    return of


def _is_nchw(tensor: Ztensor) -> bool:
    return tensor.pre_transformed_desc.layout == DataLayouts.ZDNN_NCHW


def _compute(guest: Guest, step: AcceleratorStep, operation: Operation) -> Bind:
    names = {name: step.arguments[name] for name in operation.tensors}
    written = FUNCTIONS[step.verb].written
    arguments: dict[str, Any] = {
        name: one for name, one in step.arguments.items() if name not in names
    }
    fields: Mapping[str, Any] = operation.fields
    arguments |= {name: rule(guest, arguments.get(name)) for name, rule in fields.items()}
    if operation.takes_guest:
        arguments["guest"] = guest

    def to(values: Values) -> Take:
        tensors: dict[str, Ztensor] = {name: values[one] for name, one in names.items()}
        compute = _combining(step.verb, **tensors) or partial(
            operation.compute, **tensors, **arguments
        )
        outputs = [(tensors[name], name in operation.marks) for name in written]

        def take(_values: Values) -> bool:
            for tensor, _ in outputs:
                widened.written(tensor.buffer)
            if compute():
                return False
            for tensor, marked in outputs:
                tensor.is_transformed = marked
            return True

        return take

    return to


def _combining(verb: str, **tensors: Ztensor) -> Callable[[], bool] | None:
    """Return what computes one of `COMBINING` over its tensors, None for any other operation."""
    number = COMBINING.get(verb)
    if number is None:
        return None
    a, b, out = tensors["input_a"], tensors["input_b"], tensors["output"]
    return prepared.prepare_binary(number, a.sticks, b.sticks, out.sticks, out.transformed_desc)


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
