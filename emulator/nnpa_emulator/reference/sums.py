# SPDX-License-Identifier: Apache-2.0
"""Sums in order, one addition after the other, and runs of results as DLFLOAT16 codes."""

import numpy as np
import numpy.typing as npt

from nnpa_emulator import dlfloat
from nnpa_emulator.reference.layout import Codes, Doubles, Singles


def encode_fp64(words: npt.NDArray[np.uint64], codes: Codes) -> np.uint16:
    """Round a run of float64 bits to codes; return the largest magnitude."""
    codes[:] = dlfloat.result_from_fp64(words.view(np.float64))
    return dlfloat.largest(codes)


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
