# SPDX-License-Identifier: Apache-2.0
"""Every constraint of normalisation and reduction, alone and against every other one."""

import math
from typing import Any

import pytest
from nnpa_emulator import FUNCTIONS, NotInLibrary, Status, Ztensor, run
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
    settled,
)
from tests.emulator.operands import INT32, Dims, blank, guest

SHAPE = Status.ZDNN_INVALID_SHAPE
INT8, OTHER_FORMAT = DataTypes.ZDNN_BINARY_INT8, DataFormats.ZDNN_FORMAT_4DKERNEL
BESSEL = Status.ZDNN_INVALID_BESSEL_CORRECTION


def _typed(label: str, operand: str, index: int) -> Breach:
    return Breach(label, changing(operand, type=INT8), Status.ZDNN_INVALID_TYPE,
                  Status.ZDNN_UNSUPPORTED_TYPE, index)  # fmt: skip


def _formatted(label: str, operand: str, index: int) -> Breach:
    return Breach(label, changing(operand, format=OTHER_FORMAT), Status.ZDNN_INVALID_FORMAT,
                  Status.ZDNN_UNSUPPORTED_FORMAT, index)  # fmt: skip


TABLES: dict[str, list[Breach]] = {
    "batchnorm": [
        Breach("c1", changing("output", dim2=2), SHAPE, DATA),
        Breach("c2", changing("input_c", dim1=64), SHAPE, DATA),
        Breach("c3", changing("input_b", dim2=2), SHAPE, DATA),
        _typed("c4", "output", 3),
        _formatted("c5", "output", 3),
        *common(FunctionCode.NNPA_BATCHNORMALIZATION, FORMAT_0),
    ],
    "meanreduce2d": [
        Breach("c1", changing("output", dim1=64), SHAPE, DATA),
        _typed("c2", "output", 1),
        _formatted("c3", "output", 1),
        Breach("c4", changing("output", dim3=2), SHAPE, DATA),
        Breach("c5", changing("input", dim3=1025), None, Status.ZDNN_FUNC_RC_F001),
        *common(FunctionCode.NNPA_AVGPOOL2D, FORMAT_0),
    ],
    "norm": [
        Breach("c1", changing("output", dim4=3), SHAPE, DATA),
        Breach("c2", changing("output", dim3=2), SHAPE, DATA),
        Breach("c3", changing("input_b", dim2=2), SHAPE, DATA),
        Breach("c4", changing("input_b", dim1=64), SHAPE, DATA),
        Breach("c5", changing("output", dim1=2), SHAPE, DATA),
        _typed("c6", "input_b", 1),
        _formatted("c7", "output", 2),
        *common(FunctionCode.NNPA_NORM, FORMAT_1),
    ],
    "moments": [
        _typed("c1", "output_a", 1),
        _formatted("c2", "output_b", 2),
        Breach("c3", arguing(bessel_correction_type=2), BESSEL, DATA, excludes=frozenset(("c4",))),
        Breach("c4", settled(changing("input", dim2=1, dim1=1), arguing(bessel_correction_type=1)),
               BESSEL, DATA, excludes=frozenset(("pipeline_c6",))),
        Breach("c5", changing("output_a", dim2=2), SHAPE, DATA),
        Breach("c6", changing("output_b", dim4=3), SHAPE, DATA),
        *common(FunctionCode.NNPA_MOMENTS, FORMAT_1),
    ],
    "layernorm": [
        Breach("c1", arguing(beta_value=math.inf), Status.ZDNN_INVALID_BETA, DATA),
        Breach("c2", arguing(gamma_value=math.nan), Status.ZDNN_INVALID_GAMMA, DATA),
        Breach("c3", arguing(epsilon_value=-math.inf), Status.ZDNN_INVALID_EPSILON, DATA),
        Breach("c4", changing("input_b", dim4=3), SHAPE, DATA),
        Breach("c5", changing("output", dim1=64), SHAPE, DATA),
        Breach("c6", changing("input_c", dim1=3), SHAPE, DATA),
        _typed("c7", "input_b", 1),
        _formatted("c8", "output", 3),
        Breach("c9", settled(changing("input_b", dim1=2), changing("input_c", dim1=2)), None, DATA),
        *common(FunctionCode.NNPA_LAYERNORM, FORMAT_1),
    ],
    "reduce": [
        Breach("c1", changing("output", dim2=2), SHAPE, DATA),
        Breach("c2", changing("output", dim1=2), SHAPE, DATA),
        _formatted("c3", "output", 1),
        _typed("c4", "input", 0),
        _typed("c5", "output", 1),
        Breach("c6", arguing(op_type=4), None, Status.ZDNN_FUNC_RC_F000),
        Breach("c7", changing("output", type=INT32), None, DATA, excludes=frozenset(("c5",))),
        *common(FunctionCode.NNPA_REDUCE, FORMAT_1, save_area=True),
    ],
}  # fmt: skip
CASES = [(name, breach) for name, table in TABLES.items() for breach in table]
WHOLE: Dims = (2, 1, 33, 65)
VECTOR: Dims = (1, 1, 1, 65)
SCALARS: Dims = (2, 1, 1, 1)
TENSORS: dict[str, dict[str, Dims]] = {
    "batchnorm": {"input_a": WHOLE, "input_b": VECTOR, "input_c": VECTOR, "output": WHOLE},
    "meanreduce2d": {"input": WHOLE, "output": (2, 1, 1, 65)},
    "norm": {"input_a": WHOLE, "input_b": WHOLE, "output": (2, 1, 33, 1)},
    "moments": {"input": WHOLE, "output_a": SCALARS, "output_b": SCALARS},
    "layernorm": {"input_a": WHOLE, "input_b": SCALARS, "input_c": SCALARS, "output": WHOLE},
    "reduce": {"input": WHOLE, "output": (2, 1, 33, 1)},
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "moments": {"bessel_correction_type": 1},
    "layernorm": {"beta_value": 0.0, "gamma_value": 1.0, "epsilon_value": 0.5},
    "reduce": {"op_type": 0},
}


def make(name: str) -> Case:
    """Return a right call over zeros."""
    tensors: dict[str, Ztensor] = {key: blank(dims) for key, dims in TENSORS[name].items()}
    for tensor in tensors.values():
        tensor.sticks[:] = 0
    return Case(name, {**tensors, **ARGUMENTS.get(name, {})})


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
    assert check_pairs(lambda: make(name), TABLES[name]) > 80


@pytest.mark.parametrize("name", TABLES)
def test_every_numbered_constraint_is_broken(name: str) -> None:
    """The numbers in the docstring and the tables above are the same."""
    assert set(numbered(name)) == labels(TABLES, name)


@pytest.mark.parametrize("operand", ["input_b", "input_c"])
def test_batchnorm_leaves_types_of_vectors_to_the_machine(operand: str) -> None:
    """The library does not check types and formats of input_b and input_c; the machine does."""
    for field, status in (("type", Status.ZDNN_UNSUPPORTED_TYPE),
                          ("format", Status.ZDNN_UNSUPPORTED_FORMAT)):  # fmt: skip
        for precheck in (True, False):
            case = make("batchnorm")
            case.change(operand, **{field: INT8 if field == "type" else OTHER_FORMAT})
            assert case.answer(precheck) == (status, "pipeline_c5")


@pytest.mark.parametrize(
    ("name", "changes", "status"),
    [
        ("moments", {"bessel_correction_type": 1 << 32}, Status.ZDNN_OK),
        ("moments", {"bessel_correction_type": -1}, BESSEL),
        ("reduce", {"op_type": 258}, Status.ZDNN_OK),
        ("reduce", {"op_type": -1}, Status.ZDNN_FUNC_RC_F000),
        ("layernorm", {"epsilon_value": 8.6e9}, Status.ZDNN_INVALID_EPSILON),
        ("layernorm", {"epsilon_value": 8.573e9, "beta_value": -8.573e9}, Status.ZDNN_OK),
    ],
)
def test_fields_of_the_parameter_block(name: str, changes: dict[str, Any], status: int) -> None:
    """Bessel has 32 bits, op_type 8; scalars are judged after rounding to DLFLOAT16."""
    case = make(name)
    case.arguments |= changes
    assert case.answer(True)[0] == status


@pytest.mark.parametrize("name", TABLES)
def test_machines_and_libraries(name: str) -> None:
    """Telum I and library 1.0 have batchnorm and meanreduce2d only."""
    newer = name not in ("batchnorm", "meanreduce2d")
    missing = Status.ZDNN_UNAVAILABLE_FUNCTION
    expected = {
        "telum1": missing if newer else Status.ZDNN_OK,
        "telum2": Status.ZDNN_OK,
        "telum2-nonnpa": missing,
    }
    for machine, status in expected.items():
        assert run(guest(machine), name, make(name).arguments).status == status
    old = guest()
    old.library = "1.0.1"
    if newer:
        with pytest.raises(NotInLibrary):
            run(old, name, make(name).arguments)
    else:
        assert run(old, name, make(name).arguments).status == Status.ZDNN_OK
    assert FUNCTIONS[name].since == ("1.1.0" if newer else "1.0.0")
