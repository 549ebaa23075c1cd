# SPDX-License-Identifier: Apache-2.0
"""Every constraint of the matrix products, alone and against every other one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from nnpa_emulator import MACHINES, Guest, Status, run
from nnpa_emulator.machine import FORMAT_0, FORMAT_1, FunctionCode
from nnpa_emulator.ztensor import DataFormats, DataTypes

from tests.emulator.breaches import (
    DATA,
    Answer,
    Breach,
    Case,
    arguing,
    changing,
    check_alone,
    check_pairs,
    common,
    labels,
    numbered,
)
from tests.emulator.operands import blank, values

SHAPE, F000 = Status.ZDNN_INVALID_SHAPE, Status.ZDNN_FUNC_RC_F000
F001, F002 = Status.ZDNN_FUNC_RC_F001, Status.ZDNN_FUNC_RC_F002
UNAVAILABLE, OK = Status.ZDNN_UNAVAILABLE_FUNCTION, Status.ZDNN_OK
INT8, DLFLOAT16 = DataTypes.ZDNN_BINARY_INT8, DataTypes.ZDNN_DLFLOAT16
FEATURE, KERNEL = DataFormats.ZDNN_FORMAT_4DFEATURE, DataFormats.ZDNN_FORMAT_4DKERNEL
WEIGHTS = DataFormats.ZDNN_FORMAT_4DWEIGHTS
OPERANDS = ("input_a", "input_b", "input_c", "output")


@dataclass(frozen=True, slots=True)
class Judged(Breach):
    """A breach that the machine judges under another numbered constraint than the verifier."""

    machine_label: str = ""

    def expected_answer(self, name: str, precheck: bool) -> tuple[Answer, str]:
        """Return the expected answer and the constraint that it names."""
        if precheck:
            return Breach.expected_answer(self, name, precheck)
        return self.machine, f"{name}_{self.machine_label}"


def _everywhere(fmt: int) -> Any:
    """Return a breach that gives all operands one format, and DLFLOAT16."""

    def apply(case: Case) -> None:
        for operand in OPERANDS:
            case.change(operand, format=fmt, type=DLFLOAT16)

    return apply


def _quantized(kind: int) -> Any:
    """Return a breach that makes input_b INT8 weights, and input_a of a type."""

    def apply(case: Case) -> None:
        case.change("input_a", type=kind)
        case.change("input_b", type=INT8, format=WEIGHTS)

    return apply


SHAPES = [
    Breach("c1", changing("output", dim4=3), SHAPE, DATA),
    Breach("c2", changing("input_a", dim3=2), SHAPE, DATA),
    Breach("c3", changing("input_c", dim2=2), SHAPE, DATA),
    Breach("c4", changing("output", dim2=32), SHAPE, DATA),
    Breach("c5", changing("input_b", dim2=64), SHAPE, DATA),
    Breach("c6", changing("output", dim1=69), SHAPE, DATA),
]
FORMAT_0_OWN = [
    *SHAPES,
    Breach("c7", changing("input_b", type=INT8), Status.ZDNN_INVALID_SCALE,
           Status.ZDNN_UNSUPPORTED_TYPE, 1),
    Breach("c8", changing("output", type=INT8), Status.ZDNN_INVALID_TYPE,
           Status.ZDNN_UNSUPPORTED_TYPE, 3),
    Breach("c9", changing("output", format=KERNEL), Status.ZDNN_INVALID_FORMAT,
           Status.ZDNN_UNSUPPORTED_FORMAT, 3),
    Breach("c10", arguing(op_type=7), None, F000),
]  # fmt: skip
FORMAT_1_OWN = [
    *SHAPES,
    Judged("c7", _quantized(DLFLOAT16), Status.ZDNN_INVALID_SCALE, F002, machine_label="c12"),
    Judged("c8", changing("output", type=INT8), Status.ZDNN_INVALID_TYPE, F001,
           machine_label="c11"),
    Judged("c9", changing("output", format=WEIGHTS), Status.ZDNN_INVALID_FORMAT, F001,
           machine_label="c11"),
    Breach("c10", arguing(op_type=7), None, F000),
    Breach("c11", _everywhere(KERNEL), None, F001),
    Breach("c12", _quantized(INT8), None, F002),
]  # fmt: skip


def _table(code: FunctionCode, fmt: int) -> list[Breach]:
    """Join own and common breaches; format 1 judges types and formats together (c11)."""
    if fmt == FORMAT_0:
        return [*FORMAT_0_OWN, *common(code, fmt)]
    shared = [breach for breach in common(code, fmt) if breach.label != "pipeline_c5"]
    return [*FORMAT_1_OWN, *shared]


STACKED = FunctionCode.NNPA_MATMUL_OP
BCAST23, BCAST1 = FunctionCode.NNPA_MATMUL_OP_BCAST23, FunctionCode.NNPA_MATMUL_OP_BCAST1
# What is called, dim4 of input_a and input_b, the operation, the function code and its format.
USES: Mapping[str, tuple[str, int, int, int, FunctionCode, int]] = {
    "matmul_op": ("matmul_op", 2, 2, 0, STACKED, FORMAT_0),
    "matmul_bcast_op": ("matmul_bcast_op", 1, 2, 0, BCAST1, FORMAT_1),
    "bcast_stacked": ("matmul_bcast_op", 2, 2, 3, STACKED, FORMAT_0),
    "bcast23_addition": ("matmul_bcast_op", 2, 1, 0, BCAST23, FORMAT_0),
    "bcast23_comparison": ("matmul_bcast_op", 2, 1, 4, BCAST23, FORMAT_1),
    "matmul_transpose_op": ("matmul_transpose_op", 2, 2, 0, STACKED, FORMAT_1),
    "transpose_bcast23": ("matmul_transpose_op", 2, 1, 1, BCAST23, FORMAT_1),
    "transpose_bcast1": ("matmul_transpose_op", 1, 2, 1, BCAST1, FORMAT_1),
}
TABLES = {use: _table(code, fmt) for use, (*_, code, fmt) in USES.items()}
# Any other operation is a comparison, for which the library takes format 1.
TABLES["bcast23_addition"].remove(FORMAT_0_OWN[-1])
CASES = [(use, breach) for use, table in TABLES.items() for breach in table]


def make(use: str) -> Case:
    """Return a right call: 33 x 65 by 65 x 70, more than one stick and one page."""
    name, a, b, op_type, _, _ = USES[use]
    arguments: dict[str, Any] = {
        "input_a": values(np.ones((a, 1, 33, 65))),
        "input_b": values(np.ones((b, 1, 65, 70))),
        "input_c": values(np.ones((b, 1, 1, 70))),
        "op_type": op_type,
        "output": blank((max(a, b), 1, 33, 70)),
    }
    if name == "matmul_transpose_op":
        arguments |= {"transpose_a": False, "transpose_b": False}
    return Case(name, arguments)


@pytest.mark.parametrize(("use", "breach"), CASES, ids=[f"{u}_{b.label}" for u, b in CASES])
def test_constraint(use: str, breach: Breach) -> None:
    """A broken constraint is answered as documented, with precheck and without."""
    check_alone(lambda: make(use), breach)


@pytest.mark.parametrize("use", TABLES)
def test_of_two_breaches_the_first_in_order_wins(use: str) -> None:
    """For every two broken constraints the documented one is answered."""
    assert check_pairs(lambda: make(use), TABLES[use]) >= 90


@pytest.mark.parametrize("name", ["matmul_op", "matmul_bcast_op", "matmul_transpose_op"])
def test_every_numbered_constraint_is_broken(name: str) -> None:
    """The docstring's numbers are those that the table breaks."""
    assert set(numbered(name)) == labels(TABLES, name)


@pytest.mark.parametrize("operand", OPERANDS[1:])
def test_types_before_formats_tensor_by_tensor(operand: str) -> None:
    """The format of one operand is tested before the type of the next, after its own type."""
    for use in ("matmul_op", "matmul_bcast_op", "matmul_transpose_op"):
        case = make(use)
        case.change(operand, format=KERNEL)
        for later in OPERANDS[OPERANDS.index(operand) + 1 :]:
            case.change(later, type=INT8)
        assert case.answer(True) == (Status.ZDNN_INVALID_FORMAT, f"{case.name}_c9")
        case.change("input_c" if operand == "input_b" else operand, type=INT8)
        if operand != "input_b":
            assert case.answer(True) == (Status.ZDNN_INVALID_TYPE, f"{case.name}_c8")


@pytest.mark.parametrize("turns", [(False, True), (True, False), (True, True)])
def test_turned_operands_are_checked_as_they_are_stored(turns: tuple[bool, bool]) -> None:
    """Rows, inner and columns are looked for where transposed operands store them."""
    sizes = {
        "input_a": (65, 33) if turns[0] else (33, 65),
        "input_b": (70, 65) if turns[1] else (65, 70),
    }
    for label, operand, field, size in (
        ("", "input_a", "dim2", sizes["input_a"][0]),
        ("c4", "input_a", "dim1" if turns[0] else "dim2", 31),
        ("c5", "input_a", "dim2" if turns[0] else "dim1", 64),
        ("c6", "input_b", "dim2" if turns[1] else "dim1", 71),
    ):
        case = make("matmul_transpose_op")
        for item, (rows, columns) in sizes.items():
            case.arguments[item] = values(np.ones((2, 1, rows, columns)))
        case.arguments |= {"transpose_a": turns[0], "transpose_b": turns[1]}
        case.change(operand, **{field: size})
        want = (SHAPE, f"matmul_transpose_op_{label}") if label else (OK, "")
        assert case.answer(True) == want
        assert case.answer(False)[0] == (DATA if label else OK)


@pytest.mark.parametrize(
    ("use", "telum1"),
    [
        ("matmul_op", OK),
        ("bcast_stacked", OK),
        ("bcast23_addition", OK),
        ("bcast23_comparison", UNAVAILABLE),
        ("matmul_bcast_op", UNAVAILABLE),
        ("matmul_transpose_op", UNAVAILABLE),
        ("transpose_bcast23", UNAVAILABLE),
        ("transpose_bcast1", UNAVAILABLE),
    ],
)
def test_availability(use: str, telum1: Status) -> None:
    """Uses of format 1 need a Telum II, all others run on both Telums, and none without NNPA."""
    machines = {"telum1": telum1, "telum2": OK}
    machines |= dict.fromkeys(("z15", "telum1-nonnpa", "telum2-nonnpa"), UNAVAILABLE)
    for machine, status in machines.items():
        case = make(use)
        case.machine = machine
        for precheck in (True, False):
            assert case.answer(precheck)[0] == status, (machine, precheck)


@pytest.mark.parametrize("op_type", range(7))
def test_every_operation_of_matmul_op_runs_on_telum1(op_type: int) -> None:
    """All seven operations of matmul_op are parameter block format 0."""
    case = make("matmul_op")
    case.machine = "telum1"
    case.arguments["op_type"] = op_type
    assert case.answer(True)[0] == OK


@pytest.mark.parametrize("use", TABLES)
def test_operation_numbers_are_cut_to_eight_bits(use: str) -> None:
    """256 reaches the machine as an addition, 263 as the unknown operation 7."""
    for number, status in ((256, OK), (263, F000), (-256, OK)):
        case = make(use)
        case.arguments["op_type"] = number
        assert case.answer(True)[0] == status


def _on_library(use: str, library: str, **arguments: Any) -> tuple[int, str]:
    case = make(use)
    guest = Guest(MACHINES["telum2"], library, precheck=True)
    outcome = run(guest, case.name, case.arguments | arguments)
    return outcome.status, outcome.refusal.constraint if outcome.refusal else ""


@pytest.mark.parametrize("library", ["1.0.0", "1.0.1"])
def test_bcast_op_of_library_1_0(library: str) -> None:
    """Library 1.0.x always means BCAST23: it adds, compares never and broadcasts input_b only."""
    assert _on_library("bcast23_addition", library) == (OK, "")
    assert _on_library("bcast23_comparison", library) == (F000, "matmul_bcast_op_c10")
    assert _on_library("matmul_bcast_op", library) == (SHAPE, "matmul_bcast_op_c1")
    assert _on_library("bcast_stacked", library, op_type=0) == (SHAPE, "matmul_bcast_op_c1")
    assert _on_library("bcast23_comparison", "1.1.0") == (OK, "")


def test_outputs_are_marked_when_they_are_written() -> None:
    """A refused call leaves is_transformed as it was, a computed one sets it."""
    for use in TABLES:
        case = make(use)
        case.arguments["op_type"] = 7
        case.answer(True)
        assert not case.arguments["output"].is_transformed
        case.arguments["op_type"] = 256
        case.answer(True)
        assert case.arguments["output"].is_transformed
