# SPDX-License-Identifier: Apache-2.0
"""Quantised numbers on their way into sticks, their ranges, and INT32 on its way back."""

import math
from dataclasses import replace
from itertools import product

import ml_dtypes
import numpy as np
import pytest
from nnpa_emulator import Outcome, Status, TensorDesc, run
from nnpa_emulator import ztensor as structs
from nnpa_emulator.ztensor import DataFormats, DataTypes

from tests.emulator.transforms import (
    BFLOAT,
    DTYPES,
    FP16,
    FP32,
    INT8,
    OK,
    WARNED,
    Array,
    L,
    back,
    code_of,
    described,
    fresh,
    guest,
    transform,
)
from tests.oracle import dlfloat as oracle
from tests.oracle import stick as places

F, W, K = (
    DataFormats.ZDNN_FORMAT_4DFEATURE,
    DataFormats.ZDNN_FORMAT_4DWEIGHTS,
    DataFormats.ZDNN_FORMAT_4DKERNEL,
)
D, I8, I32 = DataTypes.ZDNN_DLFLOAT16, DataTypes.ZDNN_BINARY_INT8, DataTypes.ZDNN_BINARY_INT32
HARDWARE, SOFTWARE = "hardware", "software"
PRE_TYPES = (FP32, FP16, BFLOAT, INT8, DataTypes.INT32, D)
TRANSFORMED_TYPES = (D, I8, I32, DataTypes.ZDNN_BINARY_FP32)
COMBINATIONS: dict[tuple[int, int, int], str] = {
    (F, D, FP32): HARDWARE, (F, D, FP16): SOFTWARE, (F, D, BFLOAT): SOFTWARE,
    (F, I8, FP32): HARDWARE, (F, I8, FP16): HARDWARE, (F, I8, BFLOAT): HARDWARE,
    (F, I8, INT8): SOFTWARE, (W, I8, INT8): SOFTWARE,
}  # fmt: skip


@pytest.mark.parametrize("machine", ["telum1", "telum2"])
@pytest.mark.parametrize(
    ("fmt", "kind", "user"), list(product((F, W, K), TRANSFORMED_TYPES, PRE_TYPES))
)
def test_quantized_combinations(fmt: int, kind: int, user: DataTypes, machine: str) -> None:
    """Format, type and pre-transformed type have one answer each, by machine where it matters."""
    desc = TensorDesc(L.ZDNN_NHWC, fmt, kind, 1, 1, 2, 3)
    ztensor = fresh(TensorDesc(L.ZDNN_2D, 0, user, 0, 0, 2, 3), desc)
    ztensor.rec_scale = 1.0
    scalars = {"saturation_control": False, "clip_min": -128, "clip_max": 127}
    data = (np.ones(6, DTYPES.get(user, np.int32)),)
    arguments = {"ztensor": ztensor, **scalars, "data": data}
    status = run(guest(machine), "transform_quantized_ztensor", arguments).status
    engine = COMBINATIONS.get((fmt, kind, user))
    if engine is None:
        wrong = Status.ZDNN_INVALID_FORMAT if fmt == K else Status.ZDNN_INVALID_TYPE
        assert status == wrong
    elif engine == HARDWARE and machine == "telum1":
        assert status == Status.ZDNN_UNAVAILABLE_FUNCTION
    else:
        assert status == OK
    assert ztensor.is_transformed is (status == OK)


def _quantized(
    array: Array, user: DataTypes, scale: float, offset: float, low: int, high: int
) -> tuple[Outcome, list[int]]:
    pre = TensorDesc(L.ZDNN_1D, 0, user, 0, 0, 0, array.size)
    desc = structs.generate_quantized_transformed_desc(pre, 1)
    ztensor = structs.init_quantized_ztensor(pre, desc, scale, offset)
    ztensor.buffer, ztensor.buffer_size = np.zeros(4096, np.uint8), 4096
    arguments = {"ztensor": ztensor, "saturation_control": False, "clip_min": low, "clip_max": high}
    outcome = run(guest(), "transform_quantized_ztensor", {**arguments, "data": (array,)})
    return outcome, ztensor.sticks.view(np.int8)[: array.size].tolist()


@pytest.mark.parametrize("scale", [1.0, 0.5, 0.1, 3.0, 1 / 3])
@pytest.mark.parametrize("offset", [0.0, 3.0, -7.25])
def test_quantized_numbers(scale: float, offset: float) -> None:
    """An INT8 element is clip(round_half_even(x * rs + of)) in FP32, rs and of in DLFLOAT16."""
    array = np.random.default_rng(3).normal(0, 40 * scale, 100).astype(np.float32)
    outcome, got = _quantized(array, FP32, scale, offset, -100, 90)
    assert outcome.status == OK
    rs = oracle.value(code_of(float(np.float32(1) / np.float32(scale))))
    of = oracle.value(code_of(offset))
    assert rs is not None
    assert of is not None
    total = (array * np.float32(float(rs))) + np.float32(float(of))
    assert got == [min(max(round(float(number)), -100), 90) for number in total]


def test_quantized_halves_go_to_even() -> None:
    """Ties round to even: 0.5, 1.5, 2.5 and their negatives."""
    array = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5], np.float32)
    assert _quantized(array, FP32, 1, 0, -128, 127)[1] == [0, 2, 2, 0, -2, -2]


def test_quantizing_bfloat_converts_all_elements() -> None:
    """Counts that are no multiple of four convert like all others."""
    for count in range(1, 9):
        array = np.arange(1, count + 1).astype(ml_dtypes.bfloat16)
        assert _quantized(array, BFLOAT, 1, 0, -128, 127)[1] == list(range(1, count + 1))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_quantizing_what_is_no_number(value: float) -> None:
    """Infinity and NaN are a range violation that names the element."""
    outcome, _ = _quantized(np.array([1, value], np.float32), FP32, 1, 0, -128, 127)
    assert outcome.status == WARNED
    assert outcome.violation
    assert outcome.violation.operands[0].elements[0].index == (0, 0, 0, 1)


def test_plain_ztensor_cannot_be_quantized() -> None:
    """Without a scale the reciprocal is 0, which the machine answers with F001."""
    outcome, _ = _quantized(np.ones(1, np.float32), FP32, 0, 0, -128, 127)
    assert outcome.status == Status.ZDNN_FUNC_RC_F001


@pytest.mark.parametrize("machine", ["telum1", "telum2"])
def test_range_excludes_padding(machine: str) -> None:
    """Least and greatest come from elements only, starting at -0 and +0."""
    ztensor = described(L.ZDNN_2D, FP32, 33, 65)
    array = np.linspace(0.5, 1, 33 * 65, dtype=np.float32)
    mine = guest(machine)
    assert transform(mine, ztensor, array).status == OK
    offsets, size = places.offsets(0, 2, (1, 1, 33, 65))
    padding = np.ones(size // 2, bool)
    padding[offsets.ravel() // 2] = False
    ztensor.sticks.view(np.uint16)[padding] = 0xFFFF
    value = run(mine, "getrange_ztensor", {"ztensor": ztensor}).value
    assert value == (0.0, 1.0)
    assert isinstance(value, tuple)
    assert math.copysign(1, value[0]) == -1


@pytest.mark.parametrize(
    ("codes", "least", "greatest"),
    [
        ([0x3E00, 0xC000], -2.0, 1.0),
        ([0x7FFE, 0xFFFE], -8573157376.0, 8573157376.0),
        ([0x7FFF, 0xBE00], -1.0, math.nan),
        ([0xFFFF, 0xBE00], math.nan, 0.0),
        ([0x7FFF, 0xFFFF], math.nan, math.nan),
    ],
)
def test_range_of_codes(codes: list[int], least: float, greatest: float) -> None:
    """NINF makes the end of its sign NaN; the status stays ZDNN_OK."""
    ztensor = described(L.ZDNN_1D, FP32, 2)
    ztensor.sticks.view(np.uint16)[:2] = codes
    ztensor.is_transformed = True
    outcome = run(guest(), "getrange_ztensor", {"ztensor": ztensor})
    assert outcome.status == OK
    assert np.array_equal(np.array(outcome.value), [least, greatest], equal_nan=True)


def test_int32_comes_back() -> None:
    """INT32 tensors, the index outputs of reduce, give cell 0 of each row."""
    user = TensorDesc(L.ZDNN_3D, 0, DataTypes.INT32, 0, 2, 33, 1)
    ztensor = fresh(user, structs.generate_transformed_desc(user))
    offsets, _ = places.offsets(0, 4, (1, 2, 33, 1))
    ztensor.sticks.view(np.int32)[offsets.ravel() // 4] = np.arange(-10, 56)
    ztensor.is_transformed = True
    outcome = back(guest("telum1"), ztensor)
    assert outcome.status == OK
    assert isinstance(outcome.value, np.ndarray)
    assert outcome.value.ravel().tolist() == list(range(-10, 56))


@pytest.mark.parametrize("name", ["transform_ztensor", "transform_ztensor_with_saturation"])
def test_int32_does_not_go_in(name: str) -> None:
    """INT32 and INT8 tensors cannot be transformed by the float transforms."""
    user = TensorDesc(L.ZDNN_1D, 0, DataTypes.INT32, 0, 0, 0, 3)
    ztensor = fresh(user, structs.generate_transformed_desc(user))
    outcome = transform(guest(), ztensor, np.ones(3, np.int32), name=name)
    assert outcome.status == Status.ZDNN_INVALID_TYPE
    ztensor.transformed_desc = replace(ztensor.transformed_desc, type=I8)
    assert transform(guest(), ztensor, np.ones(3, np.int32), name=name).status == outcome.status
