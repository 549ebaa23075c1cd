# SPDX-License-Identifier: Apache-2.0
"""Every constraint of the elementwise family and of the pipeline, alone and against every other.

A test's id is the constraint's name: `add_c1`, `pipeline_c6`. Which answer wins is written down in
the tables: rows are in the library's order, the machine's order is `breaches.STAGES`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from nnpa_emulator import (
    FUNCTIONS,
    MACHINES,
    Alignment,
    Guest,
    NotInLibrary,
    ProgramCheck,
    Status,
    Ztensor,
    run,
)
from nnpa_emulator.machine import FORMAT_0, FORMAT_1, FunctionCode
from nnpa_emulator.ztensor import DataFormats, DataTypes

from tests.emulator.breaches import (
    ACCESS,
    DATA,
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
from tests.emulator.operands import blank, guest, values

SHAPE, TYPE, FORMAT = (
    Status.ZDNN_INVALID_SHAPE,
    Status.ZDNN_INVALID_TYPE,
    Status.ZDNN_INVALID_FORMAT,
)
CODES = {
    "add": FunctionCode.NNPA_ADD,
    "sub": FunctionCode.NNPA_SUB,
    "mul": FunctionCode.NNPA_MUL,
    "div": FunctionCode.NNPA_DIV,
    "min": FunctionCode.NNPA_MIN,
    "max": FunctionCode.NNPA_MAX,
    "log": FunctionCode.NNPA_LOG,
    "exp": FunctionCode.NNPA_EXP,
    "sqrt": FunctionCode.NNPA_SQRT,
    "invsqrt": FunctionCode.NNPA_INVSQRT,
}
BINARY = ("add", "sub", "mul", "div", "min", "max")


def _shape(label: str, operand: str, **dims: int) -> Breach:
    return Breach(label, changing(operand, **dims), SHAPE, DATA)


def _type(label: str, operand: str, position: int) -> Breach:
    change = changing(operand, type=DataTypes.ZDNN_BINARY_INT8)
    return Breach(label, change, TYPE, Status.ZDNN_UNSUPPORTED_TYPE, position)


def _format(label: str, operand: str, position: int) -> Breach:
    change = changing(operand, format=DataFormats.ZDNN_FORMAT_4DKERNEL)
    return Breach(label, change, FORMAT, Status.ZDNN_UNSUPPORTED_FORMAT, position)


# The library looks at the shapes of output and input_b, then type and format of one, then of the
# other; the machine at format and type of input_a, input_b, output.
SAME_BINARY = (
    _shape("c1", "output", dim4=1),
    _shape("c1", "input_b", dim3=2),
    _type("c2", "output", 2),
    _format("c3", "output", 2),
    _type("c2", "input_b", 1),
    _format("c3", "input_b", 1),
)
SAME_UNARY = (_shape("c1", "output", dim2=2), _type("c2", "output", 1), _format("c3", "output", 1))
OWN_INVSQRT = (
    _type("c1", "output", 1),
    _format("c2", "output", 1),
    _shape("c3", "output", dim1=64),
    Breach("c4", arguing(epsilon=float("nan")), Status.ZDNN_INVALID_EPSILON, DATA),
)


def _table(name: str) -> list[Breach]:
    if name in BINARY:
        own: tuple[Breach, ...] = SAME_BINARY
    else:
        own = OWN_INVSQRT if name == "invsqrt" else SAME_UNARY
    parmblk_format = FORMAT_1 if name in ("sqrt", "invsqrt") else FORMAT_0
    return [*own, *common(CODES[name], parmblk_format)]


TABLES = {name: _table(name) for name in CODES}
SINGLES = [(name, breach) for name, table in TABLES.items() for breach in table]


def make(name: str) -> Case:
    """Return a right call: (2, 1, 33, 65), two sticks wide and two pages high."""
    array = np.ones((2, 1, 33, 65))
    inputs = ("input_a", "input_b") if name in BINARY else ("input",)
    arguments: dict[str, Any] = {operand: values(array) for operand in inputs}
    if name == "invsqrt":
        arguments["epsilon"] = 0.5
    return Case(name, arguments | {"output": blank((2, 1, 33, 65))})


@pytest.mark.parametrize(
    ("name", "breach"),
    SINGLES,
    ids=[f"{name}_{breach.label}-{breach.machine}" for name, breach in SINGLES],
)
def test_constraint(name: str, breach: Breach) -> None:
    """A broken constraint gets its status with precheck and its answer of the machine without."""
    check_alone(lambda: make(name), breach)


@pytest.mark.parametrize("name", TABLES)
def test_pairs_of_constraints(name: str) -> None:
    """Of every two broken constraints the documented one wins, with and without precheck."""
    rows = len(TABLES[name])
    assert check_pairs(lambda: make(name), TABLES[name]) == rows * (rows - 1) // 2


@pytest.mark.parametrize("name", TABLES)
def test_every_numbered_constraint_is_broken(name: str) -> None:
    """The numbers in the docstring and the tables above are the same."""
    assert set(numbered(name)) == labels(TABLES, name)


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("dimension", ["dim4", "dim3", "dim2", "dim1"])
def test_every_dimension_counts(name: str, dimension: str) -> None:
    """The shapes of all operands agree in each of the four dimensions: nothing is broadcast."""
    for operand in make(name).arguments:
        case = make(name)
        if isinstance(case.arguments[operand], Ztensor):
            case.change(operand, **{dimension: 3})
            assert case.answer(precheck=True)[0] == SHAPE, operand
            assert case.answer(precheck=False)[0] == DATA, operand


def _c1() -> None:
    with pytest.raises(NotInLibrary, match=r"since zDNN 1\.1\.0.*1\.0\.1"):
        run(Guest(MACHINES["telum1"], "1.0.1"), "sqrt", make("sqrt").arguments)


def _c2() -> None:
    refusal = run(guest("telum1"), "sqrt", make("sqrt").arguments).refusal
    assert refusal
    assert (refusal.status, refusal.constraint) == (0x000C0002, "pipeline_c2")


def _c3() -> None:
    for precheck, answer in ((True, (SHAPE, "add_c1")), (False, (DATA, "add_c1"))):
        case = make("add")
        case.change("output", dim1=1)
        assert case.answer(precheck) == answer


def _broken(index: int) -> Callable[[], None]:
    def check() -> None:
        breach = common(FunctionCode.NNPA_SOFTMAX, FORMAT_0, save_area=True)[index]
        arguments: dict[str, Any] = {"input": values(np.ones((2, 1, 33, 65))), "act_func": 0}
        case = Case("softmax", arguments | {"output": blank((2, 1, 33, 65))})
        breach.apply(case)
        assert case.answer(precheck=False) == (breach.machine, breach.label)

    return check


def _c9() -> None:
    case = Case("softmax", {"input": values(np.ones((1, 2, 1, 1))), "act_func": 2})
    case.arguments["output"] = blank((1, 2, 1, 1))
    assert case.answer(precheck=False)[0] == Status.ZDNN_FUNC_RC_F000
    case.arguments["input"] = values(np.ones((1, 1, 1, 1)))
    case.arguments["output"] = blank((1, 1, 1, 1))
    assert case.answer(precheck=False)[0] == Status.ZDNN_FUNC_RC_F001


def _c10() -> None:
    case = make("mul")
    case.change("input_b", dim1=64)
    with pytest.raises(ProgramCheck, match="data exception") as caught:
        run(guest(), "mul", case.arguments)
    assert caught.value.refusal.field == "input_b.transformed_desc.dims"


def _c11() -> None:
    case = make("mul")
    case.arguments["input_b"].buffer = None
    assert case.answer(precheck=True) == (ACCESS, "pipeline_c11")


PIPELINE: list[tuple[str, Callable[[], None]]] = [
    ("pipeline_c1", _c1),
    ("pipeline_c2", _c2),
    ("pipeline_c3", _c3),
    ("pipeline_c4-function", _broken(1)),
    ("pipeline_c4-format", _broken(2)),
    ("pipeline_c5-format", _broken(3)),
    ("pipeline_c5-type", _broken(4)),
    ("pipeline_c6", _broken(5)),
    ("pipeline_c7", _broken(6)),
    ("pipeline_c8-tensor", _broken(7)),
    ("pipeline_c8-save-area", _broken(8)),
    ("pipeline_c9", _c9),
    ("pipeline_c10", _c10),
    ("pipeline_c11", _c11),
]


@pytest.mark.parametrize(
    "check", [item for _, item in PIPELINE], ids=[name for name, _ in PIPELINE]
)
def test_pipeline(check: Callable[[], None]) -> None:
    """A constraint that all operations share answers as the pipeline's list says."""
    check()


def test_pipeline_list_is_tested() -> None:
    """The constraints of the pipeline's docstring are those tested above."""
    from nnpa_emulator import pipeline

    reported = {line.split()[0] for line in (pipeline.__doc__ or "").splitlines() if line}
    listed = {item for item in reported if item.startswith("pipeline_c")}
    assert listed == {name.partition("-")[0] for name, _ in PIPELINE}


RESPONSES = {
    0x0001: "ZDNN_UNSUPPORTED_PARMBLOCK",
    0x0002: "ZDNN_UNAVAILABLE_FUNCTION",
    0x0010: "ZDNN_UNSUPPORTED_FORMAT",
    0x0011: "ZDNN_UNSUPPORTED_TYPE",
    0x0012: "ZDNN_EXCEEDS_MDIS",
    0x0013: "ZDNN_EXCEEDS_MTS",
    0x0014: "ZDNN_MISALIGNED_TENSOR",
    0x0015: "ZDNN_MISALIGNED_SAVEAREA",
}


def test_every_response_code_is_reached() -> None:
    """Each common response code of the machine is some operation's answer: 0x000C0000 + code."""
    reached = {
        breach.machine for breach in common(FunctionCode.NNPA_SOFTMAX, FORMAT_0, save_area=True)
    }
    expected = {0x000C0000 + code for code in RESPONSES}
    assert expected | {ACCESS} == reached
    assert {Status(0x000C0000 + code).name for code in RESPONSES} == set(RESPONSES.values())


@pytest.mark.parametrize("name", ["sqrt", "invsqrt"])
def test_moved_guest_believes_its_memory(name: str) -> None:
    """Moved from Telum II to Telum I, the library lets the call through; the machine refuses."""
    moved = guest("telum2")
    moved.machine = MACHINES["telum1"]
    outcome = run(moved, name, make(name).arguments)
    assert outcome.status == Status.ZDNN_UNAVAILABLE_FUNCTION
    assert outcome.refusal
    assert outcome.refusal.constraint == "pipeline_c4"
    run(moved, "init", {})
    outcome = run(moved, name, make(name).arguments)
    assert outcome.refusal
    assert outcome.refusal.constraint == "pipeline_c2"


def test_moved_the_other_way() -> None:
    """Moved from Telum I to Telum II, the library goes on refusing until it asks again."""
    moved = guest("telum1")
    moved.machine = MACHINES["telum2"]
    assert run(moved, "sqrt", make("sqrt").arguments).status == Status.ZDNN_UNAVAILABLE_FUNCTION
    assert run(moved, "refresh_nnpa_query_result", {}).status == Status.ZDNN_OK
    assert run(moved, "sqrt", make("sqrt").arguments).status == Status.ZDNN_OK


def test_accepted_calls_are_checked_again_after_a_change() -> None:
    """A call that was accepted is refused once machine, precheck, descriptor or address change."""
    mine, case = guest(), make("add")
    assert run(mine, "add", case.arguments).status == Status.ZDNN_OK
    away = Alignment(buffer_misaligned=True)
    assert run(mine, "add", case.arguments, away).status == Status.ZDNN_MISALIGNED_TENSOR
    case.change("output", dim1=64)
    with pytest.raises(ProgramCheck):
        run(mine, "add", case.arguments)
    mine.precheck = True
    assert run(mine, "add", case.arguments).status == SHAPE
    mine.machine = MACHINES["z15"]
    case.change("output", dim1=65)
    assert run(mine, "add", case.arguments).status == Status.ZDNN_UNAVAILABLE_FUNCTION


NEWER = ("sqrt", "invsqrt")


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("library", ["1.0.0", "1.0.1", "1.1.0", "1.1.1", "1.1.2", "1.2.0"])
def test_availability(name: str, machine: str, library: str) -> None:
    """Telum I runs the operations of zDNN 1.0, Telum II all, the others none; 1.0 lacks the new."""
    mine = Guest(MACHINES[machine], library)
    arguments = make(name).arguments
    if "epsilon" in arguments:
        arguments["epsilon"] = 0.0
    if name in NEWER and library < "1.1":
        with pytest.raises(NotInLibrary):
            run(mine, name, arguments)
        return
    works = machine == "telum2" or (machine == "telum1" and name not in NEWER)
    expected = Status.ZDNN_OK if works else Status.ZDNN_UNAVAILABLE_FUNCTION
    assert run(mine, name, arguments).status == expected
    assert arguments["output"].is_transformed is works


@pytest.mark.parametrize("name", TABLES)
def test_inputs_are_not_asked_for_their_state(name: str) -> None:
    """No operation looks at is_transformed, layout, buffer_size or the user's view of an input."""
    case = make(name)
    for operand in FUNCTIONS[name].tensors:
        ztensor: Ztensor = case.arguments[operand]
        ztensor.is_transformed = operand == "output"
        ztensor.buffer_size = 0
        case.change(operand, layout=5)
    assert case.answer(precheck=True)[0] == Status.ZDNN_OK
    assert case.arguments["output"].is_transformed


@pytest.mark.parametrize("epsilon", [0.0, -0.0])
def test_epsilon_zero_needs_no_instruction(epsilon: float) -> None:
    """On a z15 an epsilon of zero is no conversion, so the library can answer."""
    case = make("invsqrt")
    case.machine, case.arguments["epsilon"] = "z15", epsilon
    assert case.answer(precheck=False)[0] == Status.ZDNN_UNAVAILABLE_FUNCTION


def test_epsilon_needs_an_instruction_on_z15() -> None:
    """On a z15 converting an epsilon is an operation exception, before any availability test."""
    case = make("invsqrt")
    case.machine = "z15"
    assert case.answer(precheck=True)[0] == "operation"


@pytest.mark.parametrize(("epsilon", "good"), [
    (float("inf"), False), (-1e10, False), (8577351680.0, False), (8577351168.0, True),
    (1e-20, True), (-0.25, True),
])  # fmt: skip
def test_epsilon_is_judged_after_rounding(epsilon: float, good: bool) -> None:
    """Only an epsilon that becomes NINF in DLFLOAT16 is refused; negative ones are not."""
    case = make("invsqrt")
    case.arguments["epsilon"] = epsilon
    answer = case.answer(precheck=True)[0]
    assert (answer == Status.ZDNN_INVALID_EPSILON) is not good


def test_refusals_name_field_value_and_limit() -> None:
    """A refusal is one sentence that names the field, its value and the limit."""
    case = make("add")
    case.change("input_b", dim1=64)
    refusal = run(guest(precheck=True), "add", case.arguments).refusal
    assert str(refusal) == (
        "ZDNN_INVALID_SHAPE: input_b.transformed_desc.dims is (2, 1, 33, 64), "
        "must be (2, 1, 33, 65) (input_a) [add_c1]"
    )
