# SPDX-License-Identifier: Apache-2.0
"""Distances in DLFLOAT16, against codes and values by exact arithmetic."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnpa_client import Session
from nnpa_client.testing import assert_ulp

from tests.oracle import dlfloat

MAGNITUDES = st.integers(0, 0x7FFE)
CODES = st.builds(int.__or__, MAGNITUDES, st.sampled_from([0, 0x8000]))


def real(code: int) -> float:
    """Return the value of a code that is a number."""
    exact = dlfloat.value(code)
    assert exact is not None
    return float(exact)


def place(code: int) -> int:
    """Return the number of codes from zero to a code, negative below zero."""
    return -(code & 0x7FFF) if code & 0x8000 else code


@given(CODES, CODES)
def test_distance_is_the_number_of_steps(a: int, b: int) -> None:
    """The distance of two codes is the number of steps between them, across zero too."""
    apart = abs(place(a) - place(b))
    assert_ulp(real(a), real(b), apart)
    if apart:
        with pytest.raises(AssertionError, match=rf"are {apart} ulp apart, at most {apart - 1} "):
            assert_ulp(real(a), real(b), apart - 1)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_other_values_are_rounded(x: float) -> None:
    """A value between two codes has the code that exact arithmetic rounds it to."""
    code = dlfloat.rounded(Fraction(x), np.signbit(x).item())
    if code & 0x7FFF == dlfloat.NINF:
        assert_ulp(x, np.inf, 0)
    else:
        assert_ulp(x, real(code), 0)


def test_ninf_is_near_ninf_only() -> None:
    """Infinities and NaN are one value, and no distance makes them a number."""
    assert_ulp([np.nan, -np.inf], [np.inf, np.nan], 0)
    with pytest.raises(AssertionError, match=r"no number of ulp apart.*1 with NINF on one side"):
        assert_ulp([0.0, np.inf], [0.0, 8573157376.0], 100_000)


def test_message_names_the_first_element() -> None:
    """The message has the first element too far, values, codes, distance, and a count."""
    a = np.array([[1, 1], [1, 1]], np.float32)
    b = np.array([[1, 1.001953125], [1.01171875, 1]], np.float32)  # 0x3E01 and 0x3E06
    assert_ulp(a, b, 6)
    with pytest.raises(AssertionError) as caught:
        assert_ulp(a, b, 0)
    assert str(caught.value) == (
        "element [0, 1]: 1.0 (0x3E00) and 1.001953125 (0x3E01) are 1 ulp apart, at most 0 "
        "expected; 2 of 4 elements are, by 6 ulp at most"
    )


def test_shapes_and_bounds_are_checked() -> None:
    """Shapes must agree, nothing is broadcast; a bound below zero is a mistake."""
    with pytest.raises(AssertionError, match=r"shapes differ: \(2,\) and \(1, 2\)"):
        assert_ulp([1, 2], [[1, 2]], 9)
    with pytest.raises(ValueError, match="n: -1, expected at least 0"):
        assert_ulp(1, 1, -1)


def test_ztensors_of_any_type(session: Session) -> None:
    """A ztensor stands for its data, whatever its type."""
    values = np.array([0.5, -3, 100], np.float32)
    assert_ulp(session.ztensor(values), values, 0)
    half = session.ztensor(values.astype(ml_dtypes.bfloat16))
    assert_ulp(half, session.ztensor(values), 0)
    with pytest.raises(AssertionError, match=r"element \[1\]"):
        assert_ulp(half, np.array([0.5, 3, 100]), 8)
