# SPDX-License-Identifier: Apache-2.0
"""Every constraint of pooling, alone and against every other one that can be broken with it."""

from typing import Any

import pytest
from nnpa_emulator import FUNCTIONS, Status, run
from nnpa_emulator.machine import FORMAT_0, FunctionCode
from nnpa_emulator.ztensor import DataFormats, DataTypes

from tests.emulator.breaches import (
    DATA,
    Breach,
    Case,
    arguing,
    changing,
    check_alone,
    check_pairs,
    common,
    numbered,
    settled,
)
from tests.emulator.operands import blank, guest
from tests.oracle.pooling import windows

SHAPE = Status.ZDNN_INVALID_SHAPE
CODES = {
    "avgpool2d": FunctionCode.NNPA_AVGPOOL2D,
    "maxpool2d": FunctionCode.NNPA_MAXPOOL2D,
}
DIMS = (1, 70, 2, 65)
SAME = (
    Breach("c1", changing("output", dim1=64), SHAPE, DATA),
    Breach("c2", changing("output", type=DataTypes.ZDNN_BINARY_INT8), Status.ZDNN_INVALID_TYPE,
           Status.ZDNN_UNSUPPORTED_TYPE, 1),
    Breach("c3", changing("output", format=DataFormats.ZDNN_FORMAT_4DKERNEL),
           Status.ZDNN_INVALID_FORMAT, Status.ZDNN_UNSUPPORTED_FORMAT, 1),
)  # fmt: skip
POSITIVE = (
    *SAME,
    Breach("c6", arguing(stride_width=0), Status.ZDNN_INVALID_STRIDES, DATA,
           excludes=frozenset(("c7", "c8", "c9", "c12", "c13", "c14"))),
    Breach("c7", arguing(kernel_width=3), SHAPE, DATA, excludes=frozenset(("c9", "c10"))),
    Breach("c8", changing("output", dim2=9), SHAPE, DATA, excludes=frozenset(("c10",))),
    Breach("c9", arguing(stride_width=(1 << 20) + 1), None, Status.ZDNN_EXCEEDS_MDIS,
           specific=True),
    Breach("c10", arguing(padding_type=2), None, Status.ZDNN_FUNC_RC_F000),
    Breach("c12", arguing(kernel_height=65), None, Status.ZDNN_FUNC_RC_F002),
    Breach("c13", arguing(stride_height=31), None, Status.ZDNN_FUNC_RC_F003),
    Breach("c14", changing("input", dim3=1025), None, Status.ZDNN_FUNC_RC_F004),
)  # fmt: skip
ZERO = (
    *SAME,
    Breach("c4", arguing(kernel_width=3), SHAPE, DATA),
    Breach("c5", arguing(padding_type=1), Status.ZDNN_INVALID_STRIDE_PADDING, DATA),
    Breach("c11", settled(changing("input", dim3=1025), arguing(kernel_height=1025)), None,
           Status.ZDNN_FUNC_RC_F001),
)  # fmt: skip
MODES = {"positive": POSITIVE, "zero": ZERO}
TABLES = {
    (name, mode): [*own, *common(code, FORMAT_0)]
    for name, code in CODES.items()
    for mode, own in MODES.items()
}
CASES = [(*key, breach) for key, table in TABLES.items() for breach in table]


def settle(case: Case) -> None:
    """Give the output one element per window, unless a breach is about its size."""
    arguments = case.arguments
    if {"c4", "c6", "c8", "c10"} & set(case.broken):
        return
    desc, same = arguments["input"].transformed_desc, arguments["padding_type"] == 1
    high = len(windows(desc.dim3, arguments["kernel_height"], arguments["stride_height"], same))
    wide = len(windows(desc.dim2, arguments["kernel_width"], arguments["stride_width"], same))
    case.change("output", dim3=high, dim2=max(wide, 1))


def make(name: str, mode: str) -> Case:
    """Return a right call with positive strides or with one window over everything."""
    whole = mode == "zero"
    arguments: dict[str, Any] = {
        "input": blank(DIMS),
        "padding_type": 0,
        "kernel_height": 70 if whole else 2,
        "kernel_width": 2,
        "stride_height": 0 if whole else 2,
        "stride_width": 0 if whole else 1,
        "output": blank((1, 1 if whole else 35, 1, 65)),
    }
    arguments["input"].sticks[:] = 0
    return Case(name, arguments, settle=settle)


@pytest.mark.parametrize(
    ("name", "mode", "breach"),
    CASES,
    ids=[f"{name}_{breach.label}-{mode}-{breach.machine}" for name, mode, breach in CASES],
)
def test_constraint(name: str, mode: str, breach: Breach) -> None:
    """A broken constraint gets its status with precheck and its answer of the machine without."""
    check_alone(lambda: make(name, mode), breach)


@pytest.mark.parametrize(("name", "mode"), TABLES)
def test_pairs_of_constraints(name: str, mode: str) -> None:
    """Of every two broken constraints the documented one wins, with and without precheck."""
    assert check_pairs(lambda: make(name, mode), TABLES[name, mode]) > 90


@pytest.mark.parametrize("name", CODES)
def test_every_numbered_constraint_is_broken(name: str) -> None:
    """The numbers in the docstring and the tables above are the same."""
    broken = {breach.label for mode in MODES for breach in TABLES[name, mode]}
    assert set(numbered(name)) == {label for label in broken if label.startswith("c")}


@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize("machine", ["telum1", "telum2"])
@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"kernel_height": 0}, Status.ZDNN_EXCEEDS_MDIS),
        ({"kernel_width": 0}, Status.ZDNN_EXCEEDS_MDIS),
        ({"stride_height": 32769}, Status.ZDNN_EXCEEDS_MDIS),
        ({"stride_height": 32768}, Status.ZDNN_FUNC_RC_F003),
        ({"kernel_width": 65}, Status.ZDNN_FUNC_RC_F002),
        ({"stride_width": 31, "stride_height": 31}, Status.ZDNN_FUNC_RC_F003),
        ({"padding_type": 7}, Status.ZDNN_FUNC_RC_F000),
        ({"padding_type": 8}, Status.ZDNN_OK),
        ({"stride_width": 30, "stride_height": 2}, Status.ZDNN_OK),
    ],
)
def test_limits_of_the_machine(
    name: str, machine: str, changes: dict[str, int], status: int
) -> None:
    """Kernel sizes and strides beyond the limits get the documented response codes."""
    arguments = make(name, "positive").arguments | changes
    assert run(guest(machine), name, arguments).status == status


@pytest.mark.parametrize("name", CODES)
def test_largest_strides_depend_on_the_dimension(name: str) -> None:
    """Telum II takes a stride_width up to its dim2 maximum before it looks at 30; Telum I less."""
    arguments = make(name, "positive").arguments | {"stride_width": 1 << 20}
    assert run(guest("telum2"), name, arguments).status == Status.ZDNN_FUNC_RC_F003
    assert run(guest("telum1"), name, arguments).status == Status.ZDNN_EXCEEDS_MDIS


@pytest.mark.parametrize("name", CODES)
def test_machines_and_libraries(name: str) -> None:
    """Pooling exists since 1.0.0, on both Telums, and not without NNPA."""
    assert FUNCTIONS[name].since == "1.0.0"
    for machine, status in (
        ("telum1", Status.ZDNN_OK),
        ("telum2", Status.ZDNN_OK),
        ("telum2-nonnpa", Status.ZDNN_UNAVAILABLE_FUNCTION),
    ):
        program = guest(machine)
        program.library = "1.0.0"
        assert run(program, name, make(name, "positive").arguments).status == status


def test_described_sizes() -> None:
    """The described output has one element per window, also where padding has high bits."""
    infer = FUNCTIONS["avgpool2d"].infer
    assert infer
    for mode in MODES:
        arguments = make("avgpool2d", mode).arguments
        expected = arguments.pop("output").transformed_desc.dims
        assert infer(**arguments)[0][1].dims == expected
        assert infer(**arguments | {"padding_type": 8})[0][1].dims == expected
