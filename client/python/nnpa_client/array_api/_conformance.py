# SPDX-License-Identifier: Apache-2.0
"""The table of the namespace: which functions conform to the standard, and why others differ."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

Function = TypeVar("Function", bound=Callable[..., object])


class Difference(StrEnum):
    """Why a function differs from the standard."""

    PRECISION = "precision"
    RANGE = "range"
    INFINITIES = "infinities"
    BROADCASTING = "broadcasting"
    DIMS = "dims"
    AXES = "axes"
    COPIES = "copies"
    ARGUMENTS = "arguments"

    @property
    def meaning(self) -> str:
        """The meaning of the difference, as a clause."""
        return _MEANINGS[self]


_MEANINGS = {
    Difference.PRECISION: "values have 9 bits of fraction, those of float32 have 23",
    Difference.RANGE: "beyond ±8573157376 is no number, and below 4.7e-10 is zero",
    Difference.INFINITIES: "one non-number, NINF, is for NaN and infinities, and reads as NaN",
    Difference.BROADCASTING: "shapes are equal, and numbers are no operands",
    Difference.DIMS: "1 to 4 dims, none of size 0; a scalar is none, and none is returned",
    Difference.AXES: "only axes that zDNN reduces; others are refused",
    Difference.COPIES: "the data are copied; copy=False is refused",
    Difference.ARGUMENTS: "only arguments that zDNN has; others are refused",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A function of the namespace, the zDNN functions that it calls, and its differences.

    `str(row)` is "conforms" or "differs: " with the reasons. Without differences it
    conforms: for ztensors of float32 it returns, bit for bit, what the standard says of their
    values.
    """

    function: str
    calls: str
    differences: tuple[Difference, ...]

    @property
    def conforms(self) -> bool:
        """Whether the function has no difference."""
        return not self.differences

    def __str__(self) -> str:
        return f"differs: {', '.join(self.differences)}" if self.differences else "conforms"


class Conformance(tuple[Row, ...]):
    """The rows of the table; the repr is the table with the meanings of the differences."""

    __slots__ = ()

    def __repr__(self) -> str:
        named = {difference for row in self for difference in row.differences}
        meanings = [f"{d:<12} {d.meaning}" for d in Difference if d in named]
        rows = [f"{row.function:<12} {row.calls:<26} {row}" for row in self]
        return "\n".join([*rows, "", *meanings])


_rows: list[Row] = []


def entered(calls: str, *differences: Difference) -> Callable[[Function], Function]:
    """Return a decorator that enters a function into the table of `conformance`."""

    def enter(function: Function) -> Function:
        _rows.append(Row(function.__name__, calls, differences))
        return function

    return enter


def conformance() -> Conformance:
    """Return the table of the namespace: a function conforms, or differs for the reasons named.

    All take float32 alone, and none has an argument `device`: a ztensor is where its session is.
    """
    return Conformance(sorted(_rows, key=lambda row: row.function))
