# SPDX-License-Identifier: Apache-2.0
"""Bind single steps to their tensors, so that they skip the emulator's checks."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np
from nnpa_emulator import FUNCTIONS, Guest, Status, Ztensor, blocks, widened
from nnpa_emulator.chains import BINARY
from nnpa_emulator.engines.matmul import prepare_multiply
from nnpa_emulator.instruction import Operation
from nnpa_emulator.ops.convolution import prepare_conv2d
from nnpa_emulator.ops.normalization import prepare_layernorm, prepare_moments
from nnpa_emulator.ops.transform import desc_of_rows
from nnpa_emulator.prepared import (
    prepare,
    prepare_binary,
    prepare_reshape,
    prepare_stickify,
    prepare_unstickify,
)
from nnpa_emulator.ztensor import DataLayouts, DataTypes, TensorDesc

from nnpa_network.program import AcceleratorStep, ArrayInfo, HostStep
from nnpa_network.running.host_operators import CHANNELS_FIRST, CHANNELS_LAST
from nnpa_network.running.plain import Run
from nnpa_network.running.run_buffers import PreparedStep

Bind: TypeAlias = Callable[[Run], PreparedStep]
"""Binds a step to its tensors in a run."""
SATURATING = "transform_ztensor_with_saturation"
_INTO_STICKS = ("transform_ztensor", SATURATING)
_PLAIN_LAYOUTS = (DataLayouts.ZDNN_NHWC, DataLayouts.ZDNN_HWCK)
FP32 = np.dtype(np.float32)
PREPARATIONS: Mapping[str, Callable[..., Callable[[], bool]]] = {
    "conv2d": prepare_conv2d,
    "layernorm": prepare_layernorm,
    "matmul_bcast_op": prepare_multiply,
    "matmul_op": prepare_multiply,
    "matmul_transpose_op": prepare_multiply,
    "moments": prepare_moments,
}
"""What prepares an operation over its tensors, which share no memory, by verb."""


def bind_step(
    guest: Guest,
    step: AcceleratorStep,
    result: ArrayInfo | None,
    clip: HostStep | None,
    *,
    channels_last: bool,
) -> Bind | None:
    """Return the function that binds a step, None if it cannot be prepared.

    `clip` is a step before it that clips as it saturates: its input is read instead, and an
    infinity is reported. `channels_last` keeps images channels last when they leave sticks.
    """
    if step.verb in _INTO_STICKS:
        data: Sequence[int] = step.arguments["data"] if clip is None else clip.inputs
        return partial(_into_sticks, step.arguments["ztensor"], data[0], step.verb == SATURATING)
    if step.verb == "transform_origtensor" and result is not None:
        return partial(_out_of_sticks, step, result, channels_last)
    if step.verb == "reshape_ztensor":
        return partial(_reshaped, step.arguments["src"], step.arguments["dest"])
    if result is not None:
        return None
    operation = FUNCTIONS[step.verb].operation
    return partial(_again, step) if operation is None else _operation(guest, step, operation)


def _never(_run: Run) -> bool:
    """Run no step: its tensor is of a kind that only the emulator's function moves."""
    return False


def _into_sticks(target: int, source: int, saturate: bool, run: Run) -> PreparedStep:
    tensor = run.tensors[target]
    desc = tensor.transformed_desc
    plain = desc.layout in _PLAIN_LAYOUTS and desc.type == DataTypes.ZDNN_DLFLOAT16
    if not plain or _is_large(desc):
        return _never
    buffer, is_image = tensor.sticks, _is_nchw(tensor)
    write = prepare_stickify(desc, buffer, saturate=saturate, nchw=is_image)
    write_turned = prepare_stickify(desc, buffer, saturate=saturate, nchw=False)
    forget = widened.writing(buffer)

    def prepared(run: Run) -> bool:
        array = run.arrays[source]
        forget()
        if array.dtype != FP32:
            return False
        if is_image and not array.flags.c_contiguous:
            tensor.is_transformed = clean = write_turned(array.transpose(CHANNELS_LAST))
        else:
            tensor.is_transformed = clean = write(array)
        return clean

    return prepared


def _out_of_sticks(
    step: AcceleratorStep, result: ArrayInfo, channels_last: bool, run: Run
) -> PreparedStep:
    tensor = run.tensors[step.arguments["ztensor"]]
    target, shape = step.result, result.shape
    desc = desc_of_rows(tensor)
    if not _is_plain(desc) or tensor.pre_transformed_desc.type != DataTypes.FP32:
        return _never
    dtype = None if result.dtype == FP32 else result.dtype
    turned = _is_nchw(tensor) and channels_last
    if turned:
        shape = tuple(shape[axis] for axis in CHANNELS_LAST)
    read = prepare_unstickify(desc, tensor.sticks, nchw=_is_nchw(tensor) and not turned)

    def prepared(run: Run) -> bool:
        line = read()
        if line is None:
            return False
        array = (line if dtype is None else line.astype(dtype)).reshape(shape)
        run.arrays[target] = array.transpose(CHANNELS_FIRST) if turned else array
        run.numeric.add(target)
        return True

    return prepared


def _reshaped(source: int, target: int, run: Run) -> PreparedStep:
    src, dest = run.tensors[source], run.tensors[target]
    layouts = (tensor.pre_transformed_desc.layout for tensor in (src, dest))
    descs = src.transformed_desc, dest.transformed_desc
    if DataLayouts.ZDNN_4DS in layouts or not all(map(_is_plain, descs)):
        return _never
    reshape = prepare_reshape(src, dest, nchw=(_is_nchw(src), _is_nchw(dest)))
    forget = widened.writing(dest.sticks)

    def prepared(_run: Run) -> bool:
        forget()
        dest.is_transformed = clean = reshape()
        return clean

    return prepared


def _is_plain(desc: TensorDesc) -> bool:
    """Tell whether a tensor is a small one of DLFLOAT16."""
    plain = desc.type == DataTypes.ZDNN_DLFLOAT16 and desc.layout == DataLayouts.ZDNN_NHWC
    return plain and not _is_large(desc)


def _is_large(desc: TensorDesc) -> bool:
    """Tell whether the emulator's functions cut a tensor, so that a run can end between blocks."""
    return prod(desc.dims) > blocks.ELEMENTS


def _is_nchw(tensor: Ztensor) -> bool:
    return tensor.pre_transformed_desc.layout == DataLayouts.ZDNN_NCHW


def _again(step: AcceleratorStep, run: Run) -> PreparedStep:
    """Bind a function that consists of several operations."""
    names, guest = FUNCTIONS[step.verb].tensors, run.loaded.guest
    arguments = dict(step.arguments) | {name: run.tensors[step.arguments[name]] for name in names}
    call = prepare(guest, step.verb, arguments)
    if call is None:
        return _never

    def prepared(_run: Run) -> bool:
        outcome = call(guest, arguments)
        return outcome is not None and outcome.status == Status.ZDNN_OK

    return prepared


def fields(guest: Guest, step: AcceleratorStep) -> dict[str, Any]:
    """Return the function specific parameters of an operation's call, as its block has them."""
    operation = FUNCTIONS[step.verb].operation
    rules = {} if operation is None else operation.fields
    return {name: rule(guest, step.arguments.get(name)) for name, rule in rules.items()}


def _operation(guest: Guest, step: AcceleratorStep, operation: Operation) -> Bind:
    """Bind an operation of the accelerator."""
    names = {name: step.arguments[name] for name in operation.tensors}
    written = FUNCTIONS[step.verb].written
    arguments = {name: step.arguments[name] for name in step.arguments.keys() - names.keys()}
    arguments |= fields(guest, step)
    if operation.takes_guest:
        arguments["guest"] = guest

    def repeat(**operands: Any) -> Callable[[], bool]:
        return partial(operation.compute, **operands)

    distinct = len({*names.values()}) == len(names)
    prepare = PREPARATIONS.get(step.verb, repeat) if distinct else repeat

    def bind(run: Run) -> PreparedStep:
        tensors = {name: run.tensors[number] for name, number in names.items()}
        compute = _binary(step.verb, tensors) or prepare(**tensors, **arguments)
        outputs = [(tensors[name], name in operation.marks) for name in written]
        forget = widened.writing(*(tensor.sticks for tensor, _ in outputs))

        def prepared(_run: Run) -> bool:
            forget()
            if compute():
                return False
            for tensor, marked in outputs:
                tensor.is_transformed = marked
            return True

        return prepared

    return bind


def _binary(verb: str, tensors: Mapping[str, Ztensor]) -> Callable[[], bool] | None:
    """Return the kernel of an operation on two tensors, None for any other operation."""
    number = BINARY.get(verb)
    if number is None:
        return None
    a, b, out = tensors["input_a"], tensors["input_b"], tensors["output"]
    if _is_large(out.transformed_desc):
        return None
    return prepare_binary(number, a.sticks, b.sticks, out.sticks, out.transformed_desc)
