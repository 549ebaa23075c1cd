# SPDX-License-Identifier: Apache-2.0
"""Breaking constraints one by one and in pairs: which answer wins.

A `Breach` breaks one numbered constraint of a call that is otherwise right and says what the
library answers with precheck and what the machine answers. A table of breaches is written in the
order in which the library tests them; the machine's order is `STAGES`. Nothing here is taken from
the code under test.

Source of the orders: zDNN API Reference 1.2.0, "Hardware Statuses"; zDNN library behaviour; the
priority of response codes is the emulator's documented reading.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from nnpa_emulator import FUNCTIONS, MACHINES, Alignment, Guest, ProgramCheck, Status, Ztensor, run
from nnpa_emulator.custom_machine import Overrides, customise
from nnpa_emulator.machine import FunctionCode

DATA, ACCESS = "data", "access"
Answer = int | str


@dataclass(slots=True)
class Case:
    """A call under construction: the machine that the library remembers, and the actual one."""

    name: str
    arguments: dict[str, Any]
    machine: str = "telum2"
    remembered: dict[str, Any] = field(default_factory=dict)
    actual: dict[str, Any] = field(default_factory=dict)
    alignment: dict[str, bool] = field(default_factory=dict)
    settle: Callable[["Case"], None] | None = None
    broken: list[str] = field(default_factory=list)

    def change(self, operand: str, **fields: int) -> None:
        """Change fields of an operand's transformed descriptor."""
        tensor: Ztensor = self.arguments[operand]
        tensor.transformed_desc = replace(tensor.transformed_desc, **fields)

    def answer(self, precheck: bool) -> tuple[Answer, str]:
        """Call; return the status or the kind of program check, and the constraint named.

        `settle` first mends what the breaches left inconsistent without meaning to.
        """
        if self.settle:
            self.settle(self)
        model = MACHINES[self.machine]
        guest = Guest(customise(model, Overrides(**self.remembered)), precheck=precheck)
        guest.machine = customise(model, Overrides(**self.actual))
        alignment = Alignment(**self.alignment)
        try:
            outcome = run(guest, self.name, self.arguments, alignment)
        except ProgramCheck as check:
            return check.kind, check.refusal.constraint
        return outcome.status, outcome.refusal.constraint if outcome.refusal else ""


@dataclass(frozen=True, slots=True)
class Breach:
    """`verifier` is None where precheck does not see it; `machine` is a status or DATA or ACCESS.

    `operand` is the position, in C order, of the operand whose format or type is broken: the
    machine looks at format and type of one operand before it looks at the next. `excludes` are
    labels that cannot be broken at the same time. `specific` says that a common response code is
    tested with the function specific ones, before them.
    """

    label: str
    apply: Callable[[Case], None]
    verifier: int | None
    machine: Answer
    operand: int = 0
    excludes: frozenset[str] = frozenset()
    specific: bool = False

    def break_in(self, case: Case) -> None:
        """Break the constraint and say so."""
        self.apply(case)
        case.broken.append(self.label)

    def expected_answer(self, name: str, precheck: bool) -> tuple[Answer, str]:
        """Return the expected answer and the constraint that it names."""
        seen = precheck and self.verifier is not None
        answer = self.verifier if seen and self.verifier is not None else self.machine
        if answer in _OPERAND_ANSWERS:
            return answer, "pipeline_c5"
        label = self.label if self.label.startswith("pipeline") else f"{name}_{self.label}"
        return answer, label

    def rank(self, precheck: bool) -> tuple[int, int, int]:
        """Order the answers: the library's memory, its verifier, then the machine's stages."""
        if self.label == "pipeline_c2":
            return -2, 0, 0
        if precheck and self.verifier is not None:
            return -1, 0, 0
        stage = STAGES.index(self.machine)
        if self.specific:
            return STAGES.index(Status.ZDNN_FUNC_RC_F000), -1, 0
        if self.machine in _OPERAND_ANSWERS:
            return STAGES.index(_OPERAND_ANSWERS[0]), self.operand, stage
        return stage, 0, 0


_OPERAND_ANSWERS = (Status.ZDNN_UNSUPPORTED_FORMAT, Status.ZDNN_UNSUPPORTED_TYPE)
MakeCase = Callable[[], Case]

STAGES: Sequence[Answer] = (
    Status.ZDNN_UNAVAILABLE_FUNCTION,
    Status.ZDNN_UNSUPPORTED_PARMBLOCK,
    Status.ZDNN_UNSUPPORTED_FORMAT,
    Status.ZDNN_UNSUPPORTED_TYPE,
    Status.ZDNN_EXCEEDS_MDIS,
    Status.ZDNN_EXCEEDS_MTS,
    Status.ZDNN_MISALIGNED_TENSOR,
    Status.ZDNN_MISALIGNED_SAVEAREA,
    Status.ZDNN_FUNC_RC_F000,
    Status.ZDNN_FUNC_RC_F001,
    Status.ZDNN_FUNC_RC_F002,
    Status.ZDNN_FUNC_RC_F003,
    Status.ZDNN_FUNC_RC_F004,
    DATA,
    ACCESS,
)


def overriding(**changes: Any) -> Callable[[Case], None]:
    """Break a constraint by moving the guest to a lesser machine."""

    def apply(case: Case) -> None:
        masks = {key: value for key, value in changes.items() if key in case.actual}
        case.actual |= changes | {key: masks[key] & case.actual[key] for key in masks}

    return apply


def changing(operand: str, **fields: int) -> Callable[[Case], None]:
    """Break a constraint by changing one transformed descriptor."""
    return lambda case: case.change(operand, **fields)


def arguing(**scalars: Any) -> Callable[[Case], None]:
    """Break a constraint by passing other scalars."""
    return lambda case: case.arguments.update(scalars)


def settled(*fields: Callable[[Case], None]) -> Callable[[Case], None]:
    """Break a constraint by several changes."""

    def apply(case: Case) -> None:
        for item in fields:
            item(case)

    return apply


def _without_buffer(case: Case) -> None:
    for operand_name in FUNCTIONS[case.name].tensors:
        case.arguments[operand_name].buffer = None


def common(code: FunctionCode, parmblk_format: int, *, save_area: bool = False) -> list[Breach]:
    """Return the breaches of what all operations share; inputs have at least 2 in dim4 or dim2.

    The library's memory of the format is asked first of all, before any verifier.
    """
    rest = 0x4000 if parmblk_format == 0 else 0x8000
    formats = rest << 112
    result = [
        Breach(
            "pipeline_c2",
            lambda case: case.remembered.update(parmblk_formats=formats),
            Status.ZDNN_UNAVAILABLE_FUNCTION,
            Status.ZDNN_UNAVAILABLE_FUNCTION,
        ),
    ]
    machine: list[tuple[str, Callable[[Case], None], Answer]] = [
        (
            "pipeline_c4",
            overriding(removed_functions=frozenset((int(code),))),
            Status.ZDNN_UNAVAILABLE_FUNCTION,
        ),
        ("pipeline_c4", overriding(parmblk_formats=formats), Status.ZDNN_UNSUPPORTED_PARMBLOCK),
        ("pipeline_c5", overriding(layout_formats=0x20000000), Status.ZDNN_UNSUPPORTED_FORMAT),
        ("pipeline_c5", overriding(data_types=0x0080), Status.ZDNN_UNSUPPORTED_TYPE),
        ("pipeline_c6", overriding(max_dims=(None, None, 1, 1)), Status.ZDNN_EXCEEDS_MDIS),
        ("pipeline_c7", overriding(max_tensor_size=4096), Status.ZDNN_EXCEEDS_MTS),
        (
            "pipeline_c8",
            lambda case: case.alignment.update(buffer_misaligned=True),
            Status.ZDNN_MISALIGNED_TENSOR,
        ),
        ("pipeline_c11", _without_buffer, ACCESS),
    ]
    if save_area:
        first = ("pipeline_c8", _misaligned_save_area, Status.ZDNN_MISALIGNED_SAVEAREA)
        machine.insert(-1, first)
    return result + [Breach(label, apply, None, answer) for label, apply, answer in machine]


def _misaligned_save_area(case: Case) -> None:
    case.alignment["save_area_misaligned"] = True


def check_alone(make: MakeCase, breach: Breach) -> None:
    """A call is right, and broken by one breach it gets the breach's answer, named by its label."""
    case = make()
    assert case.answer(True)[0] == case.answer(False)[0] == Status.ZDNN_OK
    for precheck in (True, False):
        case = make()
        breach.break_in(case)
        assert case.answer(precheck) == breach.expected_answer(case.name, precheck), precheck


def check_pairs(make: MakeCase, breaches: Sequence[Breach]) -> int:
    """Break every two constraints at once; return how many pairs there were.

    With precheck, pipeline_c2 wins, then what the verifier sees in the order of the table, then
    the machine's order, in which answers of the same kind keep the order of the table.
    """
    pairs = [
        (first, second)
        for first, second in combinations(breaches, 2)
        if second.label not in first.excludes and first.label not in second.excludes
    ]
    for first, second in pairs:
        for precheck in (True, False):
            case = make()
            second.break_in(case)
            first.break_in(case)
            winner = min(first, second, key=lambda breach: breach.rank(precheck))
            want = winner.expected_answer(case.name, precheck)
            got = case.answer(precheck)
            assert got == want, (first.label, second.label, precheck, got, want)
    return len(pairs)


def numbered(name: str) -> list[str]:
    """Return the labels of the numbered constraints in a function's docstring."""
    lines = [line.strip() for line in FUNCTIONS[name].doc.splitlines()]
    numbers = [line.split(".")[0] for line in lines if line.split(".")[0].isdigit()]
    return [f"c{number}" for number in numbers]


def labels(tables: Mapping[str, Sequence[Breach]], name: str) -> set[str]:
    """Return the labels of a function's own constraints that a table breaks."""
    return {breach.label for breach in tables[name] if not breach.label.startswith("pipeline")}
