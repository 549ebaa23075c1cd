# SPDX-License-Identifier: Apache-2.0
"""Large tensors in blocks, between which an operation can be interrupted.

Blocks depend on shapes only, and no element depends on an element of another block, so that the
bits are the same with and without blocks. Dimensions are (dim4, dim3, dim2, dim1); pages are the
page strides of dim4, of the stick column of dim1 and of dim3, as `kernels` take them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy.typing as npt

from nnpa_emulator.interruption import go_on

Dims: TypeAlias = tuple[int, int, int, int]
Pages: TypeAlias = tuple[int, int, int]
Region: TypeAlias = tuple[int, int, int, int, int]
Range: TypeAlias = tuple[int, int]
"""First and count."""
Line: TypeAlias = npt.NDArray[Any]

ELEMENTS = 1 << 24
"""Elements of a block: a transform of them takes some hundredths of a second."""
PAGE_CELLS = 2048
"""Cells of two bytes in a page."""
_ROWS, _COLUMN, _PAGE = 32, 64, 4096


class Block(NamedTuple):
    """A part of a tensor: its elements of a dense array, its first page, its place.

    `place` is its dimensions and pages, `images` its range of dim4, `vectors` its range of dim1
    vectors.
    """

    elements: slice
    page: int
    place: tuple[Dims, Pages]
    images: slice
    vectors: slice

    def sticks(self, cells: Line) -> Line:
        """Return the cells of the tensor from the block's first page on."""
        return cells[self.page * (_PAGE // cells.itemsize) :] if self.page else cells


def blocks_of(dims: Dims, pages: Pages) -> Iterable[Block]:
    """Cut a tensor whose dim1 vectors are computed one by one into blocks of whole pages."""
    d4, d3, d2, d1 = dims
    if d4 * d3 * d2 * d1 <= ELEMENTS:
        return _whole(dims, pages)
    return _blocks(dims, pages)


def images_of(dims: Dims, pages: Pages) -> Iterable[Block]:
    """Cut a tensor along dim4 only: the other dimensions are computed together."""
    d4, d3, d2, d1 = dims
    if d4 * d3 * d2 * d1 <= ELEMENTS:
        return _whole(dims, pages)
    return _images(dims, pages)


@lru_cache(maxsize=1024)
def _whole(dims: Dims, pages: Pages) -> tuple[Block]:
    return (_block(0, 0, 0, dims, pages),)


def _block(image: int, first: int, page: int, dims: Dims, pages: Pages) -> Block:
    vectors = slice(first // dims[3], first // dims[3] + prod(dims[:3]))
    images = slice(image, image + dims[0])
    return Block(slice(first, first + prod(dims)), page, (dims, pages), images, vectors)


def _blocks(dims: Dims, pages: Pages) -> Iterator[Block]:
    d4, d3, d2, d1 = dims
    for (e4, images), (e3, planes), (page, height) in cut((d4, d3, -(-d2 // _ROWS)), _ROWS * d1):
        e2 = page * _ROWS
        rows = min(d2 - e2, height * _ROWS)
        first = ((e4 * d3 + e3) * d2 + e2) * d1
        stride = pages[2] if rows == d2 else height  # kernels clear that much behind the rows
        page += e4 * pages[0] + e3 * pages[2]
        yield _block(e4, first, page, (images, planes, rows, d1), (pages[0], pages[1], stride))


def _images(dims: Dims, pages: Pages) -> Iterator[Block]:
    d4, d3, d2, d1 = dims
    size = d3 * d2 * d1
    for ((e4, images),) in cut((d4,), size):
        yield _block(e4, e4 * size, e4 * pages[0], (images, d3, d2, d1), pages)


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts of a large region, whose planes have `size` cells; made anew in each loop."""

    region: Region
    size: int

    def __iter__(self) -> Iterator[tuple[int, Region]]:
        (planes, per_column, columns, rows, last), size = self.region, self.size
        if last == _COLUMN:  # all planes are alike
            per_column = columns = 1
        group = per_column * columns
        if group * size <= ELEMENTS or group == 1:
            for ((first, count),) in cut((planes // group,), group * size):
                yield first * group * size, (count * group, per_column, columns, rows, last)
            return
        inner = group - per_column
        for start in range(0, planes, group):
            for begin, end, width in ((0, inner, _COLUMN), (inner, group, last)):
                for ((first, count),) in cut((end - begin,), size):
                    yield (start + begin + first) * size, (count, 1, 1, rows, width)


@lru_cache(maxsize=1024)
def regions_of(region: Region) -> Iterable[tuple[int, Region]]:
    """Cut a region of `kernels.elementwise`; return the first cell of each part, and the part."""
    size = -(-region[3] // _ROWS) * PAGE_CELLS
    return ((0, region),) if region[0] * size <= ELEMENTS else _Parts(region, size)


def cut(counts: tuple[int, ...], cost: int) -> Iterable[tuple[Range, ...]]:
    """Cut nested loops into blocks; the last level is the innermost, `cost` is one pass of it.

    An interrupted operation ends before one of the blocks.
    """
    if prod(counts) * cost <= ELEMENTS:
        return (tuple((0, count) for count in counts),)
    return _cut(counts, cost)


def _cut(counts: tuple[int, ...], cost: int) -> Iterator[tuple[Range, ...]]:
    sizes = list[int]()
    for count in reversed(counts):
        sizes.append(min(count, max(1, ELEMENTS // cost)))
        cost = cost * count if sizes[-1] == count else ELEMENTS + 1
    levels = [range(0, count, size) for count, size in zip(counts, reversed(sizes), strict=True)]
    for starts in product(*levels):
        go_on()
        ends = zip(starts, levels, counts, strict=True)
        yield tuple((start, min(level.step, count - start)) for start, level, count in ends)
