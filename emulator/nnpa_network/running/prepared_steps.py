# SPDX-License-Identifier: Apache-2.0
"""Shortcut prepared-steps: a step that ran clean goes straight to the emulator's arithmetic.

The descriptors and parameters of a step never change, so a call that passed its checks once passes
them always; only values differ. A prepared step skips the checks, and where a value does not come
out clean the step is run the plain way, which gives status and violation. A step is bound to the
tensors of a run, and used as often as these buffers serve.

A Clip of FP32 to DLFLOAT16's range before a saturating transform is prepared together with it; so
are element-wise calls in a row, which then read and write sticks once: see `chains`.
Images that are read by operators of our own and by transforms alone leave the sticks, and enter
them, with their channels last in memory: see `host_operators`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np
import onnx
from nnpa_emulator import FUNCTIONS, Guest, Ztensor, blocks, widened
from nnpa_emulator.chains import BINARY, VERBS, Link, prepare_chain
from nnpa_emulator.dlfloat import MAX_VALUE, to_fp32
from nnpa_emulator.instruction import Operation
from nnpa_emulator.interruption import go_on
from nnpa_emulator.machine import Machine, QueryResult
from nnpa_emulator.ops.convolution import prepare_conv2d
from nnpa_emulator.ops.normalization import prepare_layernorm, prepare_moments
from nnpa_emulator.prepared import (
    prepare_binary,
    prepare_reshape,
    prepare_stickify,
    prepare_unstickify,
)
from nnpa_emulator.ztensor import DataLayouts, DataTypes, TensorDesc

from nnpa_network.program import AcceleratorStep, ArrayInfo, HostStep, writes
from nnpa_network.running.chains import Chain
from nnpa_network.running.host_operators import CHANNELS_FIRST, CHANNELS_LAST
from nnpa_network.running.loading import LoadedProgram
from nnpa_network.running.plain import Run, RunProgram, run_step
from nnpa_network.running.run_buffers import BufferedRun, Buffers, PreparedStep

Bind: TypeAlias = Callable[[Run], PreparedStep]
"""Binds a step to its tensors in a run."""
SATURATING = "transform_ztensor_with_saturation"
_INTO_STICKS = ("transform_ztensor", SATURATING)
_PLAIN_LAYOUTS = (DataLayouts.ZDNN_NHWC, DataLayouts.ZDNN_HWCK)
_FP32 = np.dtype(np.float32)
PREPARATIONS: Mapping[str, Callable[..., Callable[[], bool]]] = {
    "conv2d": prepare_conv2d,
    "layernorm": prepare_layernorm,
    "moments": prepare_moments,
}
"""What prepares an operation over its tensors, which share no memory, by verb."""


@dataclass(slots=True)
class _Stage:
    """Steps that are prepared as one: a single one, a Clip and its transform, or a chain.

    `accepted` is the guest's generation in which all of them last ran clean the plain way.
    """

    indices: tuple[int, ...]
    step: AcceleratorStep | None
    bind: Bind | None
    written: tuple[int, ...]
    dead: tuple[int, ...]
    accepted: int = 0


def prepare_steps(loaded: LoadedProgram, run_program: RunProgram) -> RunProgram:
    """Wrap what runs a program: steps that ran clean before skip their checks."""
    return PreparedSteps(loaded, run_program).run_program


class PreparedSteps:
    """The stages of a program."""

    def __init__(self, loaded: LoadedProgram, plain: RunProgram) -> None:
        self._plain, self._guest = plain, loaded.guest
        self._stages = _stages(loaded)
        self._generation = 1
        self._seen: tuple[Machine, QueryResult] = (loaded.guest.machine, loaded.guest.cached)

    def run_program(self, run: Run) -> None:
        """Run every step in order, prepared ones straight over the tensors they are bound to."""
        generation = self._current_generation()
        if not generation:
            self._plain(run)
            return
        buffers = run.buffers if isinstance(run, BufferedRun) else Buffers()
        if buffers.generation != generation:
            buffers.generation, buffers.prepared = generation, [None] * len(self._stages)
        run.tensors.update(buffers.tensors)
        for index, stage in enumerate(self._stages):
            go_on()
            prepared = buffers.prepared[index]
            if prepared is None or not prepared(run):
                may_bind = prepared is None
                buffers.prepared[index] = _run_stage(run, stage, generation, may_bind)
            run.release(stage.dead)

    def _current_generation(self) -> int:
        """Return a number that changes with machine and query result; 0 where calls do more."""
        guest = self._guest
        machine, cached = self._seen
        if guest.machine is not machine or guest.cached is not cached:
            self._generation, self._seen = self._generation + 1, (guest.machine, guest.cached)
        return self._generation if guest.only_computes else 0


def _run_stage(run: Run, stage: _Stage, generation: int, may_bind: bool) -> PreparedStep | None:
    """Run a stage bound anew, else the plain way; return what was bound if it ran."""
    if may_bind and stage.accepted == generation and stage.bind and stage.step:
        for number in stage.written:
            run.tensors[number] = run.allocate(stage.step, number)
        prepared = stage.bind(run)
        if prepared(run):
            return prepared
    warnings = len(run.violations)
    for index in stage.indices:
        run_step(run, index)
    if len(run.violations) == warnings:
        stage.accepted = generation
    return None


def _stages(loaded: LoadedProgram) -> list[_Stage]:
    """Return the steps of a program as stages; a Clip joins the transform that saturates alike."""
    stages: list[_Stage] = []
    clips = {
        index
        for index, step in enumerate(loaded.program.steps)
        if isinstance(step, HostStep) and _is_part_of_next(loaded, index, step)
    }
    elsewhere = _read_by_others(loaded, clips)
    chains = {chain.first: chain for chain in loaded.chains}
    chained = {index for chain in loaded.chains for index in range(chain.first, chain.last + 1)}
    clip: tuple[int, HostStep] | None = None
    for index, step in enumerate(loaded.program.steps):
        if index in chained:
            if index in chains:
                stages.append(_chain_stage(loaded, chains[index]))
            continue
        if isinstance(step, HostStep) and index in clips:
            clip = (index, step)
            continue
        first, clip_step = clip or (index, None)
        indices = tuple(range(first, index + 1))
        dead = tuple(number for each in indices for number in loaded.last_used[each])
        if isinstance(step, HostStep):
            stages.append(_Stage(indices, None, None, (), dead))
        else:
            written = tuple(set(writes(step)) & loaded.templates.keys())
            result = loaded.program.arrays.get(step.result)
            last = step.result not in elsewhere
            bind = _bind(loaded.guest, step, result, clip_step, channels_last=last)
            stages.append(_Stage(indices, step, bind, written, dead))
        clip = None
    return stages


def _chain_stage(loaded: LoadedProgram, chain: Chain) -> _Stage:
    """Return the stage of a chain, whose other results are not written."""
    indices = tuple(range(chain.first, chain.last + 1))
    dead = tuple(number for each in indices for number in loaded.last_used[each])
    steps = [step for step in loaded.program.steps[chain.first : chain.last + 1]
             if isinstance(step, AcceleratorStep)]  # fmt: skip
    links = [_link(loaded, step) for step in steps]
    bind = partial(_chain, links, chain.outputs, loaded.tensors.keys())
    return _Stage(indices, steps[-1], bind, chain.outputs, dead)


def _link(loaded: LoadedProgram, step: AcceleratorStep) -> Link:
    inputs = tuple(step.arguments[name] for name in VERBS[step.verb])
    link = Link(step.verb, inputs, step.arguments["output"])
    if step.verb == "batchnorm":
        factors, added = (loaded.tensors[step.arguments[name]] for name in ("input_b", "input_c"))
        return replace(link, factors=factors, added=added)
    if step.verb == "relu" and (clip := _fields(loaded.guest, step)["clipping_value"]):
        return replace(link, limit=float(to_fp32(clip)))
    return link


def _fields(guest: Guest, step: AcceleratorStep) -> dict[str, Any]:
    """Return the function specific parameters of an operation's call, as its block has them."""
    operation = FUNCTIONS[step.verb].operation
    rules = {} if operation is None else operation.fields
    return {name: rule(guest, step.arguments.get(name)) for name, rule in rules.items()}


def _chain(
    links: Sequence[Link], outputs: Sequence[int], constants: Collection[int], run: Run
) -> PreparedStep:
    compute = prepare_chain(links, run.tensors, outputs, constants)
    written = [run.tensors[number] for number in outputs]
    forget = widened.writing(*(tensor.sticks for tensor in written))

    def prepared(_run: Run) -> bool:
        forget()
        if not compute():
            return False
        for tensor in written:
            tensor.is_transformed = True
        return True

    return prepared


def _read_by_others(loaded: LoadedProgram, clips: Collection[int]) -> set[int]:
    """Return arrays that are not read by operators of our own and transforms alone."""
    numbers = set(loaded.program.output_ids)
    for index, step in enumerate(loaded.program.steps):
        if isinstance(step, HostStep) and index not in loaded.own and index not in clips:
            numbers.update(step.inputs)
    return numbers


def _is_part_of_next(loaded: LoadedProgram, index: int, step: HostStep) -> bool:
    """Return whether a step clips what nothing but the next step, a saturating transform, reads."""
    steps = loaded.program.steps
    following = steps[index + 1] if index + 1 < len(steps) else None
    return (
        isinstance(following, AcceleratorStep)
        and following.node == step.node
        and following.verb == SATURATING
        and following.arguments["data"] == step.outputs
        and step.outputs[0] in loaded.last_used[index + 1]
        and _clips_to_range(loaded, step)
    )


def _clips_to_range(loaded: LoadedProgram, step: HostStep) -> bool:
    """Return whether a step is Clip of FP32 to DLFLOAT16's range."""
    if len(step.inputs) != 3 or any(dtype != _FP32 for dtype in loaded.dtypes(step.inputs)):
        return False
    ends = [np.ravel(loaded.arrays.get(number, 0)) for number in step.inputs[1:]]
    clips = [end.tolist() for end in ends] == [[-MAX_VALUE], [MAX_VALUE]]
    return clips and onnx.NodeProto.FromString(step.onnx).op_type == "Clip"


def _bind(
    guest: Guest,
    step: AcceleratorStep,
    result: ArrayInfo | None,
    clip: HostStep | None,
    *,
    channels_last: bool,
) -> Bind | None:
    """Return what binds a step, None where it cannot be prepared.

    `clip` is a step before it that clips as it saturates: its input is read instead, and
    infinities do not come out clean. `channels_last` lets images lie so that come out of sticks.
    """
    if step.verb in _INTO_STICKS:
        data: Sequence[int] = step.arguments["data"] if clip is None else clip.inputs
        return partial(_into_sticks, step.arguments["ztensor"], data[0], step.verb == SATURATING)
    if step.verb == "transform_origtensor" and result is not None:
        return partial(_out_of_sticks, step, result, channels_last)
    if step.verb == "reshape_ztensor":
        return partial(_reshaped, step.arguments["src"], step.arguments["dest"])
    operation = FUNCTIONS[step.verb].operation
    return None if operation is None or result is not None else _operation(guest, step, operation)


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
        if array.dtype != _FP32:
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
    desc = tensor.transformed_desc
    if not _is_plain(tensor) or tensor.pre_transformed_desc.type != DataTypes.FP32:
        return _never
    dtype = None if result.dtype == _FP32 else result.dtype
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
    if not all(map(_is_plain, (src, dest))) or src is dest:
        return _never
    reshape = prepare_reshape(src, dest, nchw=(_is_nchw(src), _is_nchw(dest)))
    forget = widened.writing(dest.sticks)

    def prepared(_run: Run) -> bool:
        forget()
        dest.is_transformed = clean = reshape()
        return clean

    return prepared


def _is_plain(tensor: Ztensor) -> bool:
    """Tell whether a tensor is a small one of DLFLOAT16, of which FP32 is made as it lies."""
    desc, pre = tensor.transformed_desc, tensor.pre_transformed_desc
    plain = desc.type == DataTypes.ZDNN_DLFLOAT16 and desc.layout == DataLayouts.ZDNN_NHWC
    return plain and pre.layout != DataLayouts.ZDNN_4DS and not _is_large(desc)


def _is_large(desc: TensorDesc) -> bool:
    """Tell whether the emulator's functions cut a tensor, so that a run can end between blocks."""
    return prod(desc.dims) > blocks.ELEMENTS


def _is_nchw(tensor: Ztensor) -> bool:
    return tensor.pre_transformed_desc.layout == DataLayouts.ZDNN_NCHW


def _operation(guest: Guest, step: AcceleratorStep, operation: Operation) -> Bind:
    """Bind an operation of the accelerator."""
    names = {name: step.arguments[name] for name in operation.tensors}
    written = FUNCTIONS[step.verb].written
    arguments = {name: step.arguments[name] for name in step.arguments.keys() - names.keys()}
    arguments |= _fields(guest, step)
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
    """Return what computes an operation on two tensors, None for any other operation."""
    number = BINARY.get(verb)
    if number is None:
        return None
    a, b, out = tensors["input_a"], tensors["input_b"], tensors["output"]
    if _is_large(out.transformed_desc):
        return None
    return prepare_binary(number, a.sticks, b.sticks, out.sticks, out.transformed_desc)
