# SPDX-License-Identifier: Apache-2.0
"""Convolutions of DLFLOAT16 sticks as products of matrices, block by block.

Products of two codes are exact in FP32. They are summed in FP32 by BLAS, or in float64 where the
session says so; the bias is added, the result limited, and then rounded once. Blocks depend on
shapes alone, so the same call gives the same bits as long as BLAS runs on one thread per call.
Scratch: the blocks below, whatever the tensors. The right matrix is widened once where it fits,
and kept for the next call of the same kernel.
Source: zDNN API Reference 1.2.0, zdnn_conv2d.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpa_emulator import stick
from nnpa_emulator.dlfloat import NINF
from nnpa_emulator.kernels import convolution as kernels
from nnpa_emulator.kernels.convert import Words
from nnpa_emulator.kernels.padding import clear_padding
from nnpa_emulator.scratch import aligned, scratch
from nnpa_emulator.widened import recall
from nnpa_emulator.ztensor import CELLS_PER_STICK, Ztensor

Matrix = npt.NDArray[Any]
"""Dense rows of float32 or float64."""

WEIGHTS = 1 << 24
"""Most elements of the right matrix: 64 MiB of FP32."""
WINDOWS = 1 << 18
"""Most elements of the left matrix, unless one window has more: 1 MiB of FP32, a share of L2."""
SUMS = 1 << 20
"""Most sums at a time: 4 MiB of FP32."""
FEW_CHANNELS = 16
"""Up to so many channels, overlapping windows are cut from a patch that is widened once."""


@dataclass(frozen=True, slots=True)
class Sliding:
    """How windows slide: strides and padding before, (height, width); stride 1 for a single one."""

    strides: tuple[int, int]
    before: tuple[int, int]

    @property
    def slide(self) -> kernels.Slide:
        """Both pairs, as kernels take them."""
        return (*self.strides, *self.before)


@dataclass(frozen=True, slots=True)
class Limits:
    """What results are limited to before they are rounded; by default nothing changes."""

    low: float = -np.inf
    high: float = np.inf


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Sizes of blocks: output channels, kernel rows and input channels of a product."""

    columns: int
    rows: int
    channels: int


def convolve(
    input: Ztensor,  # noqa: A002 - zDNN's name
    kernel: Ztensor,
    bias: npt.NDArray[np.float32],
    output: Ztensor,
    sliding: Sliding,
    limits: Limits,
    dtype: npt.DTypeLike,
) -> bool:
    """Convolve, add `bias`, limit, round; `dtype` is that of the sums. Tell whether any is NINF.

    Shapes: input (n, h, w, c), kernel (kh, kw, c, k), bias (k,), output one element per window.
    """
    wanted = np.dtype(dtype)
    out, target = output.sticks.view(np.uint16), stick.geometry(output.transformed_desc)
    clear_padding(out, target.dims, target.pages)
    store = kernels.store_fp64 if wanted == np.float64 else kernels.store_fp32
    blocks = _blocks(kernel)
    product = _Product(input, kernel, sliding, wanted, blocks)
    low, high = np.float32(limits.low), np.float32(limits.high)
    largest = 0
    for first, count in _ranges(kernel.transformed_desc.dim1, blocks.columns):
        for tile in _tiles(target.dims, product.depth, count):
            sums = product.sums(tile, first, count)
            met = store(sums, bias, out, target.pages, tile, first, low, high)
            largest = max(largest, int(met))
    return largest == NINF


def _blocks(kernel: Ztensor) -> _Blocks:
    """Cut the kernel so that a block of the right matrix keeps to its limit."""
    rows, width, channels, columns = kernel.transformed_desc.dims
    columns = min(columns, _whole_sticks(WEIGHTS // (rows * width * channels)))
    channels = min(channels, _whole_sticks(WEIGHTS // (rows * width * columns)))
    rows = min(rows, max(1, WEIGHTS // (width * channels * columns)))
    return _Blocks(columns, rows, channels)


def _whole_sticks(count: int) -> int:
    """Round down to whole sticks, at least one."""
    return max(1, count // CELLS_PER_STICK) * CELLS_PER_STICK


def _ranges(size: int, block: int) -> Iterator[tuple[int, int]]:
    """Yield first and count of every block."""
    for first in range(0, size, block):
        yield first, min(block, size - first)


def _tiles(sizes: kernels.Dims, depth: int, columns: int) -> Iterator[kernels.Tile]:
    """Cut the output into tiles of whole images, else of whole rows, else of parts of a row."""
    most = max(1, min(WINDOWS // depth, SUMS // columns))
    wide = min(sizes[2], most)
    high = min(sizes[1], most // wide) if wide == sizes[2] else 1
    deep = min(sizes[0], most // (wide * high)) if high == sizes[1] else 1
    for e4, images in _ranges(sizes[0], deep):
        for o3, lines in _ranges(sizes[1], high):
            for o2, places in _ranges(sizes[2], wide):
                yield e4, images, o3, lines, o2, places


class _Product:
    """The matrices of one convolution; the last block of the right one is kept."""

    def __init__(
        self,
        input: Ztensor,  # noqa: A002 - zDNN's name
        kernel: Ztensor,
        sliding: Sliding,
        dtype: np.dtype[Any],
        blocks: _Blocks,
    ) -> None:
        self._codes, self._shape = (
            input.sticks.view(np.uint16),
            stick.geometry(input.transformed_desc),
        )
        self._kernel, self._sizes = kernel, kernel.transformed_desc.dims
        self._pages = stick.geometry(kernel.transformed_desc).pages
        self._sliding, self._dtype, self._blocks = sliding, dtype, blocks
        self._key: tuple[object, ...] = ()
        self._right: Matrix = np.empty(0, dtype)

    @property
    def depth(self) -> int:
        """Columns of a block of the left matrix."""
        return self._blocks.rows * self._sizes[1] * self._blocks.channels

    def sums(self, tile: kernels.Tile, first: int, count: int) -> Matrix:
        """Return the sums of products of a tile, for output channels `first` on."""
        total: Matrix | None = None
        for row, rows in _ranges(self._sizes[0], self._blocks.rows):
            for channel, channels in _ranges(self._sizes[2], self._blocks.channels):
                part = (row, rows, self._sizes[1], channel, channels)
                left, right = self._windows(tile, part), self._weights(part, first, count)
                total = self._multiply(left, right) if total is None else total + left @ right
        assert total is not None, "a kernel has at least one row and channel"
        return total

    def _multiply(self, left: Matrix, right: Matrix) -> Matrix:
        target: Matrix = scratch("sums", (left.shape[0], right.shape[1]), self._dtype)
        return np.dot(left, right, out=target)

    def _weights(self, part: kernels.Part, first: int, count: int) -> Matrix:
        key = (part, first, count)
        if key != self._key:
            cells = self._kernel.sticks
            whole = self._kernel.transformed_desc, self._dtype.char, key
            self._right, _ = recall(cells, whole, partial(self._widen, *key))
            self._key = key
        return self._right

    def _widen(
        self, part: kernels.Part, first: int, count: int, lasting: bool
    ) -> tuple[Matrix, bool]:
        """Widen a block of the right matrix, into scratch unless it is to last."""
        shape = part[1] * part[2] * part[4], count
        dense = aligned(shape) if lasting else scratch("kernel", shape)
        words, cells = dense.view(np.uint32).reshape(-1), self._kernel.sticks.view(np.uint16)
        kernels.weights(cells, words, self._pages, part, first, count)
        return dense.astype(self._dtype, copy=False), False

    def _windows(self, tile: kernels.Tile, part: kernels.Part) -> Matrix:
        depth = part[1] * part[2] * part[4]
        left = scratch("windows", (tile[1] * tile[3] * tile[5], depth))
        words, slide = left.view(np.uint32).reshape(-1), self._sliding.slide
        overlap = part[1] > slide[0] and part[2] > slide[1]
        source = (self._codes, self._shape.dims, self._shape.pages, slide, tile, part)
        if overlap and self._shape.dims[3] <= FEW_CHANNELS:
            self._cut(words, tile, part)
        else:
            kernels.windows(source[0], words, *source[1:])
        widened: Matrix = left.astype(self._dtype, copy=False)
        return widened

    def _cut(self, words: Words, tile: kernels.Tile, part: kernels.Part) -> None:
        """Fill the left matrix by way of a patch."""
        slide = self._sliding.slide
        high, wide = (tile[3] - 1) * slide[0] + part[1], (tile[5] - 1) * slide[1] + part[2]
        dense = scratch("patch", (tile[1] * high * wide * part[4],), np.uint32)
        shape = self._shape
        kernels.patch(self._codes, dense, shape.dims, shape.pages, slide, tile, part)
        kernels.spread(dense, words, slide, tile, part)
