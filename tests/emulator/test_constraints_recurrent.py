# SPDX-License-Identifier: Apache-2.0
"""Every constraint of lstm and gru, alone and against every other one, in the order of events."""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from nnpa_emulator import FUNCTIONS, MACHINES, Guest, ProgramCheck, Status, Ztensor, run
from nnpa_emulator.machine import FunctionCode
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
    labels,
    numbered,
    overriding,
)
from tests.emulator.operands import blank, values

SHAPE, OK = Status.ZDNN_INVALID_SHAPE, Status.ZDNN_OK
FWD, BWD, BIDIR = 0, 1, 2
GATES = {"lstm": 4, "gru": 3}
ACTIVATION = {"lstm": FunctionCode.NNPA_LSTMACT, "gru": FunctionCode.NNPA_GRUACT}
TIMESTEPS, BATCH, FEATURES, HIDDEN, PADDED = 2, 33, 70, 65, 128
# When what is tested: the library's memory of the machine, its own checks, the instructions.
MEMORY, LIBRARY, FUSED, ADDED, ACTIVATED, TOLERATED = range(6)
SLICED = ("h0", "c0", "weights", "biases", "hidden_weights", "hidden_biases")


@dataclass(frozen=True, slots=True)
class Turn(Breach):
    """A breach of a composed operation: without precheck it is answered when its turn comes.

    `named` is the constraint named then, `verified` the one named by the verifier.
    """

    turn: int = FUSED
    named: str = ""
    verified: str = ""

    def expected_answer(self, name: str, precheck: bool) -> tuple[Answer, str]:
        """Return the expected answer and the constraint that it names."""
        if precheck and self.verifier is not None:
            return self.verifier, f"{name}_{self.verified or self.label}"
        return self.machine, self.named

    def rank(self, precheck: bool) -> tuple[int, int, int]:
        """Order the answers: the verifier, the library's memory, then the turns."""
        if precheck and self.verifier is not None:
            return -1, 0, 0
        stage = STAGES.index(self.machine) if self.machine in STAGES else -1
        number = int(self.named.rpartition("c")[2]) if self.machine == DATA else 0
        return self.turn, stage, number


def _all_once(case: Case) -> None:
    """Give every tensor that has directions only one."""
    for name in SLICED:
        if name in case.arguments:
            case.change(name, dim4=1)


def _without(name: str) -> Callable[[Case], None]:
    def apply(case: Case) -> None:
        case.arguments[name].buffer = None

    return apply


def _forget(case: Case) -> None:
    case.remembered["parmblk_formats"] = 0x4000 << 112


def _remove(code: FunctionCode) -> Callable[[Case], None]:
    """Move the guest to a machine that also lacks a function."""

    def apply(case: Case) -> None:
        removed: frozenset[int] = case.actual.get("removed_functions", frozenset())
        case.actual["removed_functions"] = removed | {int(code)}

    return apply


def _misalign(which: str) -> Callable[[Case], None]:
    return lambda case: case.alignment.update({which: True})


def _own(name: str) -> dict[str, Turn]:
    """Return the breaches of the verifier for a forward layer, by lstm's numbers."""
    width = GATES[name] * PADDED

    def data(label: str, named: str, turn: int, operand: str, **fields: int) -> Turn:
        return Turn(label, changing(operand, **fields), SHAPE, DATA, turn=turn, named=named)

    state = "c0" if name == "lstm" else "h0"
    result = [
        Turn("c1", changing("input", dim4=0), SHAPE, SHAPE, turn=LIBRARY, named=f"{name}_c1"),
        Turn("c2", changing("hn_output", dim4=5), SHAPE, OK, turn=TOLERATED),
        Turn("c3", changing("hn_output", dim2=32), SHAPE, OK, turn=TOLERATED),
        data("c4", "matmul_bcast_op_c5", FUSED, "weights", dim2=69),
        data("c5", "matmul_bcast_op_c2", FUSED, "input", dim3=2),
        data("c6", "matmul_bcast_op_c3", FUSED, "biases", dim2=2),
        data("c7", "matmul_op_c1", ADDED, "hidden_weights", dim4=2),
        Turn("c9", changing("hn_output", dim1=64), SHAPE, OK, turn=TOLERATED),
        data("c10", "matmul_bcast_op_c6", FUSED, "weights", dim1=width - 1),
        data("c11", "activation_c1", ACTIVATED, state, dim1=64),
        data("c12", "matmul_op_c5", ADDED, "hidden_weights", dim2=64),
        Turn("c13", changing("h0", type=DataTypes.ZDNN_BINARY_INT8), Status.ZDNN_INVALID_TYPE,
             Status.ZDNN_UNSUPPORTED_TYPE, turn=ADDED, named="pipeline_c5"),
        Turn("c14", changing("h0", format=DataFormats.ZDNN_FORMAT_4DKERNEL),
             Status.ZDNN_INVALID_FORMAT, Status.ZDNN_UNSUPPORTED_FORMAT, turn=ADDED,
             named="pipeline_c5"),
    ]  # fmt: skip
    return {breach.label: breach for breach in result if (name, breach.label) != ("gru", "c11")}


def _common(name: str) -> list[Turn]:
    """Return the breaches of what the instructions share; precheck does not see them."""

    def machine(
        label: str, apply: Callable[[Case], None], answer: Answer, turn: int = FUSED
    ) -> Turn:
        return Turn(label, apply, None, answer, turn=turn, named=label)

    lost = Status.ZDNN_UNAVAILABLE_FUNCTION
    codes = (FunctionCode.NNPA_MATMUL_OP_BCAST23, FunctionCode.NNPA_MATMUL_OP, ACTIVATION[name])
    result = [machine("pipeline_c2", _forget, lost, MEMORY)]
    result += [
        machine("pipeline_c4", _remove(code), lost, turn)
        for turn, code in zip((FUSED, ADDED, ACTIVATED), codes, strict=True)
    ]
    unknown = Status.ZDNN_UNSUPPORTED_PARMBLOCK
    misaligned = Status.ZDNN_MISALIGNED_TENSOR
    return [
        *result,
        machine("pipeline_c4", overriding(parmblk_formats=0x4000 << 112), unknown),
        machine("pipeline_c6", overriding(max_dims=(None, None, 1, 1)), Status.ZDNN_EXCEEDS_MDIS),
        machine("pipeline_c7", overriding(max_tensor_size=4096), Status.ZDNN_EXCEEDS_MTS),
        machine("pipeline_c8", _misalign("buffer_misaligned"), misaligned),
        machine("pipeline_c8", _misalign("work_area_misaligned"), misaligned),
        machine("pipeline_c11", _without("weights"), ACCESS),
        machine("pipeline_c11", _without("h0"), ACCESS, ADDED),
        machine("pipeline_c11", _without("hn_output"), ACCESS, ACTIVATED),
    ]


def _relabelled(name: str, breaches: list[Turn]) -> list[Breach]:
    """Give the breaches gru's numbers, which lack lstm's c11."""
    if name == "lstm":
        return list(breaches)

    def gru(label: str) -> str:
        number = int(label.rpartition("c")[2])
        own = label.startswith(("c", "gru_c"))
        return label[: label.rindex("c") + 1] + str(number - (own and number > 11))

    return [
        replace(breach, label=gru(breach.label), named=gru(breach.named) if breach.named else "")
        for breach in breaches
    ]


def _tables() -> dict[str, list[Breach]]:
    """Return three tables for each function: forward, bidirectional, and halves that lack one."""
    tables: dict[str, list[Breach]] = {}
    for name in GATES:
        own, common = _own(name), _common(name)
        direction = Turn("c15", arguing(direction=7), None, Status.ZDNN_INVALID_DIRECTION,
                         turn=LIBRARY, named=f"{name}_c15")  # fmt: skip
        tables[name] = _relabelled(name, [*own.values(), direction, *common])
        one_way = Turn("c8", arguing(direction=FWD), SHAPE, DATA, named="matmul_bcast_op_c1")
        width = changing("weights", dim4=3)
        both = own | {"c7": Turn("c7", width, SHAPE, OK, turn=TOLERATED)}
        both["c9"] = replace(own["c9"], apply=changing("hn_output", dim1=129))
        before = [both[label] for label in ("c1", "c2", "c3", "c4", "c5", "c6", "c7")]
        after = [breach for label, breach in both.items() if int(label[1:]) > 8]
        tables[f"{name}_bidir"] = _relabelled(name, [*before, one_way, *after, *common])
        halves = Turn("c16", _all_once, SHAPE, SHAPE, turn=LIBRARY, named=f"{name}_c16",
                      verified="c8")  # fmt: skip
        tables[f"{name}_halves"] = _relabelled(name, [*before[:6], halves, *common])
    return tables


@cache
def _eighths(*dims: int) -> Ztensor:
    return values(np.full(dims, 0.125))


def eighths(*dims: int) -> Ztensor:
    """Return an input of eighths; all cases share its sticks."""
    return copy(_eighths(*dims))


TABLES = _tables()
CASES = [(use, breach) for use, table in TABLES.items() for breach in table]


def make(use: str) -> Case:
    """Return a right call of a layer whose tensors are more than a stick wide and a page high."""
    name, _, side = use.partition("_")
    directions = 2 if side else 1
    width = GATES[name] * PADDED
    columns = 2 * PADDED if side else HIDDEN

    arguments: dict[str, Any] = {
        "input": eighths(TIMESTEPS, 1, BATCH, FEATURES),
        "h0": eighths(directions, 1, BATCH, HIDDEN),
    }
    if name == "lstm":
        arguments["c0"] = eighths(directions, 1, BATCH, HIDDEN)
    arguments |= {
        "weights": eighths(directions, 1, FEATURES, width),
        "biases": eighths(directions, 1, 1, width),
        "hidden_weights": eighths(directions, 1, HIDDEN, width),
        "hidden_biases": eighths(directions, 1, 1, width),
        "direction": BIDIR if side else FWD,
        "hn_output": blank((5, 1, BATCH, columns)),
    }
    hn = arguments["hn_output"]
    hn.transformed_desc = replace(hn.transformed_desc, dim4=TIMESTEPS)
    if name == "lstm":
        arguments["cf_output"] = blank((1, 1, BATCH, columns))
    return Case(name, arguments)


@pytest.mark.parametrize(("use", "breach"), CASES, ids=[f"{u}_{b.label}" for u, b in CASES])
def test_constraint(use: str, breach: Breach) -> None:
    """A broken constraint is answered as documented, with precheck and without."""
    check_alone(lambda: make(use), breach)


@pytest.mark.parametrize("use", TABLES)
def test_of_two_breaches_the_first_in_order_wins(use: str) -> None:
    """For every two broken constraints the one whose turn comes first is answered."""
    assert check_pairs(lambda: make(use), TABLES[use]) >= 100


@pytest.mark.parametrize("name", GATES)
def test_every_numbered_constraint_is_broken(name: str) -> None:
    """The docstring's numbers are those that the tables break."""
    tables = [labels(TABLES, use) for use in TABLES if use.startswith(name)]
    assert set(numbered(name)) == set().union(*tables)


@pytest.mark.parametrize("tensor", [*SLICED[1:], "hn_output", "cf_output"])
@pytest.mark.parametrize("name", GATES)
def test_types_before_formats_tensor_by_tensor(name: str, tensor: str) -> None:
    """Each tensor's type, then its format, is compared with the input's, tensor by tensor."""
    case = make(name)
    if tensor not in case.arguments:
        return
    number = 13 if name == "lstm" else 12
    case.change(tensor, format=DataFormats.ZDNN_FORMAT_4DKERNEL)
    assert case.answer(True) == (Status.ZDNN_INVALID_FORMAT, f"{name}_c{number + 1}")
    case.change(tensor, type=DataTypes.ZDNN_BINARY_INT8)
    assert case.answer(True) == (Status.ZDNN_INVALID_TYPE, f"{name}_c{number}")


@pytest.mark.parametrize("name", GATES)
def test_what_the_library_accepts_the_machine_may_not(name: str) -> None:
    """Tensors that agree among themselves pass the layer's verifier, not the instruction's."""
    case = make(name)
    for operand_name in FUNCTIONS[name].tensors:
        case.change(operand_name, format=DataFormats.ZDNN_FORMAT_4DKERNEL)
    assert case.answer(True) == (Status.ZDNN_INVALID_FORMAT, "matmul_bcast_op_c9")
    assert case.answer(False) == (Status.ZDNN_UNSUPPORTED_FORMAT, "pipeline_c5")
    case = make(name)
    for operand_name in FUNCTIONS[name].tensors:
        case.change(operand_name, type=DataTypes.ZDNN_BINARY_INT8)
    assert case.answer(True) == (Status.ZDNN_INVALID_FORMAT, "matmul_bcast_op_c9")


@pytest.mark.parametrize("name", GATES)
def test_availability(name: str) -> None:
    """Layers run on both Telums, in format 0, and not on a machine without NNPA."""
    lost = Status.ZDNN_UNAVAILABLE_FUNCTION
    machines = dict.fromkeys(("telum1", "telum2"), OK)
    machines |= dict.fromkeys(("z15", "telum1-nonnpa", "telum2-nonnpa"), lost)
    for machine, status in machines.items():
        case = make(name)
        case.machine = machine
        for precheck in (True, False):
            assert case.answer(precheck)[0] == status, machine


def answer_of_size(name: str, machine: str, hidden: int, features: int = 1) -> Status | str:
    """Return the answer of a layer of one timestep and one row whose tensors have no buffers."""
    width = GATES[name] * (-(-hidden // 64) * 64)
    dims: dict[str, tuple[int, int, int, int]] = {
        "input": (1, 1, 1, features),
        "h0": (1, 1, 1, hidden),
        "c0": (1, 1, 1, hidden),
        "weights": (1, 1, features, width),
        "biases": (1, 1, 1, width),
        "hidden_weights": (1, 1, hidden, width),
        "hidden_biases": (1, 1, 1, width),
        "hn_output": (1, 1, 1, hidden),
        "cf_output": (1, 1, 1, hidden),
    }
    arguments: dict[str, Any] = {"direction": FWD}
    for operand_name in FUNCTIONS[name].tensors:
        desc = TensorDesc(DataLayouts.ZDNN_NHWC, 0, 0, *dims[operand_name])
        arguments[operand_name] = Ztensor(desc, desc)
    try:
        return Status(run(Guest(MACHINES[machine], precheck=True), name, arguments).status)
    except ProgramCheck as check:
        return check.kind


@pytest.mark.parametrize(
    ("name", "machine", "hidden", "answer"),
    [
        ("lstm", "telum1", 8192, ACCESS),
        ("lstm", "telum1", 8193, Status.ZDNN_EXCEEDS_MDIS),
        ("gru", "telum1", 10880, ACCESS),
        ("gru", "telum1", 10881, Status.ZDNN_EXCEEDS_MDIS),
        ("lstm", "telum2", 8193, ACCESS),
        ("gru", "telum2", 10881, ACCESS),
        ("lstm", "telum2", 524288, ACCESS),
        ("lstm", "telum2", 524289, Status.ZDNN_EXCEEDS_MDIS),
        ("gru", "telum2", 699008, ACCESS),
        ("gru", "telum2", 699009, Status.ZDNN_EXCEEDS_MDIS),
    ],
)
def test_hidden_sizes_are_bound_by_the_gates(
    name: str, machine: str, hidden: int, answer: Status | str
) -> None:
    """All padded gates fit the largest dim1; within it a layer gets as far as its buffers."""
    assert answer_of_size(name, machine, hidden) == answer


def test_documented_limit_is_below_the_enforced_one() -> None:
    """zdnn_get_max_for_dim(2) / 4 and / 3 hidden elements are let through where they are fewer."""
    for machine in ("telum1", "telum2"):
        guest = Guest(MACHINES[machine])
        for name, gates in GATES.items():
            documented = guest.cached.max_for_dim(2) // gates // 64 * 64
            enforced = guest.cached.max_for_dim(1) // gates // 64 * 64
            assert documented <= enforced
            assert answer_of_size(name, machine, documented) == ACCESS


@pytest.mark.parametrize("name", GATES)
def test_storage_that_is_not_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A work area that cannot be allocated is ZDNN_ALLOCATION_FAILURE."""

    def exhausted(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("nnpa_emulator.engines.recurrent.scratch", exhausted)
    case = make(name)
    assert case.answer(False)[0] == Status.ZDNN_ALLOCATION_FAILURE


@pytest.mark.parametrize("name", GATES)
def test_accepted_calls_are_accepted_again(name: str) -> None:
    """A second call with the same descriptors computes the same, a misaligned one is refused."""
    case = make(name)
    guest = Guest(MACHINES["telum2"], precheck=True)
    for _ in range(2):
        assert run(guest, name, case.arguments).status == OK
    case.arguments["direction"] = BWD
    assert run(guest, name, case.arguments).status == OK
    case.arguments["h0"].buffer = None
    with pytest.raises(ProgramCheck, match=r"h0\.buffer"):
        run(guest, name, case.arguments)
