# SPDX-License-Identifier: Apache-2.0
"""Two lines of FP32 beside each other: sums of a fixed order, histograms of ulps, classes."""

import math

import numpy as np
import numpy.typing as npt

from nnpa_emulator.kernels.convert import as_bits, as_float
from nnpa_emulator.kernels.jit import implements, kernel
from nnpa_emulator.reference import comparison as reference
from nnpa_emulator.reference.comparison import LANES, LEAST, NOT_NUMERIC, ULP
from nnpa_emulator.reference.layout import Doubles, Singles

Counts = npt.NDArray[np.int64]

_MOST = np.finfo(np.float32).max
_ZERO = np.float32(0)
_EXPONENT = np.uint32(0x7F800000)
_TERMS, _EDGES = 7, 7
_NEVER = np.float32(-np.inf)
_CLASS_LANES = 16


@implements(reference.tally)
def tally(got: Singles, expected: Singles, sums: Doubles, counts: Counts) -> None:
    """Add 64 elements at a time, each to the lanes of its terms."""
    lanes = np.zeros((_TERMS + 1) * LANES)
    counts[:] = 0
    for start in range(0, got.size, LANES):
        count = np.uintp(min(LANES, got.size - start))
        _add_terms(got, expected, np.uintp(start), count, lanes)
        _count_ulps(got, expected, np.uintp(start), count, counts)
    bad = counts[_EDGES + 1]
    counts[_EDGES] = got.size
    for place in range(_EDGES, 0, -1):
        counts[place] -= counts[place - 1]
    counts[0] -= bad  # their distance is 0
    sums[_TERMS] = lanes[_TERMS * LANES :].max()
    for term in range(_TERMS):
        sums[term] = _fold(lanes, term * LANES)


@kernel
def _number(value: np.float32, beside: np.float32) -> float:
    """Return a value that is a number beside another one, else 0."""
    return np.float64(value if (abs(value) <= _MOST) & (abs(beside) <= _MOST) else _ZERO)


@kernel
def _add_terms(
    got: Singles, expected: Singles, start: np.uintp, count: np.uintp, lanes: Doubles
) -> None:
    """Add up to 64 elements, one to each lane."""
    for i in range(count):
        value, beside = got[start + i], expected[start + i]
        a, b = _number(value, beside), _number(beside, value)
        error = a - b
        absolute = abs(error)
        lanes[i] += absolute
        lanes[LANES + i] += error
        lanes[2 * LANES + i] += error * error
        lanes[3 * LANES + i] += a * a
        lanes[4 * LANES + i] += b * b
        lanes[5 * LANES + i] += a * b
        lanes[6 * LANES + i] += b
        most = lanes[7 * LANES + i]
        lanes[7 * LANES + i] = absolute if absolute > most else most


@kernel
def _count_ulps(
    got: Singles, expected: Singles, start: np.uintp, count: np.uintp, counts: Counts
) -> None:
    """Count up to 64 elements that are within each edge, and those that are no numbers."""
    by_half = by_1 = by_2 = by_4 = by_8 = by_16 = by_64 = bad = np.int32(0)
    for i in range(count):
        value, beside = got[start + i], expected[start + i]
        a, b = _number(value, beside), _number(beside, value)
        power = np.float64(as_float(as_bits(np.float32(b)) & _EXPONENT))
        distance, unit = abs(a - b), (power if power > LEAST else LEAST) * ULP
        by_half += np.int32(distance <= 0.5 * unit)
        by_1 += np.int32(distance <= unit)
        by_2 += np.int32(distance <= 2.0 * unit)
        by_4 += np.int32(distance <= 4.0 * unit)
        by_8 += np.int32(distance <= 8.0 * unit)
        by_16 += np.int32(distance <= 16.0 * unit)
        by_64 += np.int32(distance <= 64.0 * unit)
        bad += np.int32(not (abs(value) <= _MOST) & (abs(beside) <= _MOST))
    for place, within in enumerate((by_half, by_1, by_2, by_4, by_8, by_16, by_64, 0, bad)):
        counts[place] += within


@kernel
def _fold(lanes: Doubles, start: int, count: int = LANES) -> float:
    """Add the upper half of the lanes to the lower half until one lane is left."""
    at, half = np.uintp(start), np.uintp(count // 2)
    while half:
        for i in range(half):
            lanes[at + i] += lanes[at + i + half]
        half //= np.uintp(2)
    return float(lanes[at])


@implements(reference.row_errors)
def row_errors(got: Singles, expected: Singles, errors: Doubles) -> None:
    """Add squares of each row in lanes; those that a row does not reach would add zeros."""
    size, lanes = got.size // max(errors.size, 1), np.empty(2 * LANES)
    reached = 1
    while reached < min(size, LANES):
        reached *= 2
    for row in range(errors.size):
        for i in range(np.uintp(reached)):
            lanes[i] = lanes[LANES + i] = 0
        for start in range(row * size, (row + 1) * size, LANES):
            count = min(LANES, (row + 1) * size - start)
            _add_squares(got, expected, np.uintp(start), np.uintp(count), lanes)
        error = math.sqrt(_fold(lanes, 0, reached))
        norm = math.sqrt(_fold(lanes, LANES, reached))
        relative = error / norm if error != 0 else 0.0
        errors[row] = relative if relative <= NOT_NUMERIC else NOT_NUMERIC


@kernel
def _add_squares(
    got: Singles, expected: Singles, start: np.uintp, count: np.uintp, lanes: Doubles
) -> None:
    """Add up to 64 squares, one to each lane."""
    for i in range(count):
        beside = np.float64(expected[start + i])
        error = np.float64(got[start + i]) - beside
        lanes[i] += error * error
        lanes[LANES + i] += beside * beside


@implements(reference.classes)
def classes(values: Singles, places: Counts) -> None:
    """Find the largest element of each row in lanes, then where it is first."""
    size, lanes = np.uintp(values.size // max(places.size, 1)), np.empty(_CLASS_LANES, np.float32)
    first = np.uintp(0)
    for row in range(np.uintp(places.size)):
        largest, place = _largest(values, first, size, lanes), np.uintp(0)
        if largest > _NEVER:
            while values[first + place] != largest:
                place += np.uintp(1)
        places[row] = place
        first += size


@kernel
def _largest(values: Singles, first: np.uintp, size: np.uintp, lanes: Singles) -> np.float32:
    """Return the largest of a row; NaN is least, as minus infinity."""
    largest, whole = _NEVER, size // np.uintp(_CLASS_LANES)
    if whole:
        lanes[:] = _NEVER
        for step in range(whole):
            start = first + step * np.uintp(_CLASS_LANES)
            for i in range(np.uintp(_CLASS_LANES)):
                value, most = values[start + i], lanes[i]
                lanes[i] = value if value > most else most
        for i in range(np.uintp(_CLASS_LANES)):
            largest = lanes[i] if lanes[i] > largest else largest
    for i in range(whole * np.uintp(_CLASS_LANES), size):
        value = values[first + i]
        largest = value if value > largest else largest
    return largest
