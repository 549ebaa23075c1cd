# SPDX-License-Identifier: Apache-2.0
"""Assertions for tests of what an accelerator computes."""

from typing import Any

import numpy as np
import numpy.typing as npt

from nnpa_client.ztensor import Ztensor

Values = Ztensor | npt.ArrayLike

# DLFLOAT16: sign, 6 bits of exponent (bias 31), 9 of fraction, no subnormals; magnitude 0 is zero,
# 7FFF is not a number or infinity ("DLFloat: A 16-b Floating Point Format", ARITH 2019).
_LINE = (1023 - 31) << 9  # float64's exponent and nine bits of fraction of 2^-31, the code of zero
_NINF = 0x7FFF
_DROPPED = 52 - 9  # bits of float64's fraction that a code does not have


def assert_ulp(a: Values, b: Values, n: int) -> None:
    """Assert that `a` and `b` are at most `n` units in the last place of DLFLOAT16 apart.

    `a` and `b` are ztensors or arrays of one shape. Values that no DLFLOAT16 code has are rounded
    first, once, to nearest and ties away, as the machine does. Codes are counted as they follow
    each other on the number line: 0 means the same codes, but for the sign of zero. NINF, which
    stands for infinities and what is not a number, is near nothing but NINF. Raises AssertionError
    that names the first element, its values, bits and distance; ValueError where `n` is negative.
    """
    __tracebackhide__ = True
    if n < 0:
        raise ValueError(f"n: {n}, expected at least 0")
    ours, theirs = _values(a), _values(b)
    if ours.shape != theirs.shape:
        raise AssertionError(f"shapes differ: {ours.shape} and {theirs.shape}")
    mine, yours = _codes(ours), _codes(theirs)
    distance = np.abs(_places(mine) - _places(yours))
    strange = (mine & _NINF == _NINF) != (yours & _NINF == _NINF)
    far = strange | (distance > n)
    if not far.any():
        return
    at = tuple(int(index) for index in np.argwhere(far)[0])
    apart = "no number of" if strange[at] else str(distance[at])
    finite = distance[~strange]
    worst = int(finite.max()) if finite.size else 0
    raise AssertionError(
        f"element {list(at)}: {ours[at]!s} (0x{mine[at]:04X}) and {theirs[at]!s} "
        f"(0x{yours[at]:04X}) are {apart} ulp apart, at most {n} expected; "
        f"{int(far.sum())} of {far.size} elements are, by {worst} ulp at most"
        f"{f', {int(strange.sum())} with NINF on one side' if strange.any() else ''}"
    )


def _values(values: Values) -> npt.NDArray[np.float64]:
    """Return values as float64, which holds those of all of zDNN's types exactly."""
    array: npt.NDArray[Any] = values.numpy() if isinstance(values, Ztensor) else np.asarray(values)
    return array.astype(np.float64)


def _codes(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Round values to DLFLOAT16 codes: nearest, ties away, beyond the greatest is NINF."""
    bits = values.view(np.int64)
    low, high = _LINE << _DROPPED, (_LINE + _NINF) << _DROPPED
    clamped = np.clip(bits & 0x7FFF_FFFF_FFFF_FFFF, low, high)
    magnitude = ((clamped + (1 << (_DROPPED - 1))) >> _DROPPED) - _LINE
    codes: npt.NDArray[np.int64] = np.where(np.signbit(values), magnitude | 0x8000, magnitude)
    return codes


def _places(codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the places of codes on the number line; both zeros have place 0, NINF is beyond."""
    magnitude = codes & _NINF
    place = np.where(codes & 0x8000, -magnitude, magnitude)
    return np.where(magnitude == _NINF, 0, place)
