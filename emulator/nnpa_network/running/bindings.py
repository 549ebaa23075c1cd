# SPDX-License-Identifier: Apache-2.0
"""Bind single steps to their tensors: as rows of a table, or as a call without checks."""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np
from nnpa_emulator import FUNCTIONS, Guest, Status, Ztensor, widened
from nnpa_emulator.instruction import Operation
from nnpa_emulator.operation_rows import is_large, rows_of
from nnpa_emulator.ops.normalization import layer_normalization_rows
from nnpa_emulator.ops.transform import desc_of_rows
from nnpa_emulator.prepared import prepare, reshape_rows, stickify_rows, unstickify_rows
from nnpa_emulator.stick import flat
from nnpa_emulator.table import Row
from nnpa_emulator.ztensor import DataLayouts, DataTypes, TensorDesc

from nnpa_network.program import ABSENT, AcceleratorStep, Array, ArrayInfo, HostStep
from nnpa_network.running.host_operators import CHANNELS_FIRST, CHANNELS_LAST
from nnpa_network.running.plain import Run
from nnpa_network.running.rows import PreparedStep, Rows

Bind: TypeAlias = Callable[[Run], PreparedStep]
"""Binds a step to its tensors in a run."""
SATURATING = "transform_ztensor_with_saturation"
FP32 = np.dtype(np.float32)
_INTO_STICKS = ("transform_ztensor", SATURATING)
_PLAIN_LAYOUTS = (DataLayouts.ZDNN_NHWC, DataLayouts.ZDNN_HWCK)


def _writing(output: Ztensor, rows: Sequence[Row], reads: int = ABSENT) -> Rows:
    """Return a step as rows that write a tensor."""
    return Rows(rows, reads, output=output, forget=widened.writing(output.sticks))


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
    desc, is_image = tensor.transformed_desc, _is_nchw(tensor)
    plain = desc.layout in _PLAIN_LAYOUTS and desc.type == DataTypes.ZDNN_DLFLOAT16
    if not plain or is_large(desc):
        return _never
    turned = is_image and not run.arrays[source].flags.c_contiguous

    def words(run: Run) -> Array | None:
        """Return the elements as they lie in memory; None if their type or order is another."""
        array = run.arrays[source]
        if array.dtype != FP32 or (is_image and array.flags.c_contiguous == turned):
            return None
        line = flat(array.transpose(CHANNELS_LAST) if turned else array, desc.dims).view(np.uint32)
        line = line if line.flags.aligned else line.copy()
        line.setflags(write=False)  # one kind of kernel for arrays of messages and all others
        return line

    nchw = is_image and not turned
    rows = stickify_rows(desc, tensor.sticks, words, saturate=saturate, nchw=nchw)
    return _writing(tensor, rows, source)


def _out_of_sticks(
    step: AcceleratorStep, result: ArrayInfo, channels_last: bool, run: Run
) -> PreparedStep:
    tensor = run.tensors[step.arguments["ztensor"]]
    target, shape = step.result, result.shape
    desc = desc_of_rows(tensor)
    if not _is_plain(desc) or tensor.pre_transformed_desc.type != DataTypes.FP32:
        return _never
    count, turned = prod(desc.dims), _is_nchw(tensor) and channels_last
    if turned:
        shape = tuple(shape[axis] for axis in CHANNELS_LAST)

    def words(run: Run) -> Array:
        """Return memory for the elements, which becomes an array of the run."""
        line = np.empty(count, FP32)
        array = line.reshape(shape)
        run.arrays[target] = array.transpose(CHANNELS_FIRST) if turned else array
        run.numeric.add(target)
        return line.view(np.uint32)

    nchw = _is_nchw(tensor) and not turned
    rows = Rows(unstickify_rows(desc, tensor.sticks, words, nchw=nchw), writes=target)
    if result.dtype == FP32:
        return rows

    def converted(run: Run) -> bool:
        if not rows(run):
            return False
        run.arrays[target] = run.arrays[target].astype(result.dtype)
        return True

    return converted


def _reshaped(source: int, target: int, run: Run) -> PreparedStep:
    src, dest = run.tensors[source], run.tensors[target]
    if not _are_plain(src, dest):
        return _never
    return _writing(dest, reshape_rows(src, dest, nchw=(_is_nchw(src), _is_nchw(dest))))


def _is_plain(desc: TensorDesc) -> bool:
    """Tell whether a tensor is a small one of DLFLOAT16."""
    plain = desc.type == DataTypes.ZDNN_DLFLOAT16 and desc.layout == DataLayouts.ZDNN_NHWC
    return plain and not is_large(desc)


def _are_plain(*tensors: Ztensor) -> bool:
    """Tell whether tensors are plain ones whose elements are in row-major order."""
    layouts = [tensor.pre_transformed_desc.layout for tensor in tensors]
    plain = all(_is_plain(tensor.transformed_desc) for tensor in tensors)
    return plain and DataLayouts.ZDNN_4DS not in layouts


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


def _fields(guest: Guest, step: AcceleratorStep) -> dict[str, Any]:
    """Return the function specific parameters of an operation's call, as its block has them."""
    operation = FUNCTIONS[step.verb].operation
    rules = {} if operation is None else operation.fields
    return {name: rule(guest, step.arguments.get(name)) for name, rule in rules.items()}


def _operation(guest: Guest, step: AcceleratorStep, operation: Operation) -> Bind:
    """Bind an operation of the accelerator."""
    names = {name: step.arguments[name] for name in operation.tensors}
    arguments = {name: step.arguments[name] for name in step.arguments.keys() - names.keys()}
    arguments |= _fields(guest, step)
    if operation.takes_guest:
        arguments["guest"] = guest
    distinct = len({*names.values()}) == len(names)

    def bind(run: Run) -> PreparedStep:
        tensors = {name: run.tensors[number] for name, number in names.items()}
        constants = [name for name, number in names.items() if number in run.loaded.tensors]
        rows = rows_of(step.verb, tensors, constants, arguments) if distinct else None
        if rows is not None:
            return _writing(tensors["output"], rows)
        outputs = [
            (tensors[name], name in operation.marks) for name in FUNCTIONS[step.verb].written
        ]
        forget = widened.writing(*(tensor.sticks for tensor, _ in outputs))

        def prepared(_run: Run) -> bool:
            forget()
            if operation.compute(**tensors, **arguments):
                return False
            for tensor, marked in outputs:
                tensor.is_transformed = marked
            return True

        return prepared

    return bind


def bind_layer_normalization(
    guest: Guest, layernorm: AcceleratorStep, source: int, output: int
) -> Bind:
    """Bind moments and layernorm of the vectors of a tensor, between two reshapes."""
    scalars = _fields(guest, layernorm)

    def bind(run: Run) -> PreparedStep:
        tensors = run.tensors[source], run.tensors[output]
        if not _are_plain(*tensors):
            return _never
        return _writing(tensors[1], layer_normalization_rows(*tensors, **scalars))

    return bind
