# SPDX-License-Identifier: Apache-2.0
"""Fixed-point arithmetic of the ARC DSP extensions, on int64 arrays.

Sources: embARC MLI documentation, "Data Formats" and "Hardware Rounding"; library behaviour.
All right shifts are exact: every dropped bit takes part in the tie decision, and a value is
saturated once, after rounding. A right shift by a negative count is a saturating left shift.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

_EXACT_TERMS = 1 << 22  # products of two int16 stay under 2^30, so 2^22 of them under 2^53
_BLOCK_ELEMENTS = 1 << 16  # elements of one block of partial sums: 512 KiB, within the cache


class Rounding(Enum):
    """Hardware rounding: CONVERGENT sends ties to even, UP sends ties toward plus infinity.

    The 1.x builds use convergent rounding (build option ``-Xdsp_ctrl=postshift,guard,convergent``).
    """

    CONVERGENT = "convergent"
    UP = "up"


class Accumulator(Enum):
    """The reaction to a partial sum beyond the accumulator; the manual leaves it to the user.

    EXACT never loses a bit. HARDWARE wraps 32-bit accumulators and saturates 40-bit ones after
    every product, an inference about the hardware that no public document confirms.
    """

    EXACT = "exact"
    HARDWARE = "hardware"


@dataclass(frozen=True, slots=True)
class Matrix:
    """Weight rows prepared for many products: float64 values [R, N], Euclidean norms [R]."""

    values: FloatArray
    norms: FloatArray


def matrix(rows: npt.NDArray[np.integer]) -> Matrix:
    """Prepare integer weight rows [R, N] of at most 16 bits each."""
    values = rows.astype(np.float64)
    return Matrix(values, _norms(values))


def _norms(rows: FloatArray) -> FloatArray:
    """Euclidean norm of each row, rounded upward."""
    norms: FloatArray = np.sqrt(np.einsum("rn,rn->r", rows, rows)) * (1 + 1e-9)
    return norms


def saturate(x: IntArray, bits: int) -> IntArray:
    """Clamp to the signed range of ``bits`` bits."""
    return np.clip(x, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def round_shift(x: IntArray, n: IntArray | int, rounding: Rounding) -> IntArray:
    """Return x / 2^n as the nearest integer, for n >= 0 and magnitudes below 2^61."""
    count = np.minimum(n, 62)  # beyond it every such magnitude rounds to 0, as at 62
    quotient = x >> count
    twice_rest = (x - (quotient << count)) << 1
    unit = np.int64(1) << count
    if rounding is Rounding.UP:
        return quotient + (twice_rest >= unit)
    tie_to_even = (twice_rest == unit) & ((quotient & 1) == 1)
    rounded: IntArray = quotient + ((twice_rest > unit) | tie_to_even)
    return rounded


def shift_left_saturated(x: IntArray, n: IntArray | int, bits: int) -> IntArray:
    """Return x * 2^n for n >= 0, clamped to ``bits`` bits; no count is too large."""
    count = np.minimum(n, bits)
    limit = 1 << (bits - 1)
    low, high = -(np.int64(limit) >> count), np.int64(limit - 1) >> count
    return np.where(x > high, limit - 1, np.where(x < low, -limit, x << count))


def scale_rounded(x: IntArray, n: IntArray | int, bits: int, rounding: Rounding) -> IntArray:
    """Return x / 2^n rounded, then clamped to ``bits`` bits; a negative n multiplies."""
    right = saturate(round_shift(x, np.maximum(n, 0), rounding), bits)
    return np.where(
        np.less(n, 0), shift_left_saturated(x, np.maximum(np.negative(n), 0), bits), right
    )


def scale_floored(x: IntArray, n: int, bits: int) -> IntArray:
    """Return x / 2^n truncated toward minus infinity, then clamped; a negative n multiplies."""
    if n < 0:
        return shift_left_saturated(x, -n, bits)
    return saturate(x >> min(n, 63), bits)


def wrap(x: IntArray, bits: int) -> IntArray:
    """Keep what ``bits`` bits of two's complement keep."""
    half = 1 << (bits - 1)
    return ((x + half) & ((1 << bits) - 1)) - half


def accumulate(
    start: IntArray, x: npt.NDArray[np.integer], rows: Matrix, bits: int, model: Accumulator
) -> tuple[IntArray, bool]:
    """Start [F, R] plus the dot products of frames x [F, N] and rows [R, N].

    Returns the accumulators [F, R] and whether any partial sum, in the order of the products,
    left ``bits`` bits. Exact up to that point whatever the model.
    """
    frames = x.astype(np.float64)
    total = start + _exact_products(frames, rows.values)
    suspects = _suspects(start, frames, rows, float(1 << (bits - 1)))
    if not len(suspects):
        return total, False
    overflow = False
    block = max(1, _BLOCK_ELEMENTS // max(1, frames.shape[1]))
    for first in range(0, len(suspects), block):
        pairs = suspects[first : first + block]
        f, r = pairs[:, 0], pairs[:, 1]
        products = frames[f] * rows.values[r]
        left = _leaves(start[f, r], products, bits)
        overflow |= bool(left.any())
        if model is Accumulator.HARDWARE:
            lost = products[left].astype(np.int64)
            total[f[left], r[left]] = _hardware(start[f, r][left], lost, bits)
    return total, overflow


def _exact_products(x: FloatArray, w: FloatArray) -> IntArray:
    """Multiply x @ w.T of integers, in float64 blocks short enough that every sum is exact."""
    total = np.zeros((x.shape[0], w.shape[0]), np.int64)
    for first in range(0, x.shape[1], _EXACT_TERMS):
        part = slice(first, first + _EXACT_TERMS)
        total += (x[:, part] @ w[:, part].T).astype(np.int64)
    return total


def _suspects(start: IntArray, x: FloatArray, rows: Matrix, limit: float) -> IntArray:
    """Pairs (frame, row) that can overflow: no partial sum exceeds the product of the norms."""
    bound = np.abs(start) + np.outer(_norms(x), rows.norms)
    return np.argwhere(bound >= limit).astype(np.int64)


def _leaves(start: IntArray, products: FloatArray, bits: int) -> npt.NDArray[np.bool_]:
    """Tell for each line whether a partial sum leaves ``bits`` bits."""
    sums = np.cumsum(products, axis=1)
    limit = 1 << (bits - 1)
    low, high = start + sums.min(axis=1), start + sums.max(axis=1)
    left: npt.NDArray[np.bool_] = (low < -limit) | (high >= limit)
    return left


def _hardware(start: IntArray, products: IntArray, bits: int) -> IntArray:
    """Sum as the assumed hardware does: 32 bits wrap, 40 bits saturate after every product.

    A saturating addition is x -> clamp(x + a, low, high); such steps compose into one of their
    own kind, so neighbours are merged pairwise until one step is left.
    """
    if bits == 32:
        return wrap(start + products.sum(axis=1), bits)
    limit = 1 << (bits - 1)
    add, low, high = products, np.full_like(products, -limit), np.full_like(products, limit - 1)
    while add.shape[1] > 1:
        if add.shape[1] % 2:
            add, low, high = (
                np.pad(a, ((0, 0), (0, 1)), constant_values=v)
                for a, v in ((add, 0), (low, -limit), (high, limit - 1))
            )
        left, right = np.s_[:, 0::2], np.s_[:, 1::2]
        low, high = (
            np.clip(low[left] + add[right], low[right], high[right]),
            np.clip(high[left] + add[right], low[right], high[right]),
        )
        add = add[left] + add[right]
    total: IntArray = np.clip(start + add[:, 0], low[:, 0], high[:, 0])
    return total
