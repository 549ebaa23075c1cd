# SPDX-License-Identifier: Apache-2.0
"""Activations by their formulas: 60 digits for the unary ones, extended precision for softmax.

Source: zDNN API Reference 1.2.0, "Activation Operations"; the tanh form of gelu comes from the
zDNN library's tests.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import mpmath as mpmath_  # type: ignore[import-untyped] # ships no types
import numpy as np

from tests.oracle import dlfloat
from tests.oracle.rounding import Precise

_SCALE = 300
mpmath: Any = mpmath_


def _gelu(x: Any) -> Any:
    inner = mpmath.mpf("0.7978845608") * x * (1 + mpmath.mpf("0.044715") * x * x)
    return x / 2 * (1 + mpmath.tanh(inner))


UNARY: Mapping[str, Callable[[Any], Any]] = {
    "tanh": mpmath.tanh,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "gelu": _gelu,
}


def unary(name: str, code: int) -> int:
    """Return the code of a unary function at a code: the formula with 60 digits, rounded once."""
    exact = dlfloat.value(code)
    if exact is None:
        return dlfloat.NINF
    with mpmath.workdps(60):
        x = mpmath.mpf(exact.numerator) / exact.denominator
        if abs(x) > 100:
            x = mpmath.mpf(100 if x > 0 else -100) if name != "gelu" or x < 0 else x
        units = int(mpmath.nint(mpmath.ldexp(UNARY[name](x), _SCALE)))
    negative = bool(code & 0x8000) and name != "sigmoid"
    return dlfloat.rounded(Fraction(units, 2**_SCALE), negative)


def rectified(code: int, clipping: int, factor: int) -> int:
    """Return the code of relu or leaky_relu with scalars given as codes."""
    x, limit = dlfloat.value(code), dlfloat.value(clipping)
    slope = dlfloat.value(factor)
    if x is None or limit is None or slope is None:
        return dlfloat.NINF
    if x > 0:
        return clipping if limit and x > limit else code
    if not slope:
        return 0
    return dlfloat.rounded(slope * x, bool(code & 0x8000))


def softmax(x: Precise, count: int, log: bool) -> Precise:
    """Return the softmax, or its logarithm, of the first `count` elements of the last axis."""
    used = x[..., :count]
    shifted = used - used.max(axis=-1, keepdims=True)
    powers = np.exp(shifted)
    total = powers.sum(axis=-1, keepdims=True)
    result = np.zeros_like(x)
    result[..., :count] = shifted - np.log(total) if log else powers / total
    return result
