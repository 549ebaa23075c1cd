# SPDX-License-Identifier: Apache-2.0
"""Softmax over the dim1 vectors of DLFLOAT16 sticks, in double precision, rounded once.

Lanes of 64 partial sums, one per cell of a stick, make the inner loops vector code; the order of
additions depends on dim1 alone.
Source: zDNN API Reference 1.2.0, zdnn_softmax and zdnn_softmax_mask.
"""

import math

import numpy as np

from nnpa_emulator.kernels.convert import MAGNITUDE16, Codes, decode, encode_run64
from nnpa_emulator.kernels.jit import implements, inlined, kernel
from nnpa_emulator.kernels.order import MIN_KEY, NINF16, from_ordered, ordered
from nnpa_emulator.kernels.padding import clear_padding
from nnpa_emulator.reference import activation as reference
from nnpa_emulator.reference.layout import Dims, Doubles, Pages

PAGE_CELLS = 2048
LOG2_E = 1.4426950408889634
# ln 2 in two parts, the first with trailing zeros, so that k * LN2_HIGH is exact.
# Source: W. J. Cody and W. Waite, "Software Manual for the Elementary Functions", 1980, chapter 6.
LN2_HIGH, LN2_LOW = 0.693359375, -2.121944400546905827679e-4
# Adding 1.5 * 2**52 leaves the nearest integer in the low bits of the significand.
ROUNDER = 6755399441055744.0
MIN_EXPONENT = -700.0
BIAS, FRACTION_BITS = np.int64(1023), np.int64(52)


@inlined
def _exp(value: float) -> float:
    """Return e to a power of 0 or less, relative error below 1e-13; 0 below e**-700 or so.

    Results that small are 0 in DLFLOAT16. The series is Taylor's, up to r**11 / 11! on
    |r| <= ln(2) / 2, even and odd powers apart: the chain of operations is what takes the time.
    """
    power = max(value, MIN_EXPONENT)
    shifted = power * LOG2_E + ROUNDER
    k = shifted - ROUNDER
    r = (power - k * LN2_HIGH) - k * LN2_LOW
    square = r * r
    even = 1 / 720 + square * (1 / 40320 + square * (1 / 3628800))
    even = 1.0 + square * (1 / 2 + square * (1 / 24 + square * even))
    odd = 1 / 5040 + square * (1 / 362880 + square * (1 / 39916800))
    odd = 1.0 + square * (1 / 6 + square * (1 / 120 + square * odd))
    series = even + r * odd
    bits = np.float64(shifted).view(np.int64)
    scale = np.int64((bits + BIAS) << FRACTION_BITS).view(np.float64)
    return series * scale


@implements(reference.softmax, contracted=True)
def softmax(codes: Codes, out: Codes, dims: Dims, pages: Pages, count: int, log: bool) -> np.uint16:
    """Apply softmax to the first `count` cells of every dim1 vector; return the largest magnitude.

    Other cells and the padding become zero. With a NINF among the first `count` cells all of them
    become NINF. dim3 is 1.
    """
    d4, _, d2, d1 = dims
    row = np.empty((d1 + 63) // 64 * 64, np.float64)
    words = row.view(np.uint64)
    lanes = np.empty(64, np.float64)
    largest = np.uint16(0)
    for e4 in range(d4):
        for e2 in range(d2):
            cell = (e4 * pages[0] + e2 // 32) * PAGE_CELLS + e2 % 32 * 64
            step = pages[1] * PAGE_CELLS
            greatest = _load(codes, cell, step, count, row)
            total = _exponentials(row, count, greatest, lanes, log)
            _finish(row, count, greatest, total, log)
            for first in range(0, count, 64):
                at = np.uintp(cell + first // 64 * step)
                cells = np.uintp(min(64, count - first))
                met = encode_run64(words, np.uintp(first), out, at, cells)
                largest = np.uint16(max(largest, met))
            for e1 in range(count, d1):
                out[cell + e1 // 64 * step + e1 % 64] = 0
    clear_padding(out, dims, pages)
    return largest


@kernel
def _load(codes: Codes, cell: int, step: int, count: int, row: Doubles) -> float:
    """Widen the first `count` cells of a vector into `row`; return the greatest, NaN with NINF."""
    greatest = MIN_KEY
    largest = np.uint16(0)
    for first in range(0, count, 64):
        at = np.uintp(cell + first // 64 * step)
        base = np.uintp(first)
        for i in range(np.uintp(min(64, count - first))):
            code = codes[at + i]
            largest = np.uint16(max(largest, np.uint16(code & MAGNITUDE16)))
            greatest = np.int16(max(greatest, ordered(code)))
            row[base + i] = np.float64(decode(code))
    return math.nan if largest == NINF16 else np.float64(decode(from_ordered(greatest)))


@inlined
def _exponentials(row: Doubles, count: int, greatest: float, lanes: Doubles, log: bool) -> float:
    """Return the sum of exp(x - greatest); leave the exponentials in `row` unless `log`."""
    lanes[:] = 0.0
    for first in range(0, count, 64):
        base = np.uintp(first)
        for i in range(np.uintp(min(64, count - first))):
            value = _exp(row[base + i] - greatest)
            lanes[i] += value
            if not log:
                row[base + i] = value
    return _total(lanes)


@inlined
def _total(lanes: Doubles) -> float:
    """Return the sum of the lanes, which it halves until there is one: no sum waits for another."""
    half = np.uintp(lanes.size // 2)
    while half:
        for i in range(half):
            lanes[i] += lanes[half + i]
        half >>= np.uintp(1)
    return float(lanes[0])


@kernel
def _finish(row: Doubles, count: int, greatest: float, total: float, log: bool) -> None:
    """Divide by the sum, or with `log` subtract the greatest and the logarithm of the sum."""
    if math.isnan(greatest):
        row[:count] = math.nan
    elif log:
        logarithm = math.log(total)
        for i in range(np.uintp(count)):
            row[i] = row[i] - greatest - logarithm
    else:
        reciprocal = 1 / total
        for i in range(np.uintp(count)):
            row[i] *= reciprocal
