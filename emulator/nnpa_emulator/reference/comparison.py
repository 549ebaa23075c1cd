# SPDX-License-Identifier: Apache-2.0
"""Two arrays beside each other: sums of a fixed order, histograms of ulps, classes.

A sum has 64 lanes: element i is added to lane i % 64, in order; then the upper half of the lanes
is added to the lower one until one is left.
"""

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from nnpa_emulator.reference.layout import Doubles

Counts: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.floating]

LANES: Final = 64
ULP_EDGES: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0)
"""Upper edges of the ulp histogram; below one half, both round to the same number."""
MAX_MAGNITUDE: Final = 1e140
"""Squares of numbers up to it, and sums of them, are float64."""
NOT_NUMERIC: Final = float.fromhex("0x1.fffffffffffffp+1023")
"""The error of a row with an element that is no number: the largest of float64."""
ULP: Final = 2.0**-9
LEAST: Final = 2.0**-31
_EXPONENT = 0x7FF << 52  # of float64's bits: what is left is the power of two below


def ulps(got: Doubles, expected: Doubles) -> Doubles:
    """Return the distance in units of the last place of `expected` in DLFLOAT16.

    Source: zDNN API Reference 1.2.0, data types: 9 fraction bits, least exponent -31.
    """
    powers = (np.ascontiguousarray(expected).view(np.int64) & _EXPONENT).view(np.float64)
    unit = np.maximum(powers, LEAST) * ULP
    return np.asarray(np.abs(got - expected) / unit, np.float64)


def tally(got: Floats, expected: Floats, sums: Doubles, counts: Counts) -> None:
    """Write sums over two lines of elements, and a histogram of their distances.

    `sums` takes the sums of |e|, e, e * e, a * a, b * b, a * b and b, and the largest |e|, of
    numbers a and b up to 1e140 and e = a - b. `counts` takes the elements between each two edges of
    `ULP_EDGES`, then the elements beyond, and last the elements that are no such numbers.
    """
    a, b = got.astype(np.float64), expected.astype(np.float64)
    numbers = (np.abs(a) <= MAX_MAGNITUDE) & (np.abs(b) <= MAX_MAGNITUDE)
    bad = a.size - int(np.count_nonzero(numbers))
    if bad:
        a, b = np.where(numbers, a, 0.0), np.where(numbers, b, 0.0)
    error = a - b
    absolute = np.abs(error)
    terms = absolute, error, error * error, a * a, b * b, a * b, b
    sums[:7] = [_sum(term.reshape(1, -1))[0] for term in terms]
    sums[7] = absolute.max(initial=0.0)
    distance, below = ulps(a, b), bad  # of those that are no numbers the distance is 0
    for place, edge in enumerate((*ULP_EDGES, np.inf)):
        within = int(np.count_nonzero(distance <= edge))
        counts[place] = within - below
        below = within
    counts[8] = bad


def row_errors(got: Floats, expected: Floats, errors: Doubles) -> None:
    """Write each row's norm of the error, relative to the expected row's; 0 where both are 0."""
    a, b = (line.reshape(errors.size, -1).astype(np.float64) for line in (got, expected))
    with np.errstate(all="ignore"):
        error, norm = np.sqrt(_sum((a - b) ** 2)), np.sqrt(_sum(b**2))
        relative = np.where(error == 0, 0.0, error / norm)
    errors[:] = np.where(np.isfinite(relative), relative, NOT_NUMERIC)


def _sum(rows: Doubles) -> Doubles:
    """Return the sum of each row, in lanes."""
    count, size = rows.shape
    steps = -(-size // LANES)
    padded = np.zeros((count, steps * LANES))
    padded[:, :size] = rows
    lanes = np.add.reduce(padded.reshape(count, steps, LANES), axis=1, initial=0.0)
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return np.asarray(lanes[:, 0], np.float64)


def classes(values: Floats, places: Counts) -> None:
    """Write the place of the largest element of each row, the first of equal ones; NaN is least."""
    rows = values.reshape(places.size, -1)
    places[:] = np.where(np.isnan(rows), -np.inf, rows).argmax(1)
