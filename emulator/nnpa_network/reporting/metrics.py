# SPDX-License-Identifier: Apache-2.0
"""Error metrics of two arrays: exact sums over batches, and the figures computed from them.

A block of elements gives one float64 per sum; sums of blocks and batches are added as fractions,
which is exact. So the same batches give the same figures in any order, however they were spread.

Source: X-CUBE-AI 7.0, validation metrics (ACC, RMSE, MAE, L2R, MEAN, STD, NSE, COS, CM).
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt
from nnpa_emulator.kernels import comparison
from nnpa_emulator.reference import comparison as reference_comparison

from nnpa_network.program import Array

ULP_LABELS = ("0", "<=1", "<=2", "<=4", "<=8", "<=16", "<=64", "more", "NaN")
MAX_CLASSES = 64
"""Most classes of which a confusion matrix is kept."""
_HALF = 0.5
_TOP = 5
BLOCK = 32768
"""Elements that give one float64 per sum."""
_SUMS = "absolute", "error", "square", "a", "b", "ab", "wanted"

Doubles = npt.NDArray[np.float64]
Classes = npt.NDArray[np.int64]


def _sums(counts: Sequence[int], added: Sequence[int]) -> list[int]:
    """Return sums of counts, place by place."""
    return [count + more for count, more in zip(counts, added, strict=True)]


@dataclass(slots=True)
class Tally:
    """Sums over elements; non-numeric ones are counted separately.

    A number beyond 1e140, whose square float64 cannot hold, counts as non-numeric.
    """

    count: int = 0
    bad: int = 0
    largest: float = 0.0
    sums: dict[str, Fraction] = field(default_factory=dict[str, Fraction])
    histogram: list[int] = field(default_factory=lambda: [0] * len(ULP_LABELS))

    def add(self, got: Array, reference: Array) -> None:
        """Count the elements of two arrays of one shape."""
        a, b = np.asarray(got).reshape(-1), np.asarray(reference).reshape(-1)
        for start in range(0, a.size, BLOCK):
            part = slice(start, start + BLOCK)
            self._add_block(a[part], b[part])

    def _add_block(self, a: Array, b: Array) -> None:
        sums, counts = np.empty(len(_SUMS) + 1), np.empty(len(ULP_LABELS), np.int64)
        form = comparison if are_singles(a, b) else reference_comparison
        form.tally(a, b, sums, counts)
        *values, largest = sums.tolist()
        for name, value in zip(_SUMS, values, strict=True):
            self.sums[name] = self._sum(name) + Fraction(value)
        self.histogram = _sums(self.histogram, counts.tolist())
        self.count, self.bad = self.count + a.size, self.histogram[-1]
        self.largest = max(self.largest, largest)

    def merge(self, tally: "Tally") -> None:
        """Add the counts of another tally, exactly."""
        self.count += tally.count
        self.bad += tally.bad
        self.largest = max(self.largest, tally.largest)
        for name, value in tally.sums.items():
            self.sums[name] = self._sum(name) + value
        self.histogram = _sums(self.histogram, tally.histogram)

    def _sum(self, name: str) -> Fraction:
        return self.sums.get(name, Fraction())

    def _mean(self, name: str) -> Fraction:
        return self._sum(name) / self.numbers

    @property
    def numbers(self) -> int:
        """How many elements are numbers on both sides."""
        return self.count - self.bad

    @property
    def mae(self) -> float:
        """Mean absolute error."""
        return float(self._mean("absolute")) if self.numbers else math.nan

    @property
    def rmse(self) -> float:
        """Root of the mean square error."""
        return math.sqrt(self._mean("square")) if self.numbers else math.nan

    @property
    def mean(self) -> float:
        """Mean of the error, hosted less reference."""
        return float(self._mean("error")) if self.numbers else math.nan

    @property
    def std(self) -> float:
        """Standard deviation of the error."""
        if not self.numbers:
            return math.nan
        return math.sqrt(max(self._mean("square") - self._mean("error") ** 2, Fraction()))

    @property
    def l2r(self) -> float:
        """Norm of the error by the norm of the reference."""
        if not self.numbers:
            return math.nan
        return _ratio(math.sqrt(self._sum("square")), math.sqrt(self._sum("b")))

    @property
    def cosine(self) -> float:
        """Cosine of the angle between both; 1 where both are zero."""
        if not self.numbers:
            return math.nan
        root = math.sqrt(self._sum("a")) * math.sqrt(self._sum("b"))
        return float(self._sum("ab")) / root if root else 1.0

    @property
    def nse(self) -> float:
        """Nash-Sutcliffe efficiency: 1 less square error by the spread of the reference."""
        if not self.numbers:
            return math.nan
        spread = self._mean("b") - self._mean("wanted") ** 2
        return 1.0 - _ratio(
            float(self._sum("square")), float(max(spread, Fraction()) * self.numbers)
        )


def are_singles(*arrays: Array) -> bool:
    """Return True if arrays are FP32, which compiled comparisons take."""
    return all(array.dtype == np.float32 for array in arrays)


def relative_error(tallies: Collection[Tally]) -> float:
    """Return the norm of the error of several values by the norm of their references."""
    square, norm = (
        sum((tally.sums.get(name, Fraction()) for tally in tallies), Fraction())
        for name in ("square", "b")
    )
    return _ratio(math.sqrt(square), math.sqrt(norm))


def _ratio(above: float, below: float) -> float:
    if below:
        return above / below
    return 0.0 if not above else math.inf


@dataclass(slots=True)
class Agreement:
    """How often an answer is the expected one, and which expected class becomes which.

    `confusion` has the expected class down; it is empty for more than MAX_CLASSES classes. `top`
    counts expected classes among the five largest, where there are more than five, else it is -1.
    """

    same: int = 0
    count: int = 0
    confusion: list[list[int]] = field(default_factory=list[list[int]])
    top: int = -1

    def add(self, got: Array, reference: Array) -> None:
        """Count the decisions of two arrays: see `decisions`."""
        self.add_classes(decisions(got), decisions(reference), classes_of(got))

    def add_decisions(self, got: Array, expected: Classes) -> None:
        """Count the decisions of an array beside classes, also those among the five largest."""
        classes = classes_of(got)
        self.add_classes(decisions(got), expected, classes)
        if classes > _TOP:
            self.top = max(self.top, 0) + _among_top(got, expected)

    def add_classes(self, answers: Classes, expected: Classes, classes: int) -> None:
        """Count answers beside the expected ones; `classes` is their number, 0 for any."""
        answers, expected = answers.reshape(-1), expected.reshape(-1)
        self.same += int(np.count_nonzero(answers == expected))
        self.count += answers.size
        both = np.concatenate([answers, expected])
        if not both.size or both.min() < 0:
            return
        size = max(classes, int(both.max()) + 1)
        if size <= MAX_CLASSES:
            self._confuse(answers, expected, size)

    def _confuse(self, answers: Classes, expected: Classes, size: int) -> None:
        """Count which expected class became which: most pairs of many classes do not occur."""
        if len(self.confusion) < size:
            self.confusion = _square(self.confusion, size)
        counts = np.bincount(expected * size + answers)
        places = np.flatnonzero(counts)
        for place, count in zip(places.tolist(), counts[places].tolist(), strict=True):
            self.confusion[place // size][place % size] += count

    def merge(self, agreement: "Agreement") -> None:
        """Add the counts over other elements."""
        self.same += agreement.same
        self.count += agreement.count
        if agreement.top >= 0:
            self.top = max(self.top, 0) + agreement.top
        if not self.confusion or not agreement.confusion:
            self.confusion = self.confusion or [list(row) for row in agreement.confusion]
            return
        size = max(len(self.confusion), len(agreement.confusion))
        squares = _square(self.confusion, size), _square(agreement.confusion, size)
        self.confusion = list(map(_sums, *squares))

    @property
    def accuracy(self) -> float:
        """Share of expected answers."""
        return self.same / self.count if self.count else math.nan

    @property
    def top_accuracy(self) -> float:
        """Share of expected classes among the five largest."""
        return self.top / self.count if self.count and self.top >= 0 else math.nan


def _square(rows: list[list[int]], size: int) -> list[list[int]]:
    """Return a square of a size that has these rows first, and zeros."""
    wide = [row + [0] * (size - len(row)) for row in rows]
    return wide + [[0] * size for _ in range(size - len(wide))]


def _among_top(got: Array, expected: Classes) -> int:
    """Count expected classes among the five largest; of equal ones the first is larger."""
    values = np.nan_to_num(np.asarray(got).astype(np.float64), nan=-np.inf)
    vectors = values.reshape(-1, values.shape[-1])
    exists = (expected >= 0) & (expected < vectors.shape[-1])
    rows, classes = np.flatnonzero(exists), expected[exists]
    own = vectors[rows, classes][:, None]
    before = np.arange(vectors.shape[-1]) < classes[:, None]
    larger = (vectors[rows] > own) | ((vectors[rows] == own) & before)
    return int((larger.sum(1) < _TOP).sum())


def classes_of(array: Array) -> int:
    """Return how many classes an output chooses between, 0 where it does not say."""
    if array.dtype.kind in "iu":
        return 0
    return max(array.shape[-1], 2) if array.ndim > 1 else 2


def decisions(array: Array) -> Classes:
    """Return classes: integers and truths are some; of floats the largest of the last axis.

    A last axis of 1, or one axis only, is a class where it is above one half. NaN counts as least.
    """
    if array.dtype.kind in "biu":
        return np.asarray(array).astype(np.int64)
    values = np.asarray(array)
    if values.ndim < 2 or values.shape[-1] == 1:
        return np.asarray(values > _HALF, np.int64)
    classes = np.zeros(values.shape[:-1], np.int64)
    if values.size:
        form = comparison if are_singles(values) else reference_comparison
        form.classes(values.reshape(-1), classes.reshape(-1))
    return classes


class Decided:
    """An array, and the classes that it decides for, computed once."""

    def __init__(self, array: Array) -> None:
        self.array = array

    @cached_property
    def classes(self) -> Classes:
        """Classes: see `decisions`."""
        return decisions(self.array)


LOWEST, HIGHEST = -45, 40
"""Ends of the histogram of exponents; what is beyond counts at the end."""
LEAST_NORMAL, MOST_NORMAL = -31, 32
"""Exponents of DLFLOAT16's numbers (zDNN API Reference 1.2.0, data types)."""
_MAX_DLFLOAT16 = 8573157376.0  # 2^32 * (2 - 2^-9)


@dataclass(slots=True)
class Exponents:
    """Magnitudes of numbers: how many are 2^e to 2^(e+1), from e = LOWEST on, and how many zero.

    `beyond` counts numbers outside DLFLOAT16's range, `lost` numbers that it rounds to zero.
    """

    count: int = 0
    zeros: int = 0
    beyond: int = 0
    lost: int = 0
    histogram: list[int] = field(default_factory=lambda: [0] * (HIGHEST - LOWEST + 1))

    @property
    def outside(self) -> float:
        """Share of the elements that DLFLOAT16 has no number for, too large or too small."""
        return (self.beyond + self.lost) / self.count if self.count else math.nan

    def add(self, array: Array) -> None:
        """Count the elements of an array."""
        values = np.abs(np.asarray(array).astype(np.float64).reshape(-1))
        self.count += values.size
        self.beyond += int(np.count_nonzero(~(values <= _MAX_DLFLOAT16)))
        some = values[np.isfinite(values) & (values > 0)]
        self.zeros += int(np.count_nonzero(values == 0))
        self.lost += int(np.count_nonzero(some < 2.0**-41))
        exponents = np.clip(np.frexp(some)[1] - 1, LOWEST, HIGHEST) - LOWEST
        counts = np.bincount(exponents, minlength=len(self.histogram))
        self.histogram = _sums(self.histogram, counts.tolist())

    def merge(self, exponents: "Exponents") -> None:
        """Add the counts over other elements."""
        self.count += exponents.count
        self.zeros += exponents.zeros
        self.beyond += exponents.beyond
        self.lost += exponents.lost
        self.histogram = _sums(self.histogram, exponents.histogram)
