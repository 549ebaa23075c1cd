# SPDX-License-Identifier: Apache-2.0
"""Every constraint of the activations, alone and against every other one."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from nnpa_emulator import FUNCTIONS, NotInLibrary, Status, run
from nnpa_emulator.machine import FORMAT_0, FORMAT_1, FunctionCode
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
    labels,
    numbered,
)
from tests.emulator.operands import blank, guest, values

SHAPE = Status.ZDNN_INVALID_SHAPE
SAME = (
    Breach("c1", changing("output", dim2=2), SHAPE, DATA),
    Breach("c2", changing("output", type=DataTypes.ZDNN_BINARY_INT8), Status.ZDNN_INVALID_TYPE,
           Status.ZDNN_UNSUPPORTED_TYPE, 1),
    Breach("c3", changing("output", format=DataFormats.ZDNN_FORMAT_4DKERNEL),
           Status.ZDNN_INVALID_FORMAT, Status.ZDNN_UNSUPPORTED_FORMAT, 1),
)  # fmt: skip
CLIPPED = Breach("c4", arguing(clipping_value=-1.0), Status.ZDNN_INVALID_CLIPPING_VALUE, DATA)
FACTOR = Breach("c5", arguing(adjustment_factor=1.5), Status.ZDNN_INVALID_ADJUSTMENT_FACTOR, DATA)


def _deep(case: Case) -> None:
    case.change("input", dim3=2)
    case.change("output", dim3=2)


SOFT = (
    Breach("c4", _deep, None, Status.ZDNN_FUNC_RC_F000),
    Breach("c5", arguing(act_func=2), None, Status.ZDNN_FUNC_RC_F001),
)
MASKED = Breach("c6", arguing(softmax_mask=66), None, Status.ZDNN_FUNC_RC_F002)


def _table(code: FunctionCode, fmt: int, *own: Breach, save_area: bool = False) -> list[Breach]:
    return [*SAME, *own, *common(code, fmt, save_area=save_area)]


TABLES = {
    "relu": _table(FunctionCode.NNPA_RELU, FORMAT_0, CLIPPED),
    "leaky_relu": _table(FunctionCode.NNPA_RELU, FORMAT_1, CLIPPED, FACTOR),
    "tanh": _table(FunctionCode.NNPA_TANH, FORMAT_0),
    "sigmoid": _table(FunctionCode.NNPA_SIGMOID, FORMAT_0),
    "gelu": _table(FunctionCode.NNPA_GELU, FORMAT_1),
    "softmax": _table(FunctionCode.NNPA_SOFTMAX, FORMAT_0, *SOFT, save_area=True),
    "softmax_mask": _table(FunctionCode.NNPA_SOFTMAX, FORMAT_1, *SOFT, MASKED, save_area=True),
}
SCALARS: Mapping[str, Mapping[str, Any]] = {
    "relu": {"clipping_value": 6.0},
    "leaky_relu": {"clipping_value": None, "adjustment_factor": 0.25},
    "softmax": {"act_func": 0},
    "softmax_mask": {"act_func": 1, "softmax_mask": 5},
}
CASES = [(name, breach) for name, table in TABLES.items() for breach in table]


def make(name: str) -> Case:
    """Return a right call: (2, 1, 33, 65), two sticks wide and two pages high."""
    source = values(np.ones((2, 1, 33, 65)))
    arguments = {"input": source, **SCALARS.get(name, {}), "output": blank((2, 1, 33, 65))}
    return Case(name, arguments)


@pytest.mark.parametrize(
    ("name", "breach"),
    CASES,
    ids=[f"{name}_{breach.label}-{breach.machine}" for name, breach in CASES],
)
def test_constraint(name: str, breach: Breach) -> None:
    """A broken constraint gets its status with precheck and its answer of the machine without."""
    check_alone(lambda: make(name), breach)


@pytest.mark.parametrize("name", TABLES)
def test_pairs_of_constraints(name: str) -> None:
    """Of every two broken constraints the documented one wins, with and without precheck."""
    assert check_pairs(lambda: make(name), TABLES[name]) > 50


@pytest.mark.parametrize("name", TABLES)
def test_every_numbered_constraint_is_broken(name: str) -> None:
    """The numbers in the docstring and the tables above are the same."""
    assert set(numbered(name)) == labels(TABLES, name)


@pytest.mark.parametrize("name", ["relu", "leaky_relu"])
@pytest.mark.parametrize("clipping", [-0.5, -1e-12, math.nan, math.inf, -math.inf, 8.6e9])
def test_clipping_values_that_are_refused(name: str, clipping: float) -> None:
    """A clipping value is judged after rounding: negative, also -0, or NINF is refused."""
    case = make(name)
    case.arguments["clipping_value"] = clipping
    assert case.answer(True)[0] == Status.ZDNN_INVALID_CLIPPING_VALUE
    assert case.answer(False)[0] == DATA


@pytest.mark.parametrize("factor", [-0.5, -1e-12, math.nan, math.inf, 1.001, 1.00098])
def test_adjustment_factors_that_are_refused(factor: float) -> None:
    """An adjustment factor is judged after rounding: +0 to 1 is accepted."""
    case = make("leaky_relu")
    case.arguments["adjustment_factor"] = factor
    assert case.answer(True)[0] == Status.ZDNN_INVALID_ADJUSTMENT_FACTOR
    assert case.answer(False)[0] == DATA


@pytest.mark.parametrize("factor", [0.0, -0.0, 1.0, 1.0005, 1e-12])
def test_adjustment_factors_that_are_accepted(factor: float) -> None:
    """A factor that rounds to a number from +0 to 1 is accepted; -0.0 counts as +0."""
    case = make("leaky_relu")
    case.arguments["adjustment_factor"] = factor
    assert case.answer(True)[0] == Status.ZDNN_OK


@pytest.mark.parametrize("name", TABLES)
def test_machines_and_libraries(name: str) -> None:
    """Telum I has the operations of zDNN 1.0, a machine without NNPA none, library 1.0 its own."""
    newer = name in ("leaky_relu", "softmax_mask", "gelu")
    missing = Status.ZDNN_UNAVAILABLE_FUNCTION
    answers = {}
    for machine in ("telum1", "telum2", "telum1-nonnpa"):
        case = make(name)
        answers[machine] = run(guest(machine), name, case.arguments).status
    expected = missing if newer else Status.ZDNN_OK
    assert answers == {"telum1": expected, "telum2": Status.ZDNN_OK, "telum1-nonnpa": missing}
    assert FUNCTIONS[name].since == ("1.1.0" if newer else "1.0.0")
    old = guest()
    old.library = "1.0.1"
    if newer:
        with pytest.raises(NotInLibrary):
            run(old, name, make(name).arguments)
    else:
        assert run(old, name, make(name).arguments).status == Status.ZDNN_OK


@pytest.mark.parametrize("name", TABLES)
def test_described_output(name: str) -> None:
    """An output left to the emulator has the descriptors of the input."""
    arguments = make(name).arguments
    source = arguments["input"]
    del arguments["output"]
    infer = FUNCTIONS[name].infer
    assert infer
    assert infer(**arguments) == ((source.pre_transformed_desc, source.transformed_desc),)
