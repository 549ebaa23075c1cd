# SPDX-License-Identifier: Apache-2.0
"""Laws that hold for all operands, by Hypothesis."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnpa_emulator import FUNCTIONS, Outcome, Status, TensorDesc, Ztensor, run
from nnpa_emulator import ztensor as structs
from nnpa_emulator.ztensor import DataLayouts, DataTypes, getsize_ztensor

from tests import strategies
from tests.emulator.operands import blank, cells, guest, tensor

Codes = npt.NDArray[np.uint16]
Pair = tuple[Codes, Codes]
MINE = guest()


def _binary(name: str, a: Codes, b: Codes) -> tuple[int, Codes]:
    output = blank(a.shape)
    arguments = {"input_a": tensor(a), "input_b": tensor(b), "output": output}
    return run(MINE, name, arguments).status, cells(output)


def _unary(name: str, a: Codes) -> Codes:
    output = blank(a.shape)
    run(MINE, name, {"input": tensor(a), "output": output})
    return cells(output)


@pytest.mark.parametrize("name", ["add", "mul", "min", "max"])
@given(pair=strategies.pairs())
def test_operands_commute(name: str, pair: Pair) -> None:
    """add, mul, min and max give the same bits and status for exchanged operands."""
    first, second = _binary(name, *pair), _binary(name, *reversed(pair))
    assert first[0] == second[0]
    assert np.array_equal(first[1], second[1])


@pytest.mark.parametrize("name", ["min", "max"])
@given(codes=strategies.codes())
def test_selection_is_idempotent(name: str, codes: Codes) -> None:
    """min(a, a) and max(a, a) are a, NINF being 7FFF."""
    status, result = _binary(name, codes, codes)
    ninf = codes & 0x7FFF == 0x7FFF
    assert np.array_equal(result, np.where(ninf, 0x7FFF, codes))
    assert status == (Status.ZDNN_ELEMENT_RANGE_VIOLATION if ninf.any() else Status.ZDNN_OK)


@given(pair=strategies.pairs(finite=True))
def test_min_and_max_are_the_operands(pair: Pair) -> None:
    """Of two operands min and max are the two, and min is not above max."""
    least, greatest = _binary("min", *pair)[1], _binary("max", *pair)[1]
    together = np.sort(np.stack(pair).astype(np.int64), 0)
    assert np.array_equal(np.sort(np.stack((least, greatest)).astype(np.int64), 0), together)


@given(pair=strategies.pairs())
def test_sub_is_add_of_the_negative(pair: Pair) -> None:
    """The difference a - b has the bits of a + (-b), NINF included."""
    a, b = pair
    assert np.array_equal(_binary("sub", a, b)[1], _binary("add", a, b ^ np.uint16(0x8000))[1])


@given(codes=strategies.codes())
def test_neutral_elements(codes: Codes) -> None:
    """1 and -0 are neutral: a * 1 = a / 1 = a, and a + (-0) = a, NINF being 7FFF."""
    same = np.where(codes & 0x7FFF == 0x7FFF, 0x7FFF, codes)
    array, minus_zero = np.full_like(codes, 0x3E00), np.full_like(codes, 0x8000)
    for name, neutral in (("mul", array), ("div", array), ("add", minus_zero)):
        assert np.array_equal(_binary(name, codes, neutral)[1], same), name


@given(codes=strategies.codes(finite=True))
def test_signs(codes: Codes) -> None:
    """Changing the signs of both operands does not change a product or a quotient."""
    flipped = codes ^ np.uint16(0x8000)
    for name in ("mul", "div"):
        straight = _binary(name, codes, codes)[1]
        assert np.array_equal(_binary(name, flipped, flipped)[1], straight), name


@given(codes=strategies.codes(finite=True))
def test_exp_is_monotonous(codes: Codes) -> None:
    """A greater operand never has a lesser exponential, NINF being above everything."""
    flat = np.sort(codes.ravel())
    signed = np.where(flat & 0x8000, -(flat & 0x7FFF).astype(np.int64), flat.astype(np.int64))
    order = np.sort(signed)
    back = np.where(order < 0, 0x8000 | -order, order).astype(np.uint16).reshape(1, 1, 1, -1)
    results = _unary("exp", back).ravel().astype(np.int64)
    assert np.all(np.diff(results) >= 0)


def _fresh(layout: int, *dims: int) -> Ztensor:
    user = structs.init_pre_transformed_desc(layout, DataTypes.FP32, *dims)
    desc = structs.generate_transformed_desc(user)
    size = getsize_ztensor(desc)
    return Ztensor(user, desc, size, np.full(size, 0xA5, np.uint8))


def _there(ztensor: Ztensor, array: npt.NDArray[np.float32]) -> Outcome:
    return run(MINE, "transform_ztensor", {"ztensor": ztensor, "data": (array,)})


def _dense(ztensor: Ztensor) -> npt.NDArray[np.float32]:
    value = run(MINE, "transform_origtensor", {"ztensor": ztensor}).value
    assert isinstance(value, np.ndarray)
    return value.astype(np.float32)


@given(data=st.data())
def test_round_trip_is_one_rounding(data: st.DataObject) -> None:
    """Values come back within half a unit of the last place, 2^-10, or as zero below 2^-31."""
    dims = data.draw(strategies.dims)
    array = data.draw(strategies.floats(dims))
    ztensor = _fresh(DataLayouts.ZDNN_NHWC, *dims)
    assert _there(ztensor, array).status == Status.ZDNN_OK
    distance = np.abs(_dense(ztensor).reshape(dims).astype(np.float64) - array)
    tiny = np.abs(array) < 2.0**-31 * (1 + 2.0**-9)
    assert np.all((distance <= np.abs(array.astype(np.float64)) * 2.0**-10) | tiny)


@given(codes=strategies.codes(finite=True))
def test_sticks_there_and_back_are_the_same(codes: Codes) -> None:
    """Transforming back and in again gives the same sticks, bit for bit."""
    ztensor = tensor(codes)
    repeated = _fresh(DataLayouts.ZDNN_NHWC, *codes.shape)
    assert _there(repeated, _dense(ztensor)).status == Status.ZDNN_OK
    assert np.array_equal(cells(repeated), codes)


SHAPES = [(1, 1, 60, 64), (60, 1, 1, 64), (2, 3, 10, 64), (1, 1, 3840, 1), (4, 4, 4, 60), (3840,)]


def _laid(shape: tuple[int, ...]) -> Ztensor:
    layout = DataLayouts.ZDNN_1D if len(shape) == 1 else DataLayouts.ZDNN_NHWC
    return _fresh(layout, *shape)


@given(
    shape=st.sampled_from(SHAPES),
    through=st.sampled_from(SHAPES),
    codes=strategies.codes((1, 1, 1, 3840), finite=True),
)
def test_reshape_there_and_back(
    shape: tuple[int, ...], through: tuple[int, ...], codes: Codes
) -> None:
    """Reshaping into a shape with the same element count, and back, keeps the elements' order."""
    first, middle, last = _laid(shape), _laid(through), _laid(shape)
    values = _dense(tensor(codes)).ravel()
    assert _there(first, values).status == Status.ZDNN_OK
    for src, dest in ((first, middle), (middle, last)):
        outcome = run(MINE, "reshape_ztensor", {"src": src, "dest": dest})
        assert outcome.status == Status.ZDNN_OK
        assert dest.is_transformed
        assert np.array_equal(_dense(dest).ravel(), values)


@given(pair=strategies.pairs())
def test_violation_is_told_exactly_when_there_is_one(pair: Pair) -> None:
    """The status warns if and only if an operand or a result holds NINF, and all are counted."""
    a, b = pair
    output = blank(a.shape)
    outcome = run(MINE, "mul", {"input_a": tensor(a), "input_b": tensor(b), "output": output})
    held = {"input_a": a, "input_b": b, "output": cells(output)}
    counts = {name: int(np.sum(item & 0x7FFF == 0x7FFF)) for name, item in held.items()}
    expected = {name: count for name, count in counts.items() if count}
    reported = outcome.violation.operands if outcome.violation else ()
    assert {item.operand: item.count for item in reported} == expected
    assert (outcome.status == Status.ZDNN_ELEMENT_RANGE_VIOLATION) is bool(expected)
    for item in reported:
        assert len(item.elements) == min(item.count, 8)
        for element in item.elements:
            assert held[item.operand][element.index] == element.code


def test_descriptions_follow_their_user() -> None:
    """An output left to the emulator takes both descriptors of the first input."""
    pre = TensorDesc(DataLayouts.ZDNN_2D, 0, DataTypes.FP16, 0, 0, 3, 4)
    ztensor = Ztensor(pre, structs.generate_transformed_desc(pre))
    for name in ("add", "log", "relu"):
        infer = FUNCTIONS[name].infer
        assert infer
        inputs = {"input_a": ztensor, "input_b": ztensor} if name == "add" else {"input": ztensor}
        extra = {"clipping_value": 0.0} if name == "relu" else {}
        assert infer(**inputs, **extra) == ((pre, ztensor.transformed_desc),)
