# SPDX-License-Identifier: Apache-2.0
"""Run a program: each step in order, by the emulator or by ONNX Runtime.

Statuses: an element range violation is recorded and the run goes on, as it does on the machine.
A conversion failure of a transform is treated alike, because compiled programs do not look at it:
the sticks hold a non-numeric value and the next operation meets it. Every other status ends it.
Source: zDNN API Reference 1.2.0, "Hardware Statuses", ZDNN_ELEMENT_RANGE_VIOLATION.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from nnpa_emulator import FUNCTIONS, Outcome, Status, Ztensor
from nnpa_emulator import run as call
from nnpa_emulator.interruption import go_on
from nnpa_emulator.pipeline import allocate_sticks
from nnpa_emulator.status import (
    Malformed,
    NotInLibrary,
    ProgramCheck,
    Refused,
    get_status_message,
)
from onnx import NodeProto

from nnpa_network.program import ABSENT, AcceleratorStep, Array, HostStep, writes
from nnpa_network.running import host
from nnpa_network.running.arrays import raw, shaped
from nnpa_network.running.loading import LoadedProgram
from nnpa_network.running.results import StepFailed, Violation

_TRANSFORMS = frozenset(
    name for name in FUNCTIONS if name.startswith("transform_") or name == "reshape_ztensor"
)


def run_on_host(run: "Run", index: int) -> None:
    """Run one ONNX node over arrays."""
    step = run.loaded.program.steps[index]
    assert isinstance(step, HostStep)
    inputs = [run.arrays[number] for number in step.inputs if number != ABSENT]
    try:
        results = run.loaded.kernels[index](inputs)
    except host.HostError as error:
        reason = f"{NodeProto.FromString(step.onnx).op_type}: {error}"
        raise StepFailed(run.loaded.node_name(step.node), "host", 0, reason) from error
    run.keep([number for number in step.outputs if number != ABSENT], results)


@dataclass(slots=True)
class Run:
    """One run of a program: its live values by their ids, and the warnings so far.

    `numeric` are arrays that are known to hold no NaN; `run_host_step` runs steps on the host.
    """

    loaded: LoadedProgram
    arrays: dict[int, Array]
    tensors: dict[int, Ztensor]
    violations: list[Violation] = field(default_factory=list[Violation])
    numeric: set[int] = field(default_factory=set[int])
    run_host_step: Callable[["Run", int], None] = run_on_host

    def keep(self, numbers: Sequence[int], arrays: Sequence[Array]) -> None:
        """Keep the arrays that host nodes have made."""
        self.numeric.difference_update(numbers)
        self.arrays.update(zip(numbers, arrays, strict=True))

    def allocate(self, step: AcceleratorStep, number: int) -> Ztensor:
        """Return a tensor for a step to write, with storage of its own."""
        tensor = replace(self.loaded.templates[number])
        try:
            allocate_sticks(self.loaded.guest, tensor, "allochelper_ztensor_c1")
        except Refused as refused:
            refusal, name = refused.refusal, self.loaded.node_name(step.node)
            raise StepFailed(name, step.verb, refusal.status, str(refusal)) from refused
        return tensor

    def release(self, numbers: Sequence[int]) -> None:
        """Drop values that no later step needs."""
        for number in numbers:
            self.arrays.pop(number, None)
            self.tensors.pop(number, None)


RunProgram: TypeAlias = Callable[[Run], None]
"""The seam of hosted networks: runs every step over the values of a run."""


def run_program(run: Run) -> None:
    """Run every step in order; raise `StepFailed`."""
    for index, dead in enumerate(run.loaded.last_used):
        run_step(run, index)
        run.release(dead)


def run_step(run: Run, index: int) -> None:
    """Run one step, on the host or on the accelerator, unless the thread's check raises."""
    go_on()
    step = run.loaded.program.steps[index]
    if isinstance(step, HostStep):
        run.run_host_step(run, index)
    else:
        run_on_accelerator(run, step)


def run_on_accelerator(run: Run, step: AcceleratorStep) -> None:
    """Allocate the tensors that a call writes, make the call, and record its warning."""
    written = [number for number in set(writes(step)) if number in run.loaded.templates]
    for number in written:
        run.tensors[number] = run.allocate(step, number)
    outcome = _call(run, step)
    if outcome.status != Status.ZDNN_OK:
        run.violations.append(_warning(run, step, outcome))
        if step.verb == "reshape_ztensor":
            _reshape_by_transforms(run, step)
        for number in written:
            run.tensors[number].is_transformed = True
    result = run.loaded.program.arrays.get(step.result)
    if result is not None:
        run.numeric.discard(step.result)
        run.arrays[step.result] = shaped(outcome.value, result.dtype, result.shape)


def _reshape_by_transforms(run: Run, step: AcceleratorStep) -> None:
    """Fill a tensor that reshape_ztensor left empty: it ends at what is no number, they go on."""
    source, target = (run.tensors[step.arguments[name]] for name in ("src", "dest"))
    guest = run.loaded.guest
    dense = call(guest, "transform_origtensor", {"ztensor": source}).value
    if dense is not None:
        call(guest, "transform_ztensor", {"ztensor": target, "data": [dense]})


def _call(run: Run, step: AcceleratorStep) -> Outcome:
    """Call the emulator's function with values in place of ids."""
    arguments = dict(step.arguments)
    for name in FUNCTIONS[step.verb].tensors:
        arguments[name] = run.tensors[step.arguments[name]]
    if data := step.arguments.get("data"):
        arguments["data"] = [raw(run.arrays[number]) for number in data]
    try:
        return call(run.loaded.guest, step.verb, arguments)
    except (ProgramCheck, NotInLibrary, Malformed) as error:
        raise StepFailed(run.loaded.node_name(step.node), step.verb, 0, str(error)) from error


def _warning(run: Run, step: AcceleratorStep, outcome: Outcome) -> Violation:
    """Return the warning that a status is; raise `StepFailed` for an error."""
    status = outcome.status
    unconverted = step.verb in _TRANSFORMS and status == Status.ZDNN_CONVERT_FAILURE
    if not outcome.valid and not unconverted:
        reason = str(outcome.refusal or get_status_message(status))
        raise StepFailed(run.loaded.node_name(step.node), step.verb, status, reason)
    operands = outcome.violation.operands if outcome.violation is not None else ()
    count = sum(operand.count for operand in operands)
    return Violation(step.node, step.verb, status, count, outcome.violation)
