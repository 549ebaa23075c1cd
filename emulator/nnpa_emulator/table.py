# SPDX-License-Identifier: Apache-2.0
"""Calls of kernels as rows, and a table of rows that compiled code runs without Python in between.

A row is made for fixed buffers. What it finds only when it runs is an operand, too: `Scratch`, or a
function that supplies an array. `run` makes one call from Python; `kernels.table.walk` runs rows
of a table until one does not come out clean: then the emulator's functions make the call again.
"""

from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias, cast

import numpy as np

from nnpa_emulator.interruption import go_on
from nnpa_emulator.kernels import table as kernels
from nnpa_emulator.scratch import LINE, scratch
from nnpa_emulator.ztensor import Array

Supply: TypeAlias = Callable[[Any], Array | None]
"""Returns an operand for a run, contiguous; None: there is none that the row can take."""
CLEAN = np.iinfo(np.int64).max
"""The limit of rows that are always clean."""
MAX_WORK = 1 << 23
"""Most work of a walk before Python may interrupt it: some milliseconds."""


@dataclass(frozen=True, slots=True)
class Scratch:
    """Memory of arbitrary contents; rows of one step share what has one role."""

    role: str
    count: int
    dtype: type[np.float32 | np.uint32 | np.uint16 | np.int64]

    @property
    def size(self) -> int:
        """Bytes, in whole cache lines."""
        return -(-self.count * np.dtype(self.dtype).itemsize // LINE) * LINE


@dataclass(frozen=True, slots=True)
class Row:
    """A call of a kernel by its number: its operands, and what its result is below if it is clean.

    `work` is how many elements it moves, about, or a sixteenth of the products that it adds up; no
    less than the elements that are supplied.
    """

    number: int
    operands: tuple[Any, ...]
    limit: int
    work: int

    def run(self, context: object) -> bool:
        """Make the call; return whether it came out clean. Supplies are asked with `context`."""
        operands: list[Any] = []
        for operand in self.operands:
            value = operand
            if isinstance(operand, Scratch):
                value = scratch(operand.role, (operand.count,), operand.dtype)
            elif callable(operand) and (value := operand(context)) is None:
                return False
            operands.append(value)
        met = vars(kernels)[kernels.NAMES[self.number]](*operands)
        return met is None or bool((met[0] if isinstance(met, tuple) else met) < self.limit)


class Table:
    """The rows of steps one after the other in memory, for one run at a time."""

    def __init__(self, steps: Sequence[Sequence[Row]]) -> None:
        cells = [0, 0]  # where the scratch of all rows is, and its size
        self._starts, self._stops, work = [len(cells)], list[int](), 0
        self._supplies: list[list[tuple[int, Supply]]] = []
        self._buffers: list[Array] = []  # which the rows name by their addresses
        self._scratch: list[tuple[int, Scratch]] = []
        for rows in steps:
            self._supplies.append([])
            for row in rows:
                work += row.work
                if work > MAX_WORK:
                    self._stops.append(len(cells))
                    work = row.work
                self._add(row, cells)
            self._starts.append(len(cells))
        self._stops.append(len(cells))
        self._cells = np.array(cells, np.int64)
        sizes: dict[str, int] = {}
        for _, memory in self._scratch:
            sizes[memory.role] = max(memory.size, sizes.get(memory.role, 0))
        offsets = dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))
        self._size = sum(sizes.values())
        self._places = np.array([place for place, _ in self._scratch], np.int64)
        self._offsets = np.array([offsets[memory.role] for _, memory in self._scratch], np.int64)

    def _add(self, row: Row, cells: list[int]) -> None:
        first = len(cells)
        cells += row.number, 0, row.limit
        for operand in row.operands:
            if isinstance(operand, Scratch):
                self._scratch.append((len(cells), operand))
            elif isinstance(operand, np.ndarray):
                self._buffers.append(operand)
            elif callable(operand):
                self._supplies[-1].append((len(cells), cast(Supply, operand)))
            cells += _cells_of(operand)
        cells[first + 1] = len(cells) - first

    def run(self, first: int, end: int, context: object) -> int:
        """Run steps from one number up to another, with supplies for `context`.

        Return the first step that did not come out clean or lacks a supply, or `end`.
        """
        supplied = list[Array]()
        for step in range(first, end):
            for at, supply in self._supplies[step]:
                array = supply(context)
                if array is None:
                    return self._walk(first, step)
                supplied.append(array)
                kernels.place(self._cells, at, array)
        return self._walk(first, end)

    def _walk(self, first: int, end: int) -> int:
        """Walk the rows of steps whose supplies are there."""
        cells, at, last = self._cells, self._starts[first], self._starts[end]
        if self._size:
            block, before = scratch("table", (self._size,), np.uint8), cells[0]
            kernels.place(cells, 0, block)
            if cells[0] != before:
                cells[self._places] = self._offsets + cells[0]
        while at < last:
            stop = min(last, self._stops[bisect(self._stops, at)])
            reached = kernels.walk(cells, at, stop)
            if reached != stop:
                return bisect(self._starts, reached) - 1
            at = stop
            if at < last:
                go_on()
        return end


def _cells_of(operand: Any) -> list[int]:
    """Return the cells of an operand, as `kernels.table` reads them."""
    if isinstance(operand, int):
        return [int(operand)]
    if isinstance(operand, tuple):
        return [cell for each in operand for cell in _cells_of(each)]
    if isinstance(operand, np.ndarray):
        return [operand.__array_interface__["data"][0], operand.size]
    if isinstance(operand, Scratch) or callable(operand):
        return [0, operand.count if isinstance(operand, Scratch) else 0]
    return [int(operand.view(np.uint32) if operand.dtype == np.float32 else operand)]
