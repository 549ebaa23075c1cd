# SPDX-License-Identifier: Apache-2.0
"""Shortcut prepared-steps: a step that ran clean goes straight to the emulator's arithmetic.

The descriptors and parameters of a step never change, so a call that passed its checks once passes
them always; only values differ. A prepared step skips the checks, and where a value does not come
out clean the step is run the plain way, which gives status and violation. A step is bound to the
tensors of a run, and used as often as these buffers serve; steps that are rows follow each other
without Python in between, see `rows`.

A Clip of FP32 to DLFLOAT16's range before a saturating transform is prepared together with it.
Images that are read by operators of our own and by transforms alone leave the sticks, and enter
them, with their channels last in memory: see `host_operators`.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import onnx
from nnpa_emulator.dlfloat import MAX_VALUE
from nnpa_emulator.interruption import go_on

from nnpa_network.program import AcceleratorStep, HostStep, used, writes
from nnpa_network.running.bindings import (
    FP32,
    SATURATING,
    Bind,
    bind_layer_normalization,
    bind_step,
)
from nnpa_network.running.layer_normalizations import VERBS
from nnpa_network.running.loading import LoadedProgram
from nnpa_network.running.plain import Run, RunProgram, run_step
from nnpa_network.running.rows import Rows, plan
from nnpa_network.running.run_buffers import BufferedRun, Buffers


@dataclass(frozen=True, slots=True)
class _Stage:
    """Steps that are prepared as one: one, a Clip and its transform, or a layer normalisation."""

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

    def run_program(self, run: Run) -> None:
        """Run every step in order, prepared ones straight over the tensors they are bound to."""
        guest = self._guest
        if not guest.only_computes:
            self._plain(run)
            return
        buffers = run.buffers if isinstance(run, BufferedRun) else Buffers()
        state = guest.machine, guest.cached, guest.accumulate
        if buffers.state != state:
            buffers.state, buffers.bound = state, None
        if buffers.bound is not self._loaded:
            self._adopt(buffers)
        run.tensors.update(buffers.tensors)
        if buffers.walks is None:
            dead = [set(stage.dead) - buffers.tensors.keys() for stage in self._stages]
            buffers.walks = plan(buffers.prepared, dead)
        for walk in buffers.walks:
            index = walk.first
            while index < walk.end:
                go_on()
                index = walk.run(run, index)
                if index < walk.end:
                    self._run_stage(run, buffers, index)
                    index += 1
            run.release(walk.dead)

    def _run_stage(self, run: Run, buffers: Buffers, index: int) -> None:
        """Run a stage as it is bound, bound anew, or the plain way."""
        prepared, stage = buffers.prepared[index], self._stages[index]
        if prepared is not None and prepared(run):
            return
        accepted = self._loaded.accepted
        is_accepted = all(accepted.get(number) == buffers.state for number in stage.indices)
        if prepared is None and is_accepted and stage.bind and stage.step:
            for number in stage.written:
                run.tensors[number] = run.allocate(stage.step, number)
            prepared = stage.bind(run)
            if prepared(run):
                buffers.prepared[index], buffers.walks = prepared, None
                return
        elif isinstance(prepared, Rows) and prepared.reads:  # an array of another order, maybe
            buffers.prepared[index], buffers.walks = None, None
        warnings = len(run.violations)
        for number in stage.indices:
            run_step(run, number)
        if len(run.violations) == warnings:
            accepted.update(dict.fromkeys(stage.indices, buffers.state))

    def _adopt(self, buffers: Buffers) -> None:
        """Keep the steps that are bound for another program whose operands are the same here."""
        before, loaded = buffers.bound, self._loaded
        buffers.bound, buffers.walks = loaded, None
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


def _stages(loaded: LoadedProgram) -> list[_Stage]:
    """Return the steps of a program as stages; a Clip joins the transform that saturates alike."""
    stages: list[_Stage] = []
    clips = {
        index
        for index, step in enumerate(loaded.program.steps)
        if isinstance(step, HostStep) and _is_part_of_next(loaded, index, step)
    }
    elsewhere = _read_by_others(loaded, clips)
    normalized = {first + place for first in loaded.normalizations for place in range(len(VERBS))}
    clip: tuple[int, HostStep] | None = None
    for index, step in enumerate(loaded.program.steps):
        if index in loaded.normalizations:
            stages.append(_normalization(loaded, index))
        if index in normalized:
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


def _normalization(loaded: LoadedProgram, first: int) -> _Stage:
    """Return the stage of a layer normalisation, which writes its result alone."""
    indices = tuple(range(first, first + len(VERBS)))
    before, _, layernorm, behind = (
        step for step in loaded.program.steps[first : first + len(VERBS)]
        if isinstance(step, AcceleratorStep)
    )  # fmt: skip
    source, output = before.arguments["src"], behind.arguments["dest"]
    bind = bind_layer_normalization(loaded.guest, layernorm, source, output)
    dead = tuple(number for each in indices for number in loaded.last_used[each])
    return _Stage(indices, behind, bind, (output,), dead)


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
