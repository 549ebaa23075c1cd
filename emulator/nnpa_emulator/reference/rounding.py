# SPDX-License-Identifier: Apache-2.0
"""Results of arithmetic as DLFLOAT16 codes, rounded once, to nearest, ties away from zero.

Finite overflow is NINF of its own sign, NaN is 7FFF. An infinity, which only a division makes, is
7FFF as an FP32 result and NINF of its own sign as a float64 result.
"""

import numpy as np
import numpy.typing as npt

from nnpa_emulator import dlfloat
from nnpa_emulator.reference.layout import Codes, Doubles, Singles, largest

NINF = np.uint16(dlfloat.NINF)


def from_single(values: Singles) -> Codes:
    """Round FP32 results to codes."""
    return np.where(np.isfinite(values), dlfloat.from_fp32(values), NINF)


def from_double(values: Doubles) -> Codes:
    """Round float64 results to codes."""
    return np.where(np.isnan(values), NINF, dlfloat.from_fp64(values))


def encode_fp64(words: npt.NDArray[np.uint64], codes: Codes) -> np.uint16:
    """Round a run of float64 bits to codes; return the largest magnitude."""
    codes[:] = from_double(words.view(np.float64))
    return largest(codes)


def add_in_order(terms: Doubles) -> Doubles:
    """Add along the first axis, one addition after the other."""
    total = np.zeros(terms.shape[1:])
    for term in terms:
        total = total + term
    return total


def multiply_in_order(left: Singles, right: Singles) -> Singles:
    """Multiply matrices in FP32: one addition after the other, in the order of the inner dimension.

    Products of DLFLOAT16 values are exact in FP32.
    """
    sums = np.zeros((left.shape[0], right.shape[1]), np.float32)
    for column, row in zip(left.T, right, strict=True):
        sums += column[:, None] * row
    return sums
