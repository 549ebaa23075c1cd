# SPDX-License-Identifier: Apache-2.0
"""Error metrics of two arrays: running sums, and the figures computed from them.

Sources: X-CUBE-AI 7.0, validation metrics (ACC, RMSE, MAE, L2R, MEAN, STD, NSE, COS, CM); ulps are
those of DLFLOAT16: 9 fraction bits, least exponent -31 (zDNN API Reference 1.2.0, data types).
"""

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from nnpa_network.program import Array

ULP_EDGES = (0.5, 1, 2, 4, 8, 16, 64)
"""Upper edges of the ulp histogram; below one half, both round to the same number."""
ULP_LABELS = ("0", "<=1", "<=2", "<=4", "<=8", "<=16", "<=64", "more", "NaN")
_FRACTION_BITS, _MIN_EXPONENT = 9, -31
MAX_CLASSES = 64
"""Most classes of which a confusion matrix is kept."""
_HALF = 0.5

Doubles = npt.NDArray[np.float64]


def ulps(got: Doubles, reference: Doubles) -> Doubles:
    """Return the distance in units of the last place of `reference` in DLFLOAT16."""
    _, exponents = np.frexp(reference)
    exponents = np.where(reference == 0, _MIN_EXPONENT, exponents - 1)
    unit = np.ldexp(1.0, np.maximum(exponents, _MIN_EXPONENT) - _FRACTION_BITS)
    return np.asarray(np.abs(got - reference) / unit, np.float64)


@dataclass(slots=True)
class Tally:
    """Running sums over elements; non-numeric ones are counted separately."""

    count: int = 0
    bad: int = 0
    largest: float = 0.0
    sums: dict[str, float] = field(default_factory=dict[str, float])
    histogram: list[int] = field(default_factory=lambda: [0] * len(ULP_LABELS))

    def add(self, got: Array, reference: Array) -> None:
        """Count the elements of two arrays of one shape."""
        a = np.asarray(got).astype(np.float64).reshape(-1)
        b = np.asarray(reference).astype(np.float64).reshape(-1)
        numbers = np.isfinite(a) & np.isfinite(b)
        self.count += a.size
        self.bad += int(a.size - numbers.sum())
        a, b = a[numbers], b[numbers]
        error = a - b
        if error.size:
            self.largest = max(self.largest, float(np.abs(error).max()))
        for name, values in (
            ("absolute", np.abs(error)), ("error", error), ("square", error * error), ("a", a * a),
            ("b", b * b), ("ab", a * b), ("wanted", b),
        ):  # fmt: skip
            self.sums[name] = self.sums.get(name, 0.0) + float(values.sum())
        places = np.searchsorted(ULP_EDGES, ulps(a, b), side="left")
        for place, number in enumerate(np.bincount(places, minlength=len(ULP_EDGES) + 1)):
            self.histogram[place] += int(number)
        self.histogram[-1] = self.bad

    def _mean(self, name: str) -> float:
        return self.sums.get(name, 0.0) / self.numbers if self.numbers else float("nan")

    @property
    def numbers(self) -> int:
        """How many elements are numbers on both sides."""
        return self.count - self.bad

    @property
    def mae(self) -> float:
        """Mean absolute error."""
        return self._mean("absolute")

    @property
    def rmse(self) -> float:
        """Root of the mean square error."""
        return math.sqrt(self._mean("square"))

    @property
    def mean(self) -> float:
        """Mean of the error, hosted less reference."""
        return self._mean("error")

    @property
    def std(self) -> float:
        """Standard deviation of the error."""
        return math.sqrt(max(self._mean("square") - self.mean**2, 0.0))

    @property
    def l2r(self) -> float:
        """Norm of the error by the norm of the reference."""
        if not self.numbers:
            return float("nan")
        return _ratio(self.sums.get("square", 0.0) ** 0.5, self.sums.get("b", 0.0) ** 0.5)

    @property
    def cosine(self) -> float:
        """Cosine of the angle between both; 1 where both are zero."""
        if not self.numbers:
            return float("nan")
        root = (self.sums.get("a", 0.0) * self.sums.get("b", 0.0)) ** 0.5
        return self.sums.get("ab", 0.0) / root if root else 1.0

    @property
    def nse(self) -> float:
        """Nash-Sutcliffe efficiency: 1 less square error by the spread of the reference."""
        spread = self._mean("b") - self._mean("wanted") ** 2
        return 1.0 - _ratio(self.sums.get("square", 0.0), max(spread, 0.0) * self.numbers)


def _ratio(above: float, below: float) -> float:
    if below:
        return above / below
    return 0.0 if not above else float("inf")


@dataclass(slots=True)
class Agreement:
    """How often both choose the same class, and which class of the reference becomes which."""

    same: int = 0
    count: int = 0
    confusion: npt.NDArray[np.int64] | None = None

    def add(self, got: Array, reference: Array) -> None:
        """Count decisions: the largest of the last axis, or above one half where it has one."""
        a, b = _decisions(got), _decisions(reference)
        self.same += int((a == b).sum())
        self.count += a.size
        classes = max(got.shape[-1], 2) if got.ndim else 2
        if classes <= MAX_CLASSES:
            if self.confusion is None:
                self.confusion = np.zeros((classes, classes), np.int64)
            np.add.at(self.confusion, (b, a), 1)

    @property
    def accuracy(self) -> float:
        """Share of equal decisions."""
        return self.same / self.count if self.count else float("nan")


def _decisions(array: Array) -> npt.NDArray[np.int64]:
    """Return a class per vector; NaN counts as least."""
    values = np.nan_to_num(np.asarray(array).astype(np.float64), nan=-np.inf)
    if values.ndim == 0 or values.shape[-1] == 1:
        return (values.reshape(-1) > _HALF).astype(np.int64)
    return np.asarray(values.argmax(-1).reshape(-1), np.int64)
