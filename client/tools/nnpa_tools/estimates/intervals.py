# SPDX-License-Identifier: Apache-2.0
"""Times on the machine as intervals, with a grade for the confidence in them."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, floor, log10, sqrt

_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))


@dataclass(frozen=True, slots=True)
class Interval:
    """A time on the machine, nanoseconds, with the grade of the worst part of it."""

    low_ns: float = 0.0
    high_ns: float = 0.0
    grade: str = "A"

    def __add__(self, addend: "Interval") -> "Interval":
        """Return the time of both, one after the other."""
        grade = max(self.grade, addend.grade)
        return Interval(self.low_ns + addend.low_ns, self.high_ns + addend.high_ns, grade)

    def __str__(self) -> str:
        """Return the interval as "1.2 to 3.4 us": two digits, rounded outward."""
        scale, unit = self._unit
        low, high = _digits(self.low_ns / scale, 2, floor), _digits(self.high_ns / scale, 2, ceil)
        return f"{low} to {high} {unit}"

    @property
    def graded(self) -> str:
        """The interval with its grade, for people."""
        return f"{self}, grade {self.grade}"

    @property
    def as_published(self) -> str:
        """The interval as "1.10 to 1.18 ms", or "6.71 us": three digits, rounded to nearest."""
        scale, unit = self._unit
        ends = (_digits(end / scale, 3, round) for end in (self.low_ns, self.high_ns))
        return f"{' to '.join(dict.fromkeys(ends))} {unit}"

    @property
    def _unit(self) -> tuple[float, str]:
        return next((unit for unit in _UNITS if self.high_ns >= unit[0]), _UNITS[-1])

    @property
    def width(self) -> float:
        """The ratio of the longest to the shortest time."""
        return self.high_ns / self.low_ns if self.low_ns else 1.0

    @property
    def middle_ns(self) -> float:
        """The geometric mean of the shortest and the longest time, for ratios."""
        return sqrt(self.low_ns * self.high_ns)

    def contains(self, low_ns: float, high_ns: float) -> bool:
        """Return whether a published time, from `low_ns` to `high_ns`, lies inside."""
        return self.low_ns <= low_ns and high_ns <= self.high_ns

    def as_data(self) -> dict[str, object]:
        """Return the interval as plain data."""
        times = {"low": round(self.low_ns), "high": round(self.high_ns)}
        return {"estimated_machine_ns": times, "grade": self.grade}


def _digits(number: float, count: int, rounded: Callable[[float], int]) -> str:
    """Return a number with `count` digits."""
    if number <= 0:
        return "0"
    places = count - 1 - floor(log10(number))
    scaled = rounded(round(number * 10.0**places, 6))
    return f"{scaled / 10.0**places:,.{max(0, places)}f}"
