# SPDX-License-Identifier: Apache-2.0
"""Where values lie in one memory that they share: those that live at once never overlap.

Greedy by size: the largest value is placed first, of one size the oldest, each in the smallest gap
between values that live while it does. Source: Y. Pisarchyk and J. Lee, "Efficient Memory
Management for Deep Neural Net Inference", 2020, "Greedy by Size for Offset Calculation".
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

_NO_END = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A value of `size` bytes that lives from step `born` to step `last`, both included."""

    born: int
    last: int
    size: int


def plan(lifetimes: Mapping[int, Lifetime]) -> dict[int, int]:
    """Return the offset of each value, bytes; sizes of one alignment give offsets of it."""
    values = sorted(lifetimes.items(), key=lambda value: (-value[1].size, value[1].born))
    facts = [(life.born, life.last, life.size) for _, life in values]
    born, last, sizes = np.array(facts, np.int64).reshape(-1, 3).T
    offsets = np.zeros(len(values), np.int64)
    for index, size in enumerate(sizes):
        at_once = (born[:index] <= last[index]) & (last[:index] >= born[index])
        begins, ends = offsets[:index][at_once], (offsets + sizes)[:index][at_once]
        order = begins.argsort()
        starts = np.append(0, np.maximum.accumulate(ends[order]))
        gaps = np.append(begins[order], _NO_END) - starts
        fitting = np.flatnonzero(gaps >= size)
        offsets[index] = starts[fitting[gaps[fitting].argmin()]]
    return {number: offset for (number, _), offset in zip(values, offsets.tolist(), strict=True)}


def extent(lifetimes: Mapping[int, Lifetime], offsets: Mapping[int, int]) -> int:
    """Return the bytes of the memory in which values lie at these offsets."""
    return max((offset + lifetimes[number].size for number, offset in offsets.items()), default=0)
