# SPDX-License-Identifier: Apache-2.0
"""Every constraint of conv2d, alone and against every other one that can be broken with it."""

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
from tests.emulator.operands import KERNEL, blank, guest
from tests.oracle.pooling import windows

SHAPE, INT8 = Status.ZDNN_INVALID_SHAPE, DataTypes.ZDNN_BINARY_INT8
BEFORE_WINDOWS = (
    Breach("c1", changing("bias", dim3=2), SHAPE, DATA),
    Breach("c2", changing("output", dim4=2), SHAPE, DATA),
    Breach("c3", changing("bias", dim1=5), SHAPE, DATA),
    Breach("c4", changing("kernel", dim2=4), SHAPE, DATA),
)
AFTER_WINDOWS = (
    Breach("c10", changing("bias", type=INT8), Status.ZDNN_INVALID_TYPE,
           Status.ZDNN_UNSUPPORTED_TYPE, 2),
    Breach("c11", changing("bias", format=DataFormats.ZDNN_FORMAT_4DKERNEL),
           Status.ZDNN_INVALID_FORMAT, Status.ZDNN_UNSUPPORTED_FORMAT, 2),
    Breach("c12", changing("kernel", type=INT8), Status.ZDNN_INVALID_TYPE,
           Status.ZDNN_UNSUPPORTED_TYPE, 1),
    Breach("c13", arguing(act_func=1, clipping_value=-1.0), Status.ZDNN_INVALID_CLIPPING_VALUE,
           DATA, excludes=frozenset(("c15",))),
)  # fmt: skip
POSITIVE = (
    *BEFORE_WINDOWS,
    Breach("c7", changing("kernel", dim3=3), SHAPE, DATA, excludes=frozenset(("c14",))),
    Breach("c8", changing("output", dim2=9), SHAPE, DATA, excludes=frozenset(("c14",))),
    Breach("c9", arguing(stride_width=0), Status.ZDNN_INVALID_STRIDES, DATA,
           excludes=frozenset(("c7", "c8", "c17"))),
    *AFTER_WINDOWS,
    Breach("c14", arguing(padding_type=2), None, Status.ZDNN_FUNC_RC_F000),
    Breach("c15", arguing(act_func=2), None, Status.ZDNN_FUNC_RC_F001),
    Breach("c17", changing("kernel", dim4=65), None, Status.ZDNN_FUNC_RC_F003),
    Breach("c18", arguing(stride_height=14), None, Status.ZDNN_FUNC_RC_F004),
)  # fmt: skip
ZERO = (
    *BEFORE_WINDOWS,
    Breach("c5", changing("output", dim3=2), SHAPE, DATA),
    Breach("c6", arguing(padding_type=1), Status.ZDNN_INVALID_STRIDE_PADDING, DATA),
    *AFTER_WINDOWS,
    Breach("c15", arguing(act_func=2), None, Status.ZDNN_FUNC_RC_F001),
    Breach("c16", settled(changing("input", dim3=449), changing("kernel", dim4=449)), None,
           Status.ZDNN_FUNC_RC_F002),
)  # fmt: skip
TABLES = {
    mode: [*own, *common(FunctionCode.NNPA_CONVOLUTION, FORMAT_0)]
    for mode, own in {"positive": POSITIVE, "zero": ZERO}.items()
}
CASES = [(mode, breach) for mode, table in TABLES.items() for breach in table]


def settle(case: Case) -> None:
    """Give the output one element per window, unless a breach is about its size."""
    layer_operands = case.arguments
    if {"c5", "c7", "c8", "c9", "c14"} & set(case.broken):
        return
    desc, kernel = (
        layer_operands["input"].transformed_desc,
        layer_operands["kernel"].transformed_desc,
    )
    same = layer_operands["padding_type"] == 1
    high = len(windows(desc.dim3, kernel.dim4, layer_operands["stride_height"], same))
    wide = len(windows(desc.dim2, kernel.dim3, layer_operands["stride_width"], same))
    case.change("output", dim3=high, dim2=wide)


def make(mode: str) -> Case:
    """Return a right call with positive strides or with one window over everything."""
    whole = mode == "zero"
    arguments: dict[str, Any] = {
        "input": blank((1, 70, 2, 3)),
        "kernel": blank((70 if whole else 2, 2, 3, 4), KERNEL),
        "bias": blank((1, 1, 1, 4)),
        "padding_type": 0,
        "stride_height": 0 if whole else 2,
        "stride_width": 0 if whole else 1,
        "act_func": 0,
        "clipping_value": None,
        "output": blank((1, 1 if whole else 35, 1, 4)),
    }
    for name in ("input", "kernel", "bias"):
        arguments[name].sticks[:] = 0
    return Case("conv2d", arguments, settle=settle)


@pytest.mark.parametrize(
    ("mode", "breach"),
    CASES,
    ids=[f"conv2d_{breach.label}-{mode}-{breach.machine}" for mode, breach in CASES],
)
def test_constraint(mode: str, breach: Breach) -> None:
    """A broken constraint gets its status with precheck and its answer of the machine without."""
    check_alone(lambda: make(mode), breach)


@pytest.mark.parametrize("mode", TABLES)
def test_pairs_of_constraints(mode: str) -> None:
    """Of every two broken constraints the documented one wins, with and without precheck."""
    assert check_pairs(lambda: make(mode), TABLES[mode]) > 150


def test_every_numbered_constraint_is_broken() -> None:
    """The numbers in the docstring and the tables above are the same."""
    broken = {breach.label for table in TABLES.values() for breach in table}
    assert set(numbered("conv2d")) == {label for label in broken if label.startswith("c")}


def test_kernel_format_is_left_to_the_machine() -> None:
    """A kernel in 4DFEATURE passes precheck and meets response code 0010."""
    for precheck in (True, False):
        case = make("positive")
        case.change("kernel", format=DataFormats.ZDNN_FORMAT_4DFEATURE)
        assert case.answer(precheck) == (Status.ZDNN_UNSUPPORTED_FORMAT, "pipeline_c5")


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"padding_type": 10}, Status.ZDNN_FUNC_RC_F000),
        ({"padding_type": 8}, Status.ZDNN_OK),
        ({"act_func": 16}, Status.ZDNN_OK),
        ({"act_func": 18}, Status.ZDNN_FUNC_RC_F001),
        ({"act_func": 0, "clipping_value": -1.0}, Status.ZDNN_OK),
        ({"stride_width": 14}, Status.ZDNN_FUNC_RC_F004),
        ({"stride_width": 13}, Status.ZDNN_OK),
    ],
)
def test_fields_of_the_parameter_block(changes: dict[str, Any], status: int) -> None:
    """Padding has 3 bits and act_func 4; a clipping value without relu is ignored."""
    for precheck in (True, False):
        case = make("positive")
        case.arguments |= changes
        assert case.answer(precheck)[0] == status


def test_order_of_type_and_strides() -> None:
    """Unlike pooling, conv2d tests strides before types."""
    case = make("positive")
    case.arguments["stride_width"] = 0
    case.change("output", type=INT8)
    assert case.answer(True) == (Status.ZDNN_INVALID_STRIDES, "conv2d_c9")


def test_machines_and_libraries() -> None:
    """Convolution exists since 1.0.0, on both Telums, and not without NNPA."""
    assert FUNCTIONS["conv2d"].since == "1.0.0"
    for machine, status in (
        ("telum1", Status.ZDNN_OK),
        ("telum2", Status.ZDNN_OK),
        ("telum1-nonnpa", Status.ZDNN_UNAVAILABLE_FUNCTION),
    ):
        program = guest(machine)
        program.library = "1.0.0"
        assert run(program, "conv2d", make("positive").arguments).status == status
