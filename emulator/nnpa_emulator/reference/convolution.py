# SPDX-License-Identifier: Apache-2.0
"""Convolution: sums of products over windows, in FP32 or in float64.

Sums go by the elements under a window in the order (dim3, dim2, dim1). The bias is added last, the
result is limited, then rounded once. Operands of the sums are dense: `kernels.convolution` says how
patches and panels lie, `kernels.convolution_matrices` matrices.
Source: zDNN API Reference 1.2.0, zdnn_conv2d.
"""

from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from nnpa_emulator import dlfloat
from nnpa_emulator.reference.layout import (
    CELLS,
    Codes,
    Dims,
    Doubles,
    Pages,
    Singles,
    Span,
    Words,
    gather,
    rows_of,
    view,
)

Tile: TypeAlias = tuple[int, int, int, int, int, int]
"""First window and number of windows along dim4, dim3, dim2."""
Part: TypeAlias = tuple[int, int, int, int, int]
"""First row and number of rows of the kernel, its width, first channel and number of channels."""
Slide: TypeAlias = tuple[int, int, int, int]
"""Strides (height, width), padding before (height, width)."""
Under: TypeAlias = tuple[int, int, int]
"""What lies under a window: elements from row to row, rows, elements of a row."""
Lattice: TypeAlias = tuple[int, int, int, int, int, int]
"""Numbers of planes, lines and pixels; elements of the source from one to the next of each."""
Limits: TypeAlias = tuple[np.float32, np.float32]
"""Least and greatest result."""
Indices: TypeAlias = npt.NDArray[np.int64]

PANEL, NARROW = 64, 48
"""Output channels of a panel, and of the last one where that is enough."""


def _elements(
    codes: Codes, dims: Dims, pages: Pages, images: slice, lines: Indices, places: Indices
) -> Words:
    """Widen the elements at some positions of dim3 and dim2 to FP32 bits; zero outside."""
    dense = rows_of(view(codes, dims, pages)[images, :, :, : dims[2]], dims[3])
    down, across = np.clip(lines, 0, dims[1] - 1), np.clip(places, 0, dims[2] - 1)
    words = dlfloat.to_fp32(dense[:, down[:, None], across[None]]).view(np.uint32)
    words[:, down != lines] = 0
    words[:, :, across != places] = 0
    return words


def windows(
    codes: Codes, words: Words, dims: Dims, pages: Pages, slide: Slide, tile: Tile, part: Part
) -> None:
    """Widen the elements under a tile of windows: one row per window."""
    row, rows, width, channel, channels = part
    tops = (tile[2] + np.arange(tile[3])) * slide[0] - slide[2] + row
    lefts = (tile[4] + np.arange(tile[5])) * slide[1] - slide[3]
    lines = (tops[:, None] + np.arange(rows)).ravel()
    places = (lefts[:, None] + np.arange(width)).ravel()
    images = slice(tile[0], tile[0] + tile[1])
    elements = _elements(codes, dims, pages, images, lines, places)
    elements = elements[..., channel : channel + channels]
    grid = elements.reshape(tile[1], tile[3], rows, tile[5], width, channels)
    words[:] = grid.transpose(0, 1, 3, 2, 4, 5).ravel()


def patch(
    codes: Codes, words: Words, dims: Dims, pages: Pages, slide: Slide, tile: Tile, window: Span
) -> None:
    """Widen the input under a tile of windows (height, width) as it lies."""
    high, wide = (tile[3] - 1) * slide[0] + window[0], (tile[5] - 1) * slide[1] + window[1]
    lines = tile[2] * slide[0] - slide[2] + np.arange(high)
    places = tile[4] * slide[1] - slide[3] + np.arange(wide)
    images = slice(tile[0], tile[0] + tile[1])
    words[:] = _elements(codes, dims, pages, images, lines, places).ravel()


def weights(codes: Codes, words: Words, pages: Pages, part: Part, first: int, count: int) -> None:
    """Widen a part of a kernel, output channels `first` on, into a matrix."""
    row, rows, width, channel, channels = part
    dims = row + rows, width, channel + channels, first + count
    cells = gather(codes, dims, pages)[row:, :, channel:, first:]
    words[:] = dlfloat.to_fp32(cells).view(np.uint32).ravel()


def panels(codes: Codes, words: Words, dims: Dims, pages: Pages, first: int, count: int) -> None:
    """Widen output channels of a kernel into panels, zero behind the last channel."""
    dense = gather(codes, dims, pages)[..., first : first + count].reshape(-1, count)
    word = 0
    for channel in range(0, count, PANEL):
        width = _width(count - channel)
        panel = np.zeros((len(dense), width), np.uint32)
        part = dlfloat.to_fp32(dense[:, channel : channel + PANEL]).view(np.uint32)
        panel[:, : part.shape[1]] = part
        words[word : word + panel.size] = panel.ravel()
        word += panel.size


def _width(channels: int) -> int:
    """Return the width of the panel that begins where `left` channels are left."""
    return NARROW if channels <= NARROW else PANEL


def correlate(
    source: Singles, panels: Singles, bias: Singles, out: Codes, places: Indices, pages: Pages,
    tile: Tile, under: Under, lattice: Lattice, first: int, limits: Limits,
) -> np.uint16:  # fmt: skip
    """Sum the products of all windows of a tile and store them; return the largest magnitude."""
    del places
    line, rows, run = under
    steps = (np.arange(lattice[level]) * lattice[3 + level] for level in range(3))
    planes, lines, pixels = np.ix_(*steps)
    starts = (planes + lines + pixels).ravel()
    highest = np.uint16(0)
    for channel in range(0, bias.size, PANEL):
        width, added = _width(bias.size - channel), bias[channel : channel + PANEL]
        at = channel * rows * run
        panel = panels[at : at + rows * run * width].reshape(rows * run, width)
        sums = np.zeros((starts.size, width), np.float32)
        for index, row in enumerate(panel):
            element = index // run * line + index % run
            sums += source[starts + element][:, None] * row
        codes = dlfloat.result_from_fp32(_limited(sums[:, : added.size] + added, *limits))
        _store(codes, out, pages, tile, first + channel)
        highest = max(highest, dlfloat.largest(codes))
    return highest


def store_fp64(
    sums: Doubles, bias: Singles, out: Codes, pages: Pages, tile: Tile, first: int,
    low: np.float32, high: np.float32,
) -> np.uint16:  # fmt: skip
    """Add the bias, limit and store sums of a tile; return the largest magnitude."""
    values = sums + bias[first : first + sums.shape[1]].astype(np.float64)
    codes = dlfloat.result_from_fp64(_limited(values, np.float64(low), np.float64(high)))
    _store(codes, out, pages, tile, first)
    return dlfloat.largest(codes)


Values = TypeVar("Values", Singles, Doubles)


def _limited(values: Values, low: np.floating, high: np.floating) -> Values:
    """Limit values; NaN stays, and +0 as the lower limit takes the place of -0."""
    limited = values.copy()
    limited[limited <= low] = low
    limited[limited > high] = high
    return limited


def _store(codes: Codes, out: Codes, pages: Pages, tile: Tile, first: int) -> None:
    """Store a tile of results, one row per window, output channels `first` on."""
    grid = codes.reshape(tile[1], tile[3], tile[5], -1)
    dims = tile[0] + tile[1], tile[2] + tile[3], tile[4] + tile[5], first + grid.shape[3]
    target = view(out, dims, pages)[tile[0] :, :, tile[2] :, tile[4] : tile[4] + tile[5]]
    for channel in range(0, grid.shape[3], CELLS):
        part = grid[..., channel : channel + CELLS]
        target[:, (first + channel) // CELLS, :, :, : part.shape[3]] = part
