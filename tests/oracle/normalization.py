# SPDX-License-Identifier: Apache-2.0
"""Normalisation by its formulas, in extended precision; batchnorm in fractions.

Source: zDNN API Reference 1.2.0, "Normalization Operations"; the first step of layernorm is input
minus mean, as in the formula there.
"""

import numpy as np
import numpy.typing as npt

from tests.oracle import dlfloat
from tests.oracle.rounding import Codes, Precise, decoded


def scaled(a: int, b: int, c: int) -> int:
    """Return the code of a * b + c, exact and rounded once."""
    x, y, z = dlfloat.value(a), dlfloat.value(b), dlfloat.value(c)
    if x is None or y is None or z is None:
        return dlfloat.NINF
    exact = x * y + z
    negative = bool((a ^ b) & 0x8000) and bool(c & 0x8000)
    return dlfloat.rounded(exact, exact < 0 or (exact == 0 and x * y == 0 and negative))


def norm(a: Precise, b: Precise) -> Precise:
    """Return the Euclidean norm of a - b along the last axis, which stays with one element."""
    return np.asarray(np.sqrt(((a - b) ** 2).sum(axis=-1, keepdims=True)), np.longdouble)


def moments(x: Precise, bessel: int) -> tuple[Precise, Precise]:
    """Return mean and variance of every first index, shaped (n, 1, 1, 1)."""
    count = x[0].size
    mean = x.mean(axis=(1, 2, 3), keepdims=True)
    variance = ((x - mean) ** 2).sum(axis=(1, 2, 3), keepdims=True) / (count - bessel)
    return mean, variance


def layernorm(
    a: Precise, mean: Precise, variance: Precise, beta: Precise, gamma: Precise, epsilon: Precise
) -> Precise:
    """Return (a - mean) / sqrt(variance + epsilon) * gamma + beta."""
    return np.asarray((a - mean) / np.sqrt(variance + epsilon) * gamma + beta, np.longdouble)


def reduced(codes: Codes, greatest: bool) -> tuple[Codes, npt.NDArray[np.int32]]:
    """Return the extreme code of every last axis and its first position; NINF wins, -0 < +0."""
    values = decoded(codes)
    order = np.where(codes == 0x8000, np.longdouble(-(2.0**-60)), values)
    order = np.where(np.isnan(order), np.inf if greatest else -np.inf, order)
    at = order.argmax(axis=-1) if greatest else order.argmin(axis=-1)
    result = np.take_along_axis(codes, at[..., np.newaxis], axis=-1)
    result = np.where(result & 0x7FFF == dlfloat.NINF, np.uint16(dlfloat.NINF), result)
    return result, at[..., np.newaxis].astype(np.int32)
