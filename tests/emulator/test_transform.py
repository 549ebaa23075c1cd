# SPDX-License-Identifier: Apache-2.0
"""Transforms: every layout and type there and back, engines, states, flags, explanations.

Places in sticks come from `tests/oracle/stick.py`, codes from `tests/oracle/dlfloat.py`. What the
two engines answer is the zDNN library's behaviour.
"""

import math

import numpy as np
import pytest
from nnpa_emulator import MACHINES, Malformed, Status
from nnpa_emulator.machine import FunctionCode
from nnpa_emulator.ztensor import DataTypes

from tests.emulator.transforms import (
    BFLOAT,
    DTYPES,
    FAILED,
    FP16,
    FP32,
    OK,
    WARNED,
    L,
    back,
    code_of,
    described,
    guest,
    sample,
    transform,
)
from tests.oracle import stick as places

LAYOUTS = {
    L.ZDNN_1D: (70,),
    L.ZDNN_2D: (33, 65),
    L.ZDNN_2DS: (3, 65),
    L.ZDNN_3D: (2, 33, 3),
    L.ZDNN_3DS: (2, 33, 65),
    L.ZDNN_4D: (2, 3, 33, 65),
    L.ZDNN_4DS: (2, 1, 33, 65),
    L.ZDNN_NHWC: (2, 3, 33, 2),
    L.ZDNN_NCHW: (2, 65, 3, 33),
    L.ZDNN_HWCK: (2, 3, 33, 65),
}


@pytest.mark.parametrize("machine", ["telum1", "telum2", "telum1 1.0.0"])
@pytest.mark.parametrize("kind", [FP32, FP16, BFLOAT])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_cells_of_every_layout(layout: int, kind: int, machine: str) -> None:
    """Each element lies where the walk through memory finds it, rounded once; padding is zero."""
    dims = LAYOUTS[L(layout)]
    ztensor = described(layout, kind, *dims)
    array = sample(dims, kind)
    name, _, library = machine.partition(" ")
    assert transform(guest(name, library or "1.2.0"), ztensor, array).status == OK
    desc = ztensor.transformed_desc
    ordered = array.transpose(0, 2, 3, 1) if layout == L.ZDNN_NCHW else array
    offsets, size = places.offsets(desc.format, 2, desc.dims)
    expected = np.zeros(size // 2, np.uint16)
    expected[offsets.ravel() // 2] = [code_of(float(value)) for value in ordered.ravel()]
    assert np.array_equal(ztensor.sticks.view(np.uint16), expected)
    assert ztensor.is_transformed


@pytest.mark.parametrize("machine", ["telum1", "telum2"])
@pytest.mark.parametrize("kind", [FP32, FP16, BFLOAT])
@pytest.mark.parametrize("layout", [program for program in LAYOUTS if program != L.ZDNN_HWCK])
def test_there_and_back(layout: int, kind: int, machine: str) -> None:
    """A round trip returns the user's shape and type, each element within its one rounding."""
    dims = LAYOUTS[L(layout)]
    program, array, mine = described(layout, kind, *dims), sample(dims, kind), guest(machine)
    assert transform(mine, program, array).status == OK
    outcome = back(mine, program)
    assert (outcome.status, outcome.violation) == (OK, None)
    result = outcome.value
    assert isinstance(result, np.ndarray)
    assert (result.size, result.dtype) == (array.size, array.dtype)
    wide = result.reshape(dims).astype(np.float64)
    assert np.all(
        np.abs(wide - array.astype(np.float64)) <= np.abs(array.astype(np.float64)) / 1024
    )
    assert back(mine, program).status == OK, "may be repeated"


def test_kernels_do_not_come_back() -> None:
    """A 4DKERNEL tensor is transformed but never transformed back."""
    ztensor = described(L.ZDNN_HWCK, FP32, 1, 1, 2, 3)
    assert transform(guest(), ztensor, np.ones(6, np.float32)).status == OK
    assert back(guest(), ztensor).status == Status.ZDNN_INVALID_FORMAT


# What becomes of values: software, and hardware where FP32 is larger than 2048 elements.
FATES = [
    # value, saturating; software status and state, hardware status and state
    (math.inf, False, (FAILED, False), (WARNED, True)),
    (math.nan, False, (FAILED, False), (WARNED, True)),
    (math.inf, True, (WARNED, True), (WARNED, True)),
    (-math.inf, True, (WARNED, True), (WARNED, True)),
    (math.nan, True, (WARNED, True), (WARNED, True)),
    (1e-30, False, (OK, True), (OK, True)),
    (1e20, False, (OK, True), (WARNED, True)),
    (-1e20, True, (OK, True), (OK, True)),
]
ENGINES = [
    # machine, library, pre type, layout, dims, hardware?
    ("telum1", "1.2.0", FP32, L.ZDNN_2D, (33, 63), False),
    ("telum2", "1.2.0", FP32, L.ZDNN_2D, (33, 63), True),
    ("telum2", "1.2.0", FP32, L.ZDNN_2D, (32, 64), False),
    ("telum2", "1.2.0", FP32, L.ZDNN_3DS, (70, 1, 64), False),
    ("telum2", "1.2.0", FP32, L.ZDNN_3D, (33, 1, 63), True),
    ("telum2", "1.2.0", FP32, L.ZDNN_4D, (2, 3, 11, 63), True),
    ("telum2", "1.2.0", FP32, L.ZDNN_4DS, (1, 1, 33, 63), True),
    ("telum2", "1.2.0", FP32, L.ZDNN_NCHW, (1, 3, 40, 40), False),
    ("telum2", "1.2.0", FP32, L.ZDNN_HWCK, (3, 3, 16, 16), False),
    ("telum2", "1.2.0", BFLOAT, L.ZDNN_2D, (33, 63), False),
    ("telum2-nonnpa", "1.2.0", FP32, L.ZDNN_2D, (33, 63), None),
]


@pytest.mark.parametrize(("machine", "library", "kind", "layout", "dims", "hardware"), ENGINES)
@pytest.mark.parametrize(("value", "saturating", "software", "accelerated"), FATES)
def test_engines(
    value: float,
    saturating: bool,
    software: tuple[int, bool],
    accelerated: tuple[int, bool],
    machine: str,
    library: str,
    kind: DataTypes,
    layout: int,
    dims: tuple[int, ...],
    hardware: bool | None,
) -> None:
    """Which engine converts shows in status, state and flags, as the library's rule has it."""
    ztensor = described(layout, kind, *dims)
    array = np.ones(dims, DTYPES[kind])
    array.reshape(-1)[7] = value
    name = "transform_ztensor_with_saturation" if saturating else "transform_ztensor"
    outcome = transform(guest(machine, library), ztensor, array, name=name)
    if hardware is None:
        assert outcome.status == Status.ZDNN_UNSUPPORTED_AIU_EXCEPTION
        return
    expected = accelerated if hardware else software
    assert (outcome.status, ztensor.is_transformed) == expected
    flag = 0 if hardware else {math.inf: 2, -math.inf: 2, 1e-30: 4}.get(value, 0)
    assert outcome.fp_flags == (1 if math.isnan(value) and not hardware else flag)
    reported = outcome.violation is not None
    is_beyond = value == 1e20 and not saturating  # which software passes over, with ZDNN_OK
    assert reported is (outcome.status != OK or is_beyond)


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_fp16_is_never_clamped(value: float) -> None:
    """FP16 infinities and NaNs fail also in the saturating transform."""
    ztensor = described(L.ZDNN_1D, FP16, 3)
    array = np.array([1, value, 2], np.float16)
    outcome = transform(guest(), ztensor, array, name="transform_ztensor_with_saturation")
    assert (outcome.status, ztensor.is_transformed) == (FAILED, False)


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_narrow_tensors(columns: int) -> None:
    """One or two columns have a software routine of their own, but not when saturating."""
    rows = 3000
    for name, hardware in (
        ("transform_ztensor", columns > 2),
        ("transform_ztensor_with_saturation", True),
    ):
        ztensor = described(L.ZDNN_2D, FP32, rows, columns)
        array = np.ones((rows, columns), np.float32)
        array[5, 0] = math.nan
        outcome = transform(guest(), ztensor, array, name=name)
        assert outcome.violation
        engine = outcome.violation.function
        assert engine == (FunctionCode.NNPA_TRANSFORM if hardware else None)
    ztensor = described(L.ZDNN_2D, FP32, rows, columns)
    assert transform(guest(), ztensor, np.ones((rows, columns), np.float32)).status == OK
    ztensor.sticks.view(np.uint16)[0] = 0xFFFF
    assert back(guest(), ztensor).status == (WARNED if columns > 2 else FAILED)


def test_hardware_needs_the_function() -> None:
    """A guest moved to a machine without NNPA-TRANSFORM is refused once it wants the hardware."""
    moved = guest("telum2")
    moved.machine = MACHINES["telum1"]
    ztensor = described(L.ZDNN_2D, FP32, 33, 63)
    outcome = transform(moved, ztensor, np.ones((33, 63), np.float32))
    assert outcome.status == Status.ZDNN_UNAVAILABLE_FUNCTION
    assert not ztensor.is_transformed
    small = described(L.ZDNN_2D, FP32, 3, 3)
    assert transform(moved, small, np.ones((3, 3), np.float32)).status == OK


def test_explanation_of_a_transform() -> None:
    """A violation names the operand, counts the elements, and shows the first eight with values."""
    ztensor = described(L.ZDNN_NCHW, FP32, 1, 3, 2, 5)
    array = np.ones((1, 3, 2, 5), np.float32)
    array[0, 1] = math.inf
    array[0, 2, 1, 4] = -math.inf
    outcome = transform(guest(), ztensor, array)
    assert outcome.violation
    assert outcome.violation.function is None
    (operand,) = outcome.violation.operands
    assert (operand.operand, operand.count, len(operand.elements)) == ("data", 11, 8)
    first = operand.elements[0]
    assert (first.index, first.code, first.padding) == ((0, 0, 0, 1), 0x7FFF, False)
    assert first.operand_values == (math.inf,)
    assert [element.index for element in operand.elements] == sorted(
        element.index for element in operand.elements
    )
    assert str(outcome.violation) == "data: 11 non-numeric, first at (0, 0, 0, 1)"


def test_explanation_of_the_way_back() -> None:
    """Transforming back names NINF elements, and for FP16 also what overflows."""
    ztensor = described(L.ZDNN_2D, FP16, 33, 65)
    assert transform(guest(), ztensor, np.ones((33, 65), np.float16)).status == OK
    offsets, _ = places.offsets(0, 2, (1, 1, 33, 65))
    codes = ztensor.sticks.view(np.uint16)
    codes[offsets[0, 0, 32, 64] // 2] = 0x5E00
    outcome = back(guest(), ztensor)
    assert (outcome.status, outcome.fp_flags) == (FAILED, 2)
    assert outcome.violation
    (operand,) = outcome.violation.operands
    assert operand.elements[0].index == (0, 0, 32, 64)
    assert operand.elements[0].code == 0x5E00
    assert operand.elements[0].operand_values == (65536.0,)
    codes[-1] = 0x7FFF
    assert back(guest(), ztensor).violation == outcome.violation, "padding is not looked at"


def test_is_transformed_survives_a_failure_on_the_way_back() -> None:
    """Transforming back never changes the state, and writes all elements."""
    ztensor = described(L.ZDNN_1D, FP32, 3)
    assert transform(guest(), ztensor, np.array([1, 2, 3], np.float32)).status == OK
    ztensor.sticks.view(np.uint16)[1] = 0x7FFF
    outcome = back(guest(), ztensor)
    assert (outcome.status, outcome.fp_flags, ztensor.is_transformed) == (FAILED, 1, True)
    assert isinstance(outcome.value, np.ndarray)
    assert np.array_equal(outcome.value.ravel(), [1, math.nan, 3], equal_nan=True)


@pytest.mark.parametrize("kind", [FP32, FP16, BFLOAT])
@pytest.mark.parametrize("wrong", [-1, 1])
def test_wrong_sizes(kind: DataTypes, wrong: int) -> None:
    """User data of a wrong size is refused with its size, after the checks that precede reading."""
    ztensor = described(L.ZDNN_2D, kind, 3, 4)
    array = np.ones(12 + wrong, DTYPES[kind])
    with pytest.raises(Malformed, match=rf"data\[0\] is {array.nbytes} bytes, must be"):
        transform(guest(), ztensor, array)
    with pytest.raises(Malformed, match="data is 2 arrays, must be 1 arrays"):
        transform(guest(), ztensor, np.ones(12, DTYPES[kind]), array)
    ztensor.is_transformed = True
    assert transform(guest(), ztensor, array).status == Status.ZDNN_INVALID_STATE
