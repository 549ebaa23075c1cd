# SPDX-License-Identifier: Apache-2.0
"""Shortcut prepared-steps: a step that ran clean goes straight to the emulator's arithmetic.

The descriptors and parameters of a step never change, so a call that passed its checks once passes
them always; only values differ. A prepared step skips the checks, and where a value does not come
out clean the step is run the plain way, which gives status and violation. A step is bound to the
tensors of a run, and used as often as these buffers serve.

A Clip of FP32 to DLFLOAT16's range before a saturating transform is prepared together with it; so
are element-wise calls in a row, which then read and write sticks once: see `chains`, and layer
normalisations: see `layer_normalizations`.
Images that are read by operators of our own and by transforms alone leave the sticks, and enter
them, with their channels last in memory: see `host_operators`.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import onnx
from nnpa_emulator import Ztensor, widened
from nnpa_emulator.chains import VERBS, Link, prepare_chain
from nnpa_emulator.dlfloat import MAX_VALUE, to_fp32
from nnpa_emulator.interruption import go_on
from nnpa_emulator.layer_normalization import Normalization, prepare_layer_normalization
from nnpa_emulator.machine import Machine, QueryResult

from nnpa_network.program import AcceleratorStep, HostStep, used, writes
from nnpa_network.running.bindings import FP32, SATURATING, Bind, bind_step, fields
from nnpa_network.running.chains import Chain
from nnpa_network.running.layer_normalizations import LayerNormalization
from nnpa_network.running.loading import LoadedProgram
from nnpa_network.running.plain import Run, RunProgram, run_step
from nnpa_network.running.run_buffers import BufferedRun, Buffers, PreparedStep


@dataclass(frozen=True, slots=True)
class _Stage:
    """Steps that are prepared as one: a single one, a Clip and its transform, or a chain."""

    indices: tuple[int, ...]
    step: AcceleratorStep | None
    bind: Bind | None
    written: tuple[int, ...]
    dead: tuple[int, ...]


def prepare_steps(loaded: LoadedProgram, run_program: RunProgram) -> RunProgram:
    """Wrap what runs a program: steps that ran clean before skip their checks."""
    return PreparedSteps(loaded, run_program).run_program


class PreparedSteps:
    """The stages of a program."""

    def __init__(self, loaded: LoadedProgram, plain: RunProgram) -> None:
        self._plain, self._loaded, self._guest = plain, loaded, loaded.guest
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
            buffers.generation, buffers.bound, buffers.prepared = generation, None, []
        if buffers.bound is not self._loaded:
            self._adopt(buffers)
        run.tensors.update(buffers.tensors)
        for index, stage in enumerate(self._stages):
            go_on()
            prepared = buffers.prepared[index]
            if prepared is None or not prepared(run):
                may_bind = prepared is None
                buffers.prepared[index] = _run_stage(run, stage, self._seen, may_bind)
            run.release(stage.dead)

    def _adopt(self, buffers: Buffers) -> None:
        """Keep the steps that are bound for another program whose operands are the same here."""
        before, loaded = buffers.bound, self._loaded
        buffers.bound = loaded
        if before is None or [stage.indices for stage in self._stages] != buffers.stages or (
            before.own.keys() != loaded.own.keys()
        ):  # fmt: skip
            buffers.stages = [stage.indices for stage in self._stages]
            buffers.prepared = [None] * len(self._stages)
            return
        growing, steps = loaded.growing(before), loaded.program.steps
        for at, stage in enumerate(self._stages):
            if buffers.prepared[at] is not None and not growing.isdisjoint(
                number for index in stage.indices for number in used(steps[index])
            ):
                buffers.prepared[at] = None

    def _current_generation(self) -> int:
        """Return a number that changes with machine and query result; 0 where calls do more."""
        guest = self._guest
        machine, cached = self._seen
        if guest.machine is not machine or guest.cached is not cached:
            self._generation, self._seen = self._generation + 1, (guest.machine, guest.cached)
        return self._generation if guest.only_computes else 0


def _run_stage(run: Run, stage: _Stage, state: object, may_bind: bool) -> PreparedStep | None:
    """Run a stage bound anew, else the plain way; return what was bound if it ran.

    `state` is the guest's, in which steps were accepted or not.
    """
    accepted = run.loaded.accepted
    is_accepted = all(accepted.get(index) == state for index in stage.indices)
    if may_bind and is_accepted and stage.bind and stage.step:
        for number in stage.written:
            run.tensors[number] = run.allocate(stage.step, number)
        prepared = stage.bind(run)
        if prepared(run):
            return prepared
    warnings = len(run.violations)
    for index in stage.indices:
        run_step(run, index)
    if len(run.violations) == warnings:
        accepted.update(dict.fromkeys(stage.indices, state))
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
    fused = {each.first: each for each in loaded.fused}
    fused_indices = {index for each in fused.values() for index in range(each.first, each.last + 1)}
    clip: tuple[int, HostStep] | None = None
    for index, step in enumerate(loaded.program.steps):
        if index in fused_indices:
            if index in fused:
                stages.append(_fused_stage(loaded, fused[index]))
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
            bind = bind_step(loaded.guest, step, result, clip_step, channels_last=last)
            stages.append(_Stage(indices, step, bind, written, dead))
        clip = None
    return stages


def _fused_stage(loaded: LoadedProgram, fused: Chain | LayerNormalization) -> _Stage:
    """Return the stage of steps in one pass; what they hand to each other is not written."""
    indices = tuple(range(fused.first, fused.last + 1))
    dead = tuple(number for each in indices for number in loaded.last_used[each])
    steps = [step for step in loaded.program.steps[fused.first : fused.last + 1]
             if isinstance(step, AcceleratorStep)]  # fmt: skip
    if isinstance(fused, LayerNormalization):
        parameters = _parameters(loaded, fused)
        bind = partial(_normalization, parameters, fused.source, fused.output)
        return _Stage(indices, steps[-1], bind, (fused.output,), dead)
    links = [_link(loaded, step) for step in steps]
    bind = partial(_chain, links, fused.outputs, loaded.tensors.keys())
    return _Stage(indices, steps[-1], bind, fused.outputs, dead)


def _parameters(loaded: LoadedProgram, normalization: LayerNormalization) -> Normalization:
    codes = fields(loaded.guest, normalization.layernorm)
    beta, gamma, epsilon = (int(codes[f"{name}_value"]) for name in ("beta", "gamma", "epsilon"))
    numbers = normalization.factors, normalization.added
    tensors = (None if number is None else loaded.tensors[number] for number in numbers)
    return Normalization(beta, gamma, epsilon, *tensors)


def _normalization(parameters: Normalization, source: int, output: int, run: Run) -> PreparedStep:
    target = run.tensors[output]
    compute = prepare_layer_normalization(run.tensors[source], parameters, target)
    return _marking(compute, [target])


def _link(loaded: LoadedProgram, step: AcceleratorStep) -> Link:
    inputs = tuple(step.arguments[name] for name in VERBS[step.verb])
    link = Link(step.verb, inputs, step.arguments["output"])
    if step.verb == "batchnorm":
        factors, added = (loaded.tensors[step.arguments[name]] for name in ("input_b", "input_c"))
        return replace(link, factors=factors, added=added)
    if step.verb == "relu" and (clip := fields(loaded.guest, step)["clipping_value"]):
        return replace(link, limit=float(to_fp32(clip)))
    return link


def _chain(
    links: Sequence[Link], outputs: Sequence[int], constants: Collection[int], run: Run
) -> PreparedStep:
    compute = prepare_chain(links, run.tensors, outputs, constants)
    return _marking(compute, [run.tensors[number] for number in outputs])


def _marking(compute: Callable[[], bool], written: Sequence[Ztensor]) -> PreparedStep:
    """Return what computes, and marks the tensors that it has written."""
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
    if len(step.inputs) != 3 or any(dtype != FP32 for dtype in loaded.dtypes(step.inputs)):
        return False
    ends = [np.ravel(loaded.arrays.get(number, 0)) for number in step.inputs[1:]]
    clips = [end.tolist() for end in ends] == [[-MAX_VALUE], [MAX_VALUE]]
    return clips and onnx.NodeProto.FromString(step.onnx).op_type == "Clip"
