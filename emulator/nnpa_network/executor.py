# SPDX-License-Identifier: Apache-2.0
"""Running a program: once compiled for a guest, then any number of times, also at the same time.

Statuses: an element range violation is recorded and the run goes on, as it does on the machine.
A conversion failure of a transform is treated alike, because compiled programs do not look at it:
the sticks hold a non-numeric value and the next operation meets it. Any other status ends the run.
Source: zDNN API Reference 1.2.0, "Hardware Statuses", ZDNN_ELEMENT_RANGE_VIOLATION.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import ml_dtypes
import numpy as np
import onnx
from nnpa_emulator import FUNCTIONS, Guest, Outcome, Status, Ztensor
from nnpa_emulator import run as call
from nnpa_emulator.arith import RangeViolation
from nnpa_emulator.pipeline import allocate_sticks
from nnpa_emulator.status import (
    Malformed,
    NotInLibrary,
    ProgramCheck,
    Refused,
    get_status_message,
)
from nnpa_emulator.ztensor import init_quantized_ztensor

from nnpa_network import direct, host
from nnpa_network.containment import MOST_TRIPS
from nnpa_network.program import (
    ABSENT,
    AcceleratorStep,
    Array,
    HostStep,
    ModelRefused,
    Program,
    TensorInfo,
)

Values: TypeAlias = dict[int, Any]
"""What is live during a run: arrays and ztensors by id."""
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
    """The state of one run; `direct` says that steps which have run before may go the short way."""

    values: Values
    direct: bool = False
    calls: Counter[str] = field(default_factory=Counter[str])
    violations: list[Violation] = field(default_factory=list[Violation])


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A step ready to be taken, and the ids that nothing needs any more after it."""

    node: int
    take: Callable[[_Run], None]
    dead: tuple[int, ...] = ()


class Executor:
    """A program on a guest; `run` may be called from several threads.

    The guest provides storage for sticks, and its machine is the one that the program is for.
    """

    def __init__(self, program: Program, guest: Guest) -> None:
        if guest.machine.name != program.machine:
            limit = f"this program is for {program.machine}"
            raise ModelRefused(f"guest.machine is {guest.machine.name}, {limit}")
        self.program, self.guest = program, guest
        self._names = [node.name or node.op_type for node in program.nodes]
        self._steps = self._prepare()

    def run(self, feeds: Mapping[str, Array], observer: Observer | None = None) -> Result:
        """Run once over named inputs; raise `ModelRefused` for wrong inputs, `StepFailed`."""
        program = self.program
        run = _Run(dict(program.constants), direct.applies(self.guest))
        for port, number in zip(program.inputs, program.input_ids, strict=True):
            run.values[number] = check_feed(port.name, port.dtype, port.shape, feeds)
        if observer is None:
            for step in self._steps:
                step.take(run)
                for number in step.dead:
                    del run.values[number]
        else:
            self._run_observed(run, observer)
        outputs = {
            port.name: run.values[number]
            for port, number in zip(program.outputs, program.output_ids, strict=True)
        }
        nans = {name: count_nans(one) for name, one in outputs.items()}
        return Result(outputs, tuple(run.violations), nans, dict(run.calls))

    def _run_observed(self, run: _Run, observer: Observer) -> None:
        """Take the steps node by node; tensors die late so that events can read them."""

        def read(name: str) -> Array | None:
            return self._read(run, name)

        at = 0
        for index in range(len(self.program.nodes)):
            observer(NodeEvent(index, "before", read))
            dead: list[int] = []
            while at < len(self._steps) and self._steps[at].node == index:
                self._steps[at].take(run)
                dead.extend(self._steps[at].dead)
                at += 1
            observer(NodeEvent(index, "after", read))
            for number in dead:
                del run.values[number]
        for step in self._steps[at:]:
            step.take(run)

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
        return [
            _Prepared(
                step.node,
                self._bind_host(step) if isinstance(step, HostStep) else self._bind(step),
                tuple(dead.get(at, ())),
            )
            for at, step in enumerate(program.steps)
        ]

    def _name(self, node: int) -> str:
        return self._names[node] if 0 <= node < len(self._names) else ""

    def _bind_host(self, step: HostStep) -> Callable[[_Run], None]:
        dtypes, op_type = self._dtypes(step.inputs), onnx.NodeProto.FromString(step.onnx).op_type
        short = direct.limited(op_type, step.inputs, self.program.constants, dtypes)
        try:
            kernel = short or host.prepare(step.onnx, step.opset, dtypes, self._shapes(step))
        except host.HostError as error:
            raise ModelRefused(str(error), self._name(step.node)) from error
        inputs = [number for number in step.inputs if number != ABSENT]
        outputs = [number for number in step.outputs if number != ABSENT]

        def take(run: _Run) -> None:
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

    def _bind(self, step: AcceleratorStep) -> Callable[[_Run], None]:
        """Bind one call: find its operands, make its outputs, judge its status."""
        function, program = FUNCTIONS[step.verb], self.program
        tensors = {name: step.arguments[name] for name in function.tensors}
        others = {name: one for name, one in step.arguments.items() if name not in tensors}
        data: tuple[int, ...] = others.pop("data", ())
        made = {number: _described(program.tensors[number]) for number in set(writes(step))
                if number in program.tensors}  # fmt: skip
        result = program.arrays.get(step.result)
        transforms = step.verb in _TRANSFORMS
        short, guest = direct.bind(self.guest, step, result), self.guest
        passed: list[object] = []  # the machine, as the guest saw it when the step came out clean

        def take(run: _Run) -> None:
            values = run.values
            for number, described in made.items():
                values[number] = self._allocate(step, described)
            known = run.direct and passed == [guest.machine, guest.cached]
            if known and short is not None and short(values):
                run.calls[step.verb] += 1
                return
            arguments: dict[str, Any] = {name: values[one] for name, one in tensors.items()}
            arguments.update(others)
            if data:
                arguments["data"] = [_raw(values[number]) for number in data]
            outcome = self._call(step, arguments)
            run.calls[step.verb] += 1
            if outcome.status != Status.ZDNN_OK:
                self._judge(run, step, outcome, transforms)
                for number in made:
                    values[number].is_transformed = True
            else:
                passed[:] = guest.machine, guest.cached
            if result is not None:
                values[step.result] = _shaped(outcome.value, result.dtype, result.shape)

        return take

    def _call(self, step: AcceleratorStep, arguments: Mapping[str, Any]) -> Outcome:
        try:
            return call(self.guest, step.verb, arguments)
        except (ProgramCheck, NotInLibrary, Malformed) as error:
            raise StepFailed(self._name(step.node), step.verb, 0, str(error)) from error

    def _allocate(self, step: AcceleratorStep, described: Ztensor) -> Ztensor:
        """Return a tensor like one that was described, with storage of its own."""
        tensor = Ztensor(
            described.pre_transformed_desc,
            described.transformed_desc,
            rec_scale=described.rec_scale,
            offset=described.offset,
        )
        try:
            allocate_sticks(self.guest, tensor, "allochelper_ztensor_c1")
        except Refused as refused:
            text = str(refused.refusal)
            status = refused.refusal.status
            raise StepFailed(self._name(step.node), step.verb, status, text) from refused
        return tensor

    def _judge(self, run: _Run, step: AcceleratorStep, outcome: Outcome, transforms: bool) -> None:
        status = outcome.status
        if outcome.valid or (transforms and status == Status.ZDNN_CONVERT_FAILURE):
            run.violations.append(Violation(step.node, step.verb, status, outcome.violation))
            return
        reason = f"{get_status_message(status)}: {outcome.refusal}"
        raise StepFailed(self._name(step.node), step.verb, status, reason)


def _described(info: TensorInfo) -> Ztensor:
    """Return a tensor without storage."""
    pre, transformed = info.pre_transformed_desc, info.transformed_desc
    return init_quantized_ztensor(pre, transformed, info.scale, info.offset)


def check_feed(
    name: str, dtype: np.dtype[Any], shape: tuple[int, ...], feeds: Mapping[str, Array]
) -> Array:
    """Return a named input as a contiguous array, or say what is wrong with it."""
    if name not in feeds:
        raise ModelRefused(f"input {name} is missing")
    array = np.asarray(feeds[name])
    fits = len(array.shape) == len(shape) and all(
        wanted in (-1, given) for wanted, given in zip(shape, array.shape, strict=False)
    )
    if array.dtype != dtype or not fits:
        got, wanted = f"{array.dtype} {list(array.shape)}", f"{dtype} {list(shape)}"
        raise ModelRefused(f"input {name}: got {got}, expected {wanted}")
    return np.ascontiguousarray(array).reshape(array.shape)


def count_nans(array: Array) -> int:
    """Count the NaN elements of a floating-point array; 0 for any other."""
    if array.dtype.kind not in "fV" and array.dtype != ml_dtypes.bfloat16:
        return 0
    return int(np.count_nonzero(np.isnan(array)))


def arrange(array: Array, shape: tuple[int, ...], order: Sequence[int]) -> Array:
    """Bring elements in the order of axes `order` (those that are not 1) into `shape`."""
    dense = np.asarray(array).reshape([shape[axis] for axis in order])
    return np.ascontiguousarray(dense.transpose(np.argsort(order).astype(int))).reshape(shape)


def _raw(array: Array) -> Array:
    """View an array as what a transform takes: BFLOAT16 as its bits."""
    return array.view(np.uint16) if array.dtype == ml_dtypes.bfloat16 else array


def _shaped(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    array = np.asarray(value)
    if dtype == ml_dtypes.bfloat16 and array.dtype == np.uint16:
        array = array.view(ml_dtypes.bfloat16)
    return array.astype(dtype, copy=False).reshape(shape)


def reads(step: AcceleratorStep | HostStep) -> tuple[int, ...]:
    """Return the ids that a step needs; those of tensors that it makes are among them."""
    if isinstance(step, HostStep):
        return step.inputs
    tensors = (step.arguments[name] for name in FUNCTIONS[step.verb].tensors)
    return (*tensors, *step.arguments.get("data", ()))


def writes(step: AcceleratorStep | HostStep) -> tuple[int, ...]:
    """Return the ids that a step makes: outputs, and the tensor that a transform fills."""
    if isinstance(step, HostStep):
        return step.outputs
    if step.verb in ("transform_origtensor", "getrange_ztensor"):
        return (step.result,)
    if step.verb == "reshape_ztensor":
        return (step.arguments["dest"],)
    return tuple(step.arguments[name] for name in FUNCTIONS[step.verb].written)
