# SPDX-License-Identifier: Apache-2.0
"""Every constraint of quantized_matmul_op, alone and against every other one."""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from nnpa_emulator import Status, Ztensor
from nnpa_emulator.machine import FORMAT_1, FunctionCode
from nnpa_emulator.ztensor import DataFormats, DataLayouts, DataTypes, TensorDesc

from tests.emulator.breaches import (
    ACCESS,
    DATA,
    STAGES,
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

NAME = "quantized_matmul_op"
SHAPE, OK = Status.ZDNN_INVALID_SHAPE, Status.ZDNN_OK
F001, F002 = Status.ZDNN_FUNC_RC_F001, Status.ZDNN_FUNC_RC_F002
INT8, DLFLOAT16 = DataTypes.ZDNN_BINARY_INT8, DataTypes.ZDNN_DLFLOAT16
FEATURE, WEIGHTS = DataFormats.ZDNN_FORMAT_4DFEATURE, DataFormats.ZDNN_FORMAT_4DWEIGHTS


@dataclass(frozen=True, slots=True)
class Quantized(Breach):
    """A breach with a turn of its own before the verifier, or judged by another constraint later.

    `turn` below 0 says when the library tests it, 0: when the instruction is issued.
    """

    turn: float = 0
    machine_label: str = ""

    def expected_answer(self, name: str, precheck: bool) -> tuple[Answer, str]:
        """Return the expected answer and the constraint that it names."""
        if precheck and self.verifier is not None:
            return self.verifier, f"{name}_{self.label}"
        label = self.machine_label or self.label
        return self.machine, label if label.startswith("pipeline") else f"{name}_{label}"

    def rank(self, precheck: bool) -> tuple[int, int, int]:
        """Order the answers: what the library tests itself, its verifier, the machine."""
        if self.turn:
            return int(self.turn), 0, 0
        if precheck and self.verifier is not None:
            return -1, 0, 0
        return STAGES.index(self.machine), 0, 0


def keeping(operand: str, **fields: float) -> Callable[[Case], None]:
    """Break a constraint by another rec_scale or offset of an operand."""

    def apply(case: Case) -> None:
        for field, value in fields.items():
            setattr(case.arguments[operand], field, value)

    return apply


def _nonzero_offset(case: Case) -> None:
    case.arguments["pre_computed"] = True
    case.arguments["input_b"].offset = 3.0


def _plain(case: Case) -> None:
    case.change("input_a", type=DLFLOAT16)
    case.change("input_b", type=DLFLOAT16, format=FEATURE)


def _without(name: str) -> Callable[[Case], None]:
    def apply(case: Case) -> None:
        case.arguments[name].buffer = None

    return apply


def _misaligned_work_area(case: Case) -> None:
    case.alignment["work_area_misaligned"] = True


OFFSET, SCALE = Status.ZDNN_INVALID_OFFSET, Status.ZDNN_INVALID_SCALE
CLIPPING, TYPE = Status.ZDNN_INVALID_CLIPPING_VALUE, Status.ZDNN_INVALID_TYPE
FLY_ONLY = frozenset(("c9", "c10", "c11"))
OWN: list[Breach] = [
    Quantized("c1", _nonzero_offset, OFFSET, OFFSET, turn=-5),
    Quantized("c2", changing("input_c", type=DLFLOAT16), TYPE, TYPE, turn=-3),
    Quantized("c3", changing("output", dim4=3), SHAPE, DATA),
    Quantized("c4", changing("input_a", dim3=2), SHAPE, DATA),
    Quantized("c5", changing("input_c", dim2=2), SHAPE, DATA),
    Quantized("c6", changing("output", dim2=32), SHAPE, DATA),
    Quantized("c7", changing("input_b", dim2=64), SHAPE, DATA),
    Quantized("c8", changing("output", dim1=69), SHAPE, DATA),
    Quantized("c9", keeping("input_a", rec_scale=0.0), SCALE, F002, machine_label="c16"),
    Quantized("c10", keeping("input_a", offset=1e30), OFFSET, DATA),
    Quantized("c11", arguing(clip_min=5, clip_max=5), CLIPPING, DATA),
    Quantized("c12", changing("output", type=INT8), TYPE, F001, machine_label="c15"),
    Quantized("c13", changing("output", format=WEIGHTS), Status.ZDNN_INVALID_FORMAT, F001,
              machine_label="c15"),
    Quantized("c14", arguing(op_type=7), None, Status.ZDNN_FUNC_RC_F000),
    Quantized("c15", _plain, None, F001, excludes=FLY_ONLY),
    Quantized("c16", keeping("input_b", rec_scale=0.0), None, F002),
]  # fmt: skip
# The library itself reads input_b and input_c, before the verifier.
READING: list[Breach] = [
    Quantized("pipeline_c11", _without("input_b"), None, ACCESS, turn=-2),
    Quantized("pipeline_c11", _without("input_c"), None, ACCESS, turn=-2),
]
MISALIGNED = Quantized("pipeline_c8", _misaligned_work_area, None, Status.ZDNN_MISALIGNED_TENSOR)
LATE = Quantized("pipeline_c11", _without("output"), None, ACCESS)
CODES = {
    "fly": FunctionCode.NNPA_MATMUL_OP,
    "normal": FunctionCode.NNPA_MATMUL_OP,
    "bcast1": FunctionCode.NNPA_MATMUL_OP_BCAST1,
    "bcast23": FunctionCode.NNPA_MATMUL_OP_BCAST23,
}


def _memory(breach: Breach) -> Breach:
    """Give the library's memory of the machine its place: after c1, before c2."""
    if breach.label != "pipeline_c2":
        return breach
    return Quantized(breach.label, breach.apply, None, breach.machine, turn=-4)


def _table(use: str) -> list[Breach]:
    shared = [_memory(breach) for breach in common(CODES[use], FORMAT_1)]
    shared = [breach for breach in shared if breach.label not in ("pipeline_c5", "pipeline_c11")]
    own = OWN if use == "fly" else [breach for breach in OWN if breach.label not in FLY_ONLY]
    return [*own, *shared, *READING, MISALIGNED, LATE]


TABLES = {use: _table(use) for use in CODES}
CASES = [(use, breach) for use, table in TABLES.items() for breach in table]
STACKS = {"fly": (2, 2), "normal": (2, 2), "bcast1": (1, 2), "bcast23": (2, 1)}


@cache
def _bytes(fmt: int, *dims: int) -> Ztensor:
    """Return zero bytes, with room for any type."""
    d4, d3, d2, d1 = dims
    desc = TensorDesc(DataLayouts.ZDNN_NHWC, fmt, INT8, d4, d3, d2, d1)
    buffer = np.zeros(1 << 18, np.uint8)
    return Ztensor(desc, desc, buffer.nbytes, buffer, True, 0.5, 0.0)


@cache
def _reals(*dims: int) -> Ztensor:
    ztensor = values(np.ones(dims))
    ztensor.rec_scale = 0.5
    return ztensor


def make(use: str) -> Case:
    """Return a right call: 33 x 65 by 65 x 70, more than one stick and one page."""
    a, b = STACKS[use]
    left = _reals(a, 1, 33, 65) if use == "fly" else _bytes(FEATURE, a, 1, 33, 65)
    output = blank((max(a, b), 1, 33, 70))
    output.rec_scale = 0.25
    arguments: dict[str, Any] = {
        "input_a": copy(left),
        "input_b": copy(_bytes(WEIGHTS, b, 1, 65, 70)),
        "input_c": copy(_bytes(FEATURE, b, 1, 1, 70)),
        "op_type": 0,
        "clip_min": -128,
        "clip_max": 127,
        "disable_clipping": False,
        "dequantize": False,
        "pre_computed": False,
        "output": output,
    }
    return Case(NAME, arguments)


@pytest.mark.parametrize(("use", "breach"), CASES, ids=[f"{u}_{b.label}" for u, b in CASES])
def test_constraint(use: str, breach: Breach) -> None:
    """A broken constraint is answered as documented, with precheck and without."""
    check_alone(lambda: make(use), breach)


@pytest.mark.parametrize("use", TABLES)
def test_of_two_breaches_the_first_in_order_wins(use: str) -> None:
    """For every two broken constraints the documented one is answered."""
    assert check_pairs(lambda: make(use), TABLES[use]) >= 100


def test_every_numbered_constraint_is_broken() -> None:
    """The docstring's numbers are those that the table breaks."""
    assert set(numbered(NAME)) == labels(TABLES, "fly")


def test_availability() -> None:
    """The operation is for Telum II alone, but c1 is tested before the machine is."""
    for machine in ("telum1", "z15", "telum1-nonnpa", "telum2-nonnpa"):
        for precheck in (True, False):
            case = make("fly")
            case.machine = machine
            lost = Status.ZDNN_UNAVAILABLE_FUNCTION
            assert case.answer(precheck)[0] == lost, machine
            _nonzero_offset(case)
            assert case.answer(precheck) == (OFFSET, f"{NAME}_c1"), machine


def test_offset_of_the_weights_is_free_without_pre_computed() -> None:
    """c1 is about pre_computed calls only, and about an offset other than 0."""
    case = make("fly")
    case.arguments["input_b"].offset = 3.0
    assert case.answer(True)[0] == OK


@pytest.mark.parametrize("use", ["fly", "normal"])
@pytest.mark.parametrize("scale", [0.0, -0.0, float("inf"), float("nan"), 1e30, 1e-30])
@pytest.mark.parametrize("operand", ["input_a", "input_b", "output"])
def test_scales_that_the_machine_refuses(operand: str, scale: float, use: str) -> None:
    """A scale that is not a number, or zero, ends as F002; on the fly precheck sees input_a's."""
    case = make(use)
    case.arguments[operand].rec_scale = scale
    seen = operand == "input_a" and use == "fly"
    assert case.answer(True) == ((SCALE, f"{NAME}_c9") if seen else (F002, f"{NAME}_c16"))
    assert case.answer(False) == (F002, f"{NAME}_c16")


def test_a_negative_tiny_scale_passes_the_verifier() -> None:
    """-1e-30 is -0 in DLFLOAT16, which only the machine refuses."""
    case = make("fly")
    case.arguments["input_a"].rec_scale = -1e-30
    assert case.answer(True) == (F002, f"{NAME}_c16")


def test_clips_of_normal_calls_are_not_tested() -> None:
    """With an INT8 input_a nothing tests the order of clip_min and clip_max."""
    case = make("normal")
    case.arguments |= {"clip_min": 5, "clip_max": -5}
    assert case.answer(True)[0] == case.answer(False)[0] == OK


def test_weights_as_the_first_operand_are_f001() -> None:
    """INT8 weights as input_a are a combination that the machine refuses, not an unknown format."""
    case = make("normal")
    case.change("input_a", format=WEIGHTS)
    assert case.answer(False) == (F001, f"{NAME}_c15")
    assert case.answer(True) == (Status.ZDNN_INVALID_FORMAT, f"{NAME}_c13")


def test_weights_as_the_bias_fail_in_the_work_area() -> None:
    """c~ takes over the format of input_c, and the verifier refuses it there."""
    case = make("normal")
    case.change("input_c", format=WEIGHTS)
    assert case.answer(True) == (Status.ZDNN_INVALID_FORMAT, f"{NAME}_c13")


def test_pre_computed_needs_no_work_area() -> None:
    """With pre_computed input_c is DLFLOAT16, and a misaligned work area is not looked at."""
    case = make("fly")
    case.arguments |= {"pre_computed": True, "input_c": copy(_reals(2, 1, 1, 70))}
    _misaligned_work_area(case)
    assert case.answer(True)[0] == OK
    case.change("input_c", type=INT8)
    assert case.answer(True) == (TYPE, f"{NAME}_c12")
