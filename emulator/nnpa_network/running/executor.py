# SPDX-License-Identifier: Apache-2.0
"""Running a program: once compiled for a guest, then any number of times, also at the same time.

Statuses: an element range violation is recorded and the run goes on, as it does on the machine.
A conversion failure of a transform is treated alike, because compiled programs do not look at it:
the sticks hold a non-numeric value and the next operation meets it. Any other status ends the run.
Source: zDNN API Reference 1.2.0, "Hardware Statuses", ZDNN_ELEMENT_RANGE_VIOLATION.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import onnx
from nnpa_emulator import FUNCTIONS, Guest, Outcome, Status, Ztensor
from nnpa_emulator import run as call
from nnpa_emulator.arith import RangeViolation
from nnpa_emulator.machine import page_memory
from nnpa_emulator.pipeline import allocate_sticks
from nnpa_emulator.status import (
    Malformed,
    NotInLibrary,
    ProgramCheck,
    Refused,
    get_status_message,
)
from nnpa_emulator.ztensor import getsize_ztensor

from nnpa_network.containment import MOST_TRIPS
from nnpa_network.program import (
    ABSENT,
    AcceleratorStep,
    Array,
    HostStep,
    ModelRefused,
    Program,
    described,
    reads,
    writes,
)
from nnpa_network.running import direct, host
from nnpa_network.running.arrays import arrange, check_feed, count_nans, raw, shaped
from nnpa_network.running.frames import WIDEST, Frame, Frames

SATURATING = "transform_ztensor_with_saturation"
_TRANSFORMS = frozenset(name for name in FUNCTIONS if name.startswith("transform_"))


class StepFailed(RuntimeError):
    """A step that ended the run: an accelerator status that is no warning, or a host error."""

    def __init__(self, node: str, verb: str, status: int, reason: str) -> None:
        self.node, self.verb, self.status, self.reason = node, verb, status, reason
        super().__init__(f"node {node or '(none)'}: {verb}: {reason}")


@dataclass(frozen=True, slots=True)
class Violation:
    """A non-numeric value that a call used or stored; `node` is an index of Program.nodes."""

    node: int
    verb: str
    status: int
    violation: RangeViolation | None


@dataclass(frozen=True, slots=True)
class Result:
    """What a run gives: outputs by name, what went wrong on the way, and what was called.

    `nans` counts the NaN elements of each floating-point output; `calls` counts accelerator calls
    per verb, transforms included.
    """

    outputs: Mapping[str, Array]
    violations: tuple[Violation, ...]
    nans: Mapping[str, int]
    calls: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """Before or after a node of the model; `read(name)` gives a value of it, None where not live.

    `read` is valid only during the callback. Names are those of the model.
    """

    node: int
    phase: Literal["before", "after"]
    read: Callable[[str], Array | None]


Observer: TypeAlias = Callable[[NodeEvent], None]


@dataclass(slots=True)
class _Run:
    """The state of one run.

    A step that came out clean in the `era` of the guest may go the short way; 0 is no era.
    `frame` has the tensors of an earlier run and gets those of this one; `counted` are results of
    calls that went the long way, so that their NaN are to be counted.
    """

    values: direct.Values
    era: int
    frame: Frame
    violations: list[Violation]
    counted: list[int]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A step ready to be taken, and the ids that nothing needs any more after it.

    `take` is told whether the short way is open, and returns what goes it over the same tensors.
    """

    node: int
    take: Callable[[_Run, bool], direct.Take | None]
    dead: tuple[int, ...] = ()


class Executor:
    """A program on a guest; `run` may be called from several threads.

    The guest provides storage for sticks, and its machine is the one that the program is for.
    Tensors of a run are kept for the next, unless somebody counts what the guest allocates.
    """

    def __init__(self, program: Program, guest: Guest) -> None:
        if guest.machine.name != program.machine:
            limit = f"this program is for {program.machine}"
            raise ModelRefused(f"guest.machine is {guest.machine.name}, {limit}")
        self.program, self.guest = program, guest
        self._names = [node.name or node.op_type for node in program.nodes]
        self._steps = self._prepare()
        self._calls = dict(
            Counter(one.verb for one in program.steps if isinstance(one, AcceleratorStep))
        )
        self._inputs = list(zip(program.inputs, program.input_ids, strict=True))
        self._outputs = self._find_outputs()
        self._era, self._seen = 1, (guest.machine, guest.cached)
        made = {number for one in program.steps for number in writes(one)} & program.tensors.keys()
        size = sum(getsize_ztensor(program.tensors[one].transformed_desc) for one in made)
        keeps = guest.allocate is page_memory and size <= WIDEST
        self._frames = Frames(size) if keeps else None

    def _find_outputs(self) -> list[tuple[str, int, bool]]:
        """Return names and ids of the outputs, and which of them only one call makes."""
        steps, numbers = self.program.steps, self.program.output_ids
        made = Counter(number for one in steps for number in writes(one))
        given = {one.result for one in steps if isinstance(one, AcceleratorStep)}
        return [
            (port.name, number, number in given and made[number] == 1)
            for port, number in zip(self.program.outputs, numbers, strict=True)
        ]

    def run(self, feeds: Mapping[str, Array], observer: Observer | None = None) -> Result:
        """Run once over named inputs; raise `ModelRefused` for wrong inputs, `StepFailed`."""
        frame = Frame() if self._frames is None else self._frames.take()
        run = _Run(dict(self.program.constants), self._current_era(), frame, [], [])
        values = run.values
        for port, number in self._inputs:
            values[number] = check_feed(port.name, port.dtype, port.shape, feeds)
        if observer is None:
            self._run_alone(run)
        else:
            self._run_observed(run, observer)
        outputs = {name: values[number] for name, number, _ in self._outputs}
        if self._frames is not None:
            self._frames.give(frame)
        nans = {
            name: 0 if numeric and number not in run.counted else count_nans(values[number])
            for name, number, numeric in self._outputs
        }
        return Result(outputs, tuple(run.violations), nans, self._calls.copy())

    def _run_alone(self, run: _Run) -> None:
        """Take the steps one by one, those that the frame knows the short way."""
        values, frame = run.values, run.frame
        values.update(frame.tensors)
        if frame.era != run.era or not frame.takes:
            frame.era, frame.takes = run.era, [None] * len(self._steps)
        takes = frame.takes
        for at, step in enumerate(self._steps):
            known = takes[at]
            if known is None or not known(values):
                takes[at] = step.take(run, known is None)
            for number in step.dead:
                values.pop(number, None)

    def _current_era(self) -> int:
        """Return the number of the guest's era; a new one begins when it sees another machine."""
        guest = self.guest
        machine, cached = self._seen
        if guest.machine is not machine or guest.cached is not cached:
            self._era, self._seen = self._era + 1, (guest.machine, guest.cached)
        return self._era if guest.only_computes else 0

    def _run_observed(self, run: _Run, observer: Observer) -> None:
        """Take the steps node by node; tensors die late so that events can read them."""

        def read(name: str) -> Array | None:
            return self._read(run, name)

        at = 0
        for index in range(len(self.program.nodes)):
            observer(NodeEvent(index, "before", read))
            dead: list[int] = []
            while at < len(self._steps) and self._steps[at].node == index:
                self._steps[at].take(run, True)
                dead.extend(self._steps[at].dead)
                at += 1
            observer(NodeEvent(index, "after", read))
            for number in dead:
                run.values.pop(number, None)
        for step in self._steps[at:]:
            step.take(run, True)

    def _read(self, run: _Run, name: str) -> Array | None:
        """Return a named value in the model's shape; transforms for it are not counted."""
        places = self.program.places.get(name, ())
        place = next((one for one in places if one.id in run.values), None)
        if place is None:
            return None
        value = run.values[place.id]
        if not isinstance(value, Ztensor):
            known = -1 not in place.shape
            return arrange(value, place.shape, place.order) if known else np.asarray(value)
        outcome = call(self.guest, "transform_origtensor", {"ztensor": value})
        return arrange(np.asarray(outcome.value), place.shape, place.order)

    def _prepare(self) -> list[_Prepared]:
        """Bind every step, and find after which step each value is dead."""
        program = self.program
        last: dict[int, int] = {}
        for at, step in enumerate(program.steps):
            for number in (*reads(step), *writes(step)):
                last[number] = at
        kept = {*program.output_ids, *program.input_ids, *program.constants, ABSENT}
        dead: dict[int, list[int]] = {}
        for number, at in last.items():
            if number not in kept:
                dead.setdefault(at, []).append(number)
        prepared: list[_Prepared] = []
        limits: HostStep | None = None
        for at, step in enumerate(program.steps):
            if isinstance(step, HostStep) and self._only_limits(step, at, dead.get(at + 1, ())):
                limits = step
                dead[at + 1] += dead.get(at, ())
                continue
            take = self._bind_host(step) if isinstance(step, HostStep) else self._bind(step, limits)
            prepared.append(_Prepared(step.node, take, tuple(dead.get(at, ()))))
            limits = None
        return prepared

    def _only_limits(self, step: HostStep, at: int, ended: Sequence[int]) -> bool:
        """Tell whether a step limits what nothing but the next, a saturating transform, reads.

        `ended` are the ids that are dead after the next step.
        """
        following = self.program.steps[at + 1] if at + 1 < len(self.program.steps) else None
        return (
            isinstance(following, AcceleratorStep)
            and following.node == step.node
            and following.verb == SATURATING
            and following.arguments["data"] == step.outputs
            and step.outputs[0] in ended
            and direct.saturates(step, self.program.constants, self._dtypes(step.inputs))
        )

    def _name(self, node: int) -> str:
        return self._names[node] if 0 <= node < len(self._names) else ""

    def _bind_host(self, step: HostStep) -> Callable[[_Run, bool], None]:
        dtypes, op_type = self._dtypes(step.inputs), onnx.NodeProto.FromString(step.onnx).op_type
        short = direct.limited(op_type, step.inputs, self.program.constants, dtypes)
        try:
            kernel = short or host.prepare(step.onnx, step.opset, dtypes, self._shapes(step))
        except host.HostError as error:
            raise ModelRefused(str(error), self._name(step.node)) from error
        inputs = [number for number in step.inputs if number != ABSENT]
        outputs = [number for number in step.outputs if number != ABSENT]

        def take(run: _Run, _may_shorten: bool) -> None:
            values = run.values
            try:
                results = kernel([values[number] for number in inputs])
            except host.HostError as error:
                raise StepFailed(self._name(step.node), "host", 0, str(error)) from error
            values.update(zip(outputs, results, strict=True))

        return take

    def _dtypes(self, numbers: Sequence[int]) -> tuple[np.dtype[Any] | None, ...]:
        arrays = self.program.arrays
        return tuple(None if one == ABSENT else arrays[one].dtype for one in numbers)

    def _shapes(self, step: HostStep) -> tuple[tuple[int, ...], ...] | None:
        """Return the shapes of the inputs for a node with subgraphs, None for any other."""
        node = onnx.NodeProto.FromString(step.onnx)
        if not host.has_subgraph(node):
            return None
        if node.op_type == "Loop":
            self._require_few_trips(step)
        arrays = self.program.arrays
        return tuple(() if one == ABSENT else arrays[one].shape for one in step.inputs)

    def _require_few_trips(self, step: HostStep) -> None:
        """Refuse a Loop that may not end; a program from elsewhere was not checked for that."""
        trips = self.program.constants.get(step.inputs[0] if step.inputs else ABSENT)
        if not isinstance(trips, np.ndarray) or trips.size != 1 or int(trips.flat[0]) > MOST_TRIPS:
            text = f"a Loop needs a constant trip count of at most {MOST_TRIPS}"
            raise ModelRefused(text, self._name(step.node))

    def _bind(
        self, step: AcceleratorStep, limits: HostStep | None
    ) -> Callable[[_Run, bool], direct.Take | None]:
        """Bind one call: find its operands, make its outputs, judge its status.

        `limits` is a step before it whose work the short way of this one does, too.
        """
        function, program = FUNCTIONS[step.verb], self.program
        tensors = {name: step.arguments[name] for name in function.tensors}
        others = {name: one for name, one in step.arguments.items() if name not in tensors}
        data: tuple[int, ...] = others.pop("data", ())
        made = {number: described(program.tensors[number]) for number in set(writes(step))
                if number in program.tensors}  # fmt: skip
        result = program.arrays.get(step.result)
        transforms = step.verb in _TRANSFORMS
        short = direct.bind(self.guest, step, result, limits)
        limit = None if limits is None else self._bind_host(limits)
        passed = 0  # the era in which the step came out clean

        def take(run: _Run, may_shorten: bool) -> direct.Take | None:
            nonlocal passed
            values = run.values
            for number, like in made.items():
                values[number] = self._allocate(run, step, number, like)
            if short is not None and may_shorten and run.era and passed == run.era:
                known = short(values)
                if known(values):
                    return known
            if limit is not None:
                limit(run, may_shorten)
            arguments: dict[str, Any] = {name: values[one] for name, one in tensors.items()}
            arguments.update(others)
            if data:
                arguments["data"] = [raw(values[number]) for number in data]
            outcome = self._call(step, arguments)
            if outcome.status != Status.ZDNN_OK:
                self._judge(run, step, outcome, transforms)
                for number in made:
                    values[number].is_transformed = True
            else:
                passed = run.era
            if result is not None:
                values[step.result] = shaped(outcome.value, result.dtype, result.shape)
                run.counted.append(step.result)
            return None

        return take

    def _call(self, step: AcceleratorStep, arguments: Mapping[str, Any]) -> Outcome:
        try:
            return call(self.guest, step.verb, arguments)
        except (ProgramCheck, NotInLibrary, Malformed) as error:
            raise StepFailed(self._name(step.node), step.verb, 0, str(error)) from error

    def _allocate(self, run: _Run, step: AcceleratorStep, number: int, like: Ztensor) -> Ztensor:
        """Return a tensor like one without storage, with storage of its own."""
        earlier = run.frame.tensors.get(number)
        if earlier is not None:
            earlier.is_transformed = False
            return earlier
        tensor = replace(like)
        try:
            allocate_sticks(self.guest, tensor, "allochelper_ztensor_c1")
        except Refused as refused:
            text = str(refused.refusal)
            status = refused.refusal.status
            raise StepFailed(self._name(step.node), step.verb, status, text) from refused
        if self._frames is not None:
            run.frame.tensors[number] = tensor
        return tensor

    def _judge(self, run: _Run, step: AcceleratorStep, outcome: Outcome, transforms: bool) -> None:
        status = outcome.status
        if outcome.valid or (transforms and status == Status.ZDNN_CONVERT_FAILURE):
            run.violations.append(Violation(step.node, step.verb, status, outcome.violation))
            return
        reason = f"{get_status_message(status)}: {outcome.refusal}"
        raise StepFailed(self._name(step.node), step.verb, status, reason)
