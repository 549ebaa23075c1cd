# SPDX-License-Identifier: Apache-2.0
"""Ranges of rows, and their batches: batch k is rows k * size to (k + 1) * size."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Rows:
    """The rows from `first` up to, not including, `end`."""

    first: int
    end: int

    def __len__(self) -> int:
        return self.end - self.first

    def batches(self, size: int) -> Iterator["Rows"]:
        """Yield the parts of these rows in each batch."""
        first = self.first
        while first < self.end:
            end = min(first - first % size + size, self.end)
            yield Rows(first, end)
            first = end

    def halves(self) -> tuple["Rows", "Rows"]:
        """Return both halves of at least two rows."""
        middle = (self.first + self.end) // 2
        return Rows(self.first, middle), Rows(middle, self.end)

    def without(self, rows: list[int]) -> Iterator["Rows"]:
        """Yield the ranges that remain without some of these rows."""
        first = self.first
        for row in [*sorted(rows), self.end]:
            if first < row:
                yield Rows(first, row)
            first = row + 1
