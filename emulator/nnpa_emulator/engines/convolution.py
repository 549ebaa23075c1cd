# SPDX-License-Identifier: Apache-2.0
"""Convolutions of DLFLOAT16 sticks: in FP32 strip by strip, in float64 as products of matrices.

Products of two codes are exact in FP32. They are summed in FP32 in the order of the elements under
a window, so the bits are the same on any host, in any batch and however the work is cut; or in
float64 by BLAS, if the session says so or a window has more than `WEIGHTS` / 64 elements. The
bias is added, the result limited, and then rounded once.
Scratch: the blocks below, whatever the tensors. Weights are widened once if they fit, and kept
for the next call of the same kernel.
Source: zDNN API Reference 1.2.0, zdnn_conv2d.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TypeAlias

import numpy as np
from numpy.lib.stride_tricks import as_strided

from nnpa_emulator import stick
from nnpa_emulator.dlfloat import NINF
from nnpa_emulator.engines import operands
from nnpa_emulator.engines.matmul import spans, whole_sticks
from nnpa_emulator.interruption import go_on
from nnpa_emulator.kernels import convolution, padding, table
from nnpa_emulator.kernels import convolution_matrices as kernels
from nnpa_emulator.reference.convolution import Lattice, Limits, Part, Slide, Tile, Under
from nnpa_emulator.reference.layout import Dims, Singles
from nnpa_emulator.scratch import aligned, scratch
from nnpa_emulator.table import CLEAN, Row, Scratch, Supply
from nnpa_emulator.ztensor import CELLS_PER_STICK, Array, Ztensor

Convolve: TypeAlias = Callable[[Singles, bool], bool]
"""Convolves with a bias (k,); True asks for sums in float64. Tells whether any result is NINF."""

WEIGHTS = 1 << 24
"""Most weights at a time: 64 MiB of FP32."""
WINDOWS = 1 << 18
"""Most elements under a tile, unless one window has more: 1 MiB of FP32, a share of L2."""
SUMS = 1 << 20
"""Most sums at a time in float64: 8 MiB."""


UNLIMITED: Limits = np.float32(-np.inf), np.float32(np.inf)
"""Limits that change no result."""


@dataclass(frozen=True, slots=True)
class _Work:
    """The operands of calls: input (n, h, w, c), kernel (kh, kw, c, k), output."""

    input: Ztensor
    kernel: Ztensor
    output: Ztensor
    slide: Slide
    limits: Limits


def prepare(
    input: Ztensor,  # noqa: A002 - zDNN's name
    kernel: Ztensor,
    output: Ztensor,
    slide: Slide,
    limits: Limits,
) -> Convolve:
    """Return a function that convolves, adds a bias, limits, rounds, and is True after a NINF.

    Shapes: input (n, h, w, c), kernel (kh, kw, c, k), output one element per window. It may be
    called as often as the tensors keep their memory; strides are 1 for a single window.
    """
    target, cells = stick.geometry(output.transformed_desc), output.sticks.view(np.uint16)
    work = _Work(input, kernel, output, slide, limits)
    depth = math.prod(kernel.transformed_desc.dims[:3])
    in_strips = None if depth * CELLS_PER_STICK > WEIGHTS else _strips(work)

    def convolve(bias: Singles, exact: bool) -> bool:
        padding.clear_padding(cells, target.dims, target.pages)
        return (_in_blocks(work, bias) if exact or in_strips is None else in_strips(bias)) == NINF

    return convolve


def _strips(work: _Work) -> Callable[[Singles], int]:
    """Return a function that sums strip by strip in FP32 and returns the largest magnitude."""
    shape, window = stick.geometry(work.input.transformed_desc), work.kernel.transformed_desc.dims
    target = stick.geometry(work.output.transformed_desc)
    kernel, codes = work.kernel.sticks, work.input.sticks.view(np.uint16)
    out, slide = work.output.sticks.view(np.uint16), work.slide
    columns = whole_sticks(WEIGHTS // math.prod(window[:3]))
    parts = [
        (first, count, operands.repeated(kernel, ("panels", window, first, count),
                                         partial(_widen_panels, work.kernel, first, count)))
        for first, count in spans(window[3], columns)
    ]  # fmt: skip
    tiles = [
        (tile, *_layout((tile[1], tile[3], tile[5]), window, slide))
        for tile in _tiles(target.dims, *_cut(target.dims, window, slide, WINDOWS))
    ]
    whole = (0, window[0], window[1], 0, window[2])
    scattered, span = _scattered(window, slide), (window[0], window[1])

    def sum_strips(bias: Singles) -> int:
        largest = 0
        for first, count, widen in parts:
            panels, _ = widen()
            for tile, size, under, lattice in tiles:
                go_on()
                source = scratch("windows", (size,), np.float32)
                words = source.view(np.uint32)
                if scattered:
                    kernels.windows(codes, words, shape.dims, shape.pages, slide, tile, whole)
                else:
                    convolution.patch(codes, words, shape.dims, shape.pages, slide, tile, span)
                places = scratch("places", (tile[1] * tile[3] * tile[5],), np.int64)
                met = convolution.correlate(
                    source, panels, bias[first : first + count], out, places, target.pages, tile,
                    under, lattice, first, work.limits,
                )  # fmt: skip
                largest = max(largest, int(met))
        return largest

    return sum_strips


def rows(
    input: Ztensor,  # noqa: A002 - zDNN's name
    kernel: Ztensor,
    output: Ztensor,
    slide: Slide,
    limits: Limits,
    bias: Singles,
) -> list[Row] | None:
    """Return the rows that sum strip by strip in FP32 as `prepare` does; None for large windows.

    The kernel's memory never changes. The output's padding stays as it is.
    """
    shape, window = stick.geometry(input.transformed_desc), kernel.transformed_desc.dims
    target, depth = stick.geometry(output.transformed_desc), math.prod(window[:3])
    if depth * CELLS_PER_STICK > WEIGHTS:
        return None
    codes, out = input.sticks.view(np.uint16), output.sticks.view(np.uint16)
    number: int = table.PATCH
    inside: tuple[int, ...] = window[:2]
    if _scattered(window, slide):
        number, inside = table.WINDOWS, (0, *window[:2], 0, window[2])
    made: list[Row] = []
    for first, count in spans(window[3], whole_sticks(WEIGHTS // depth)):
        panels, added = _supply(kernel, first, count), bias[first : first + count]
        for tile in _tiles(target.dims, *_cut(target.dims, window, slide, WINDOWS)):
            size, under, lattice = _layout((tile[1], tile[3], tile[5]), window, slide)
            windows = tile[1] * tile[3] * tile[5]
            words = Scratch("windows", size, np.uint32)
            source = Scratch("windows", size, np.float32)
            places = Scratch("places", windows, np.int64)
            values: tuple[object, ...] = codes, words, shape.dims, shape.pages, slide, tile, inside
            made.append(Row(number, values, CLEAN, size))
            values = (source, panels, added, out, places, target.pages, tile, under, lattice,
                      first, limits)  # fmt: skip
            work = max(windows // 16, 1) * depth * count
            made.append(Row(table.CORRELATE, values, NINF, work))
    return made


def _supply(kernel: Ztensor, first: int, count: int) -> Supply:
    """Return what supplies panels of their own memory, though they may not be kept."""
    key = "panels", kernel.transformed_desc.dims, first, count
    panels = operands.repeated(
        kernel.sticks, key, lambda _: _widen_panels(kernel, first, count, True)
    )
    return lambda _: panels()[0]


def _widen_panels(kernel: Ztensor, first: int, count: int, lasting: bool) -> tuple[Array, bool]:
    """Widen output channels into panels, into scratch unless they are to last."""
    shape, cells = stick.geometry(kernel.transformed_desc), kernel.sticks.view(np.uint16)
    size = -(-count // CELLS_PER_STICK) * CELLS_PER_STICK * math.prod(shape.dims[:3])
    dense = aligned((size,)) if lasting else scratch("kernel", (size,), np.float32)
    convolution.panels(cells, dense.view(np.uint32), shape.dims, shape.pages, first, count)
    return dense, False


def _scattered(window: Dims, slide: Slide) -> bool:
    """Return True if some elements lie between windows: then windows are widened one by one."""
    return slide[0] > window[0] or slide[1] > window[1]


@lru_cache(maxsize=256)
def _cut(sizes: Dims, window: Dims, slide: Slide, most: int) -> tuple[int, int, int]:
    """Return images, lines and places of tiles that lie over at most `most` elements."""
    high, wide, channels, _ = window
    down, right = (high, wide) if _scattered(window, slide) else slide[:2]
    most //= channels
    places = _fitting(most // high, wide, right, sizes[2])
    lines = _fitting(most // ((places - 1) * right + wide), high, down, sizes[1])
    lines = lines if places == sizes[2] else 1
    patch = ((lines - 1) * down + high) * ((places - 1) * right + wide)
    images = min(sizes[0], max(1, most // patch)) if lines == sizes[1] else 1
    return images, lines, places


def _fitting(size: int, window: int, stride: int, most: int) -> int:
    """Return how many windows lie in `size` elements, at least one, at most `most`."""
    return min(most, max(1, (size - window) // stride + 1))


@lru_cache(maxsize=256)
def _layout(counts: tuple[int, int, int], window: Dims, slide: Slide) -> tuple[int, Under, Lattice]:
    """Return the elements that lie under a tile of windows, and how they lie."""
    rows, width, channels, _ = window
    if _scattered(window, slide):
        depth = rows * width * channels
        strides = counts[1] * counts[2] * depth, counts[2] * depth, depth
        return math.prod(counts) * depth, (0, 1, depth), _lattice(counts, strides)
    image, down, right, line = _strides(counts, window, slide)
    lattice = _lattice(counts, (image, down, right))
    return counts[0] * image, (line, rows, width * channels), lattice


def _strides(counts: tuple[int, int, int], window: Dims, slide: Slide) -> tuple[int, int, int, int]:
    """Return the elements of a patch from image to image, from window to window, of a line."""
    high, wide = (counts[1] - 1) * slide[0] + window[0], (counts[2] - 1) * slide[1] + window[1]
    line = wide * window[2]
    return high * line, slide[0] * line, slide[1] * window[2], line


def _lattice(counts: Sequence[int], strides: Sequence[int]) -> Lattice:
    """Join planes, lines and pixels that lie as if they were more pixels: strips get longer."""
    levels: list[tuple[int, int]] = []
    for count, stride in zip(counts, strides, strict=True):
        if levels and levels[-1][1] == count * stride:
            levels[-1] = levels[-1][0] * count, stride
        elif count > 1:
            levels.append((count, stride))
    planes, lines, pixels = [(1, 0)] * (3 - len(levels)) + levels
    return planes[0], lines[0], pixels[0], planes[1], lines[1], pixels[1]


def _in_blocks(work: _Work, bias: Singles) -> int:
    """Sum block by block in float64; return the largest magnitude."""
    out, target = work.output.sticks.view(np.uint16), stick.geometry(work.output.transformed_desc)
    product = _Product(work)
    largest = 0
    for first, count in spans(work.kernel.transformed_desc.dim1, product.columns):
        most = max(1, min(WINDOWS // product.depth, SUMS // count))
        for tile in _tiles(target.dims, *_whole(target.dims, most)):
            go_on()
            sums = product.sums(tile, first, count)
            met = kernels.store_fp64(sums, bias, out, target.pages, tile, first, *work.limits)
            largest = max(largest, int(met))
    return largest


def _blocks(kernel: Ztensor) -> tuple[int, int, int]:
    """Return the output channels, rows and channels of a block of the right matrix in its limit."""
    rows, width, channels, columns = kernel.transformed_desc.dims
    columns = min(columns, whole_sticks(WEIGHTS // (rows * width * channels)))
    channels = min(channels, whole_sticks(WEIGHTS // (rows * width * columns)))
    rows = min(rows, max(1, WEIGHTS // (width * channels * columns)))
    return columns, rows, channels


def _whole(sizes: Dims, most: int) -> tuple[int, int, int]:
    """Return images, lines and places of a tile of at most `most` windows."""
    wide = min(sizes[2], most)
    high = min(sizes[1], most // wide) if wide == sizes[2] else 1
    deep = min(sizes[0], most // (wide * high)) if high == sizes[1] else 1
    return deep, high, wide


def _tiles(sizes: Dims, deep: int, high: int, wide: int) -> Iterator[Tile]:
    """Cut the output into tiles of whole images, else of whole lines, else of parts of a line."""
    for e4, images in spans(sizes[0], deep):
        for o3, lines in spans(sizes[1], high):
            for o2, places in spans(sizes[2], wide):
                yield e4, images, o3, lines, o2, places


class _Product:
    """The matrices of one convolution in float64; the last block of the right one is kept."""

    def __init__(self, work: _Work) -> None:
        self.columns, self._rows, self._channels = _blocks(work.kernel)
        self._codes = work.input.sticks.view(np.uint16)
        self._shape = stick.geometry(work.input.transformed_desc)
        self._kernel, self._sizes = work.kernel, work.kernel.transformed_desc.dims
        self._pages = stick.geometry(work.kernel.transformed_desc).pages
        self._slide = work.slide
        self._key: tuple[object, ...] = ()
        self._right: Array = np.empty(0)

    @property
    def depth(self) -> int:
        """Columns of a block of the left matrix."""
        return self._rows * self._sizes[1] * self._channels

    def sums(self, tile: Tile, first: int, count: int) -> Array:
        """Return the sums of products of a tile, for output channels `first` on."""
        total: Array | None = None
        for row, rows in spans(self._sizes[0], self._rows):
            for channel, channels in spans(self._sizes[2], self._channels):
                part = (row, rows, self._sizes[1], channel, channels)
                left, right = self._windows(tile, part), self._weights(part, first, count)
                total = self._multiply(left, right) if total is None else total + left @ right
        assert total is not None, "a kernel has at least one row and channel"
        return total

    def _multiply(self, left: Array, right: Array) -> Array:
        target: Array = scratch("sums", (left.shape[0], right.shape[1]), np.float64)
        return np.dot(left, right, out=target)

    def _weights(self, part: Part, first: int, count: int) -> Array:
        key = (part, first, count)
        if key != self._key:
            cells = self._kernel.sticks
            whole = self._kernel.transformed_desc, key
            self._right, _ = operands.dense(cells, whole, partial(self._widen, *key))
            self._key = key
        return self._right

    def _widen(self, part: Part, first: int, count: int, lasting: bool) -> tuple[Array, bool]:
        """Widen a block of the right matrix, into scratch unless it is to last."""
        shape = part[1] * part[2] * part[4], count
        dense = aligned(shape) if lasting else scratch("kernel", shape, np.float32)
        words, cells = dense.view(np.uint32).reshape(-1), self._kernel.sticks.view(np.uint16)
        kernels.weights(cells, words, self._pages, part, first, count)
        return dense.astype(np.float64), False

    def _windows(self, tile: Tile, part: Part) -> Array:
        whole = part[1] == self._sizes[0] and part[4] == self._sizes[2]
        if whole and not _scattered(self._sizes, self._slide):
            return self._copies(tile)
        size = tile[1] * tile[3] * tile[5], part[1] * part[2] * part[4]
        left = scratch("windows", size, np.float32)
        words, shape = left.view(np.uint32).reshape(-1), self._shape
        kernels.windows(self._codes, words, shape.dims, shape.pages, self._slide, tile, part)
        return np.asarray(left, np.float64)

    def _copies(self, tile: Tile) -> Array:
        """Copy windows that overlap from a patch, which is widened once."""
        (rows, width, channels, _), counts = self._sizes, (tile[1], tile[3], tile[5])
        strides, shape = _strides(counts, self._sizes, self._slide), self._shape
        patch = scratch("windows", (counts[0] * strides[0],), np.float32)
        words, window = patch.view(np.uint32), (rows, width)
        convolution.patch(self._codes, words, shape.dims, shape.pages, self._slide, tile, window)
        steps = [patch.itemsize * step for step in (*strides, 1)]
        windows = as_strided(patch, (*counts, rows, width * channels), steps, writeable=False)
        left: Array = scratch("copies", windows.shape, np.float64)
        np.copyto(left, windows)
        return left.reshape(-1, rows * width * channels)
