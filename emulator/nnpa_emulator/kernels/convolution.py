# SPDX-License-Identifier: Apache-2.0
"""Convolution on DLFLOAT16 sticks in FP32: windows are read where they lie in a patch.

A patch is the input under a tile of windows, widened once: (dim4, dim3, dim2, dim1), zero outside.
A row under a window is one run of it, so windows are never copied. Weights are panels of output
channels. The sums of a strip of windows and a panel are made in registers, in the order (dim4,
dim3, dim2) of the kernel, and rounded into sticks before the next.
Source: zDNN API Reference 1.2.0, zdnn_conv2d; "Stickified tensors".
"""

from collections.abc import Callable
from typing import cast

import numpy as np

from nnpa_emulator.kernels.convert import (
    LINE_HIGH32,
    MAGNITUDE32,
    Codes,
    Words,
    as_bits,
    decode_run,
    encode,
    encode_result,
)
from nnpa_emulator.kernels.convolution_matrices import (
    PAGE_CELLS,
    STICK_CELLS,
    widen_element,
)
from nnpa_emulator.kernels.jit import implements, inlined, kernel, kernel_in
from nnpa_emulator.kernels.tiles import ROWS, accumulate
from nnpa_emulator.reference import convolution as reference
from nnpa_emulator.reference.convolution import (
    NARROW,
    PANEL,
    Indices,
    Lattice,
    Limits,
    Slide,
    Tile,
    Under,
)
from nnpa_emulator.reference.layout import Dims, Pages, Singles, Span

BEGIN = cast(int, np.intp(0))
"""No literal, for which `accumulate` would be compiled once more."""
ONE, TWO, THREE, FOUR, STEP = (np.uintp(number) for number in (1, 2, 3, 4, 8))


@implements(reference.panels)
def panels(codes: Codes, words: Words, dims: Dims, pages: Pages, first: int, count: int) -> None:
    """Widen a 4DKERNEL tensor into panels: (panels, elements of a window, width of the panel).

    Output channels from `first`, a multiple of 64, on; zeros behind the last one.
    """
    word = np.uintp(0)
    for e1 in range(first, first + count, PANEL):
        real, width = np.uintp(min(PANEL, first + count - e1)), np.uintp(_width(first + count - e1))
        for e4 in range(dims[0]):
            for e3 in range(dims[1]):
                for e2 in range(dims[2]):
                    page = e4 * pages[0] + e1 // 64 * pages[1] + e3 * pages[2] + e2 // 32
                    cell = np.uintp(page * PAGE_CELLS + e2 % 32 * 64)
                    decode_run(codes, cell, words, word, real)
                    words[word + real : word + width] = 0
                    word += width


@kernel
def _width(channels: int) -> int:
    """Return the width of the panel that begins where `left` channels are left."""
    return NARROW if channels <= NARROW else PANEL


@implements(reference.patch)
def patch(
    codes: Codes, words: Words, dims: Dims, pages: Pages, slide: Slide, tile: Tile, window: Span
) -> None:
    """Widen the input under a tile of windows (height, width), zero outside."""
    high, wide = (tile[3] - 1) * slide[0] + window[0], (tile[5] - 1) * slide[1] + window[1]
    top, left = tile[2] * slide[0] - slide[2], tile[4] * slide[1] - slide[3]
    span = max(0, left), max(0, left, min(left + wide, dims[2]))
    size, word = dims[3], 0
    packed = np.empty((span[1] - span[0]) * size + 64 if size < 64 else 0, np.uint16)
    for e4 in range(tile[0], tile[0] + tile[1]):
        for e3 in range(top, top + high):
            end = word + wide * size
            if 0 <= e3 < dims[1]:
                begin, stop = word + (span[0] - left) * size, word + (span[1] - left) * size
                words[word:begin] = 0
                place = e4 * pages[0] + e3 * pages[2], pages[1], pages[2]
                _line(codes, words[begin:stop], size, place, span, packed)
                words[stop:end] = 0
            else:
                words[word:end] = 0
            word = end


_ask_for: Callable[..., None] = kernel_in("nnpa_emulator.kernels.registers", "prefetch")


@kernel
def _line(codes: Codes, words: Words, size: int, place: Pages, span: Span, packed: Codes) -> None:
    """Widen the elements of a line, few channels by way of `packed`, an array without gaps.

    `place` is (first page, pages of a stick column, pages of a line). Codes are copied in whole
    steps; what that writes behind an element is the place of the next one. The line behind is
    asked for meanwhile: of each of its sticks only the beginning is read, which no processor
    foresees.
    """
    at = np.uintp(0)
    for e2 in range(span[0], span[1]):
        cell = (place[0] + e2 // 32) * PAGE_CELLS + e2 % 32 * 64
        if packed.size:
            _ask_for(codes, cell + place[2] * PAGE_CELLS)
            for i in range(np.uintp(0), np.uintp(size), STEP):
                _copy_step(codes, np.uintp(cell) + i, packed, at + i)
        else:
            widen_element(codes, words, cell, place[1], 0, np.uintp(size), at)
        at += np.uintp(size)
    if packed.size:
        decode_run(packed, np.uintp(0), words, np.uintp(0), at)


@inlined
def _copy_step(source: Codes, start: np.uintp, codes: Codes, code: np.uintp) -> None:
    """Copy eight codes: all are read before any is written, so that they go as one vector."""
    c0, c1, c2, c3 = source[start], source[start + ONE], source[start + TWO], source[start + THREE]
    start, behind = start + FOUR, code + FOUR
    c4, c5, c6, c7 = source[start], source[start + ONE], source[start + TWO], source[start + THREE]
    codes[code], codes[code + ONE], codes[code + TWO], codes[code + THREE] = c0, c1, c2, c3
    code = behind
    codes[code], codes[code + ONE], codes[code + TWO], codes[code + THREE] = c4, c5, c6, c7


@implements(reference.correlate)
def correlate(
    source: Singles, panels: Singles, bias: Singles, out: Codes, places: Indices, pages: Pages,
    tile: Tile, under: Under, lattice: Lattice, first: int, limits: Limits,
) -> np.uint16:  # fmt: skip
    """Sum the products of all windows of a tile and store them; return the largest magnitude.

    `source` has the elements under the windows, `panels` and `bias` the output channels from
    `first` on; `places` has room for a number per window.
    """
    largest = np.uint32(0)
    sums = np.empty(ROWS * PANEL, np.float32)
    _find(places, pages, tile)
    for channel in range(0, bias.size, PANEL):
        panel = channel * under[1] * under[2], _width(bias.size - channel)
        added = bias[channel : channel + PANEL]
        offset = (first + channel) // 64 * pages[1] * PAGE_CELLS
        for line in range(lattice[0] * lattice[1]):
            start = line // lattice[1] * lattice[3] + line % lattice[1] * lattice[4]
            cells = places[line * lattice[2] : (line + 1) * lattice[2]]
            met = _sum_line(
                sums, source, start, lattice[5], under, panels, panel, added, out, cells, offset,
                limits,
            )  # fmt: skip
            largest = np.uint32(max(largest, met))
    return encode(largest, LINE_HIGH32)


@kernel
def _sum_line(
    sums: Singles, source: Singles, start: int, step: int, under: Under, panels: Singles,
    panel: Span, bias: Singles, out: Codes, cells: Indices, offset: int, limits: Limits,
) -> np.uint32:  # fmt: skip
    """Sum the products of a line of windows and a panel, and store them strip by strip.

    Windows begin at `start`, `step` apart; `panel` is (first element, width). Returns the largest
    magnitude in FP32.
    """
    largest = np.uint32(0)
    line, rows, run = under
    strips = (cells.size + ROWS - 1) // ROWS
    for strip in range(strips):
        begin, end = strip * cells.size // strips, (strip + 1) * cells.size // strips
        for row in range(rows):
            accumulate(
                sums, BEGIN, source, start + begin * step + row * line, step,
                panels, panel[0] + row * run * panel[1], panel[1], bias.size, run, end - begin,
                row == 0,
            )  # fmt: skip
        met = _store_strip(sums, panel[1], bias, out, cells[begin:end], offset, limits)
        largest = np.uint32(max(largest, met))
    return largest


@kernel
def _find(places: Indices, pages: Pages, tile: Tile) -> None:
    """Write the first cell of every window's result, in the order of the windows."""
    index = 0
    for e4 in range(tile[0], tile[0] + tile[1]):
        for o3 in range(tile[2], tile[2] + tile[3]):
            for o2 in range(tile[4], tile[4] + tile[5]):
                page = e4 * pages[0] + o3 * pages[2] + o2 // 32
                places[index] = page * PAGE_CELLS + o2 % 32 * 64
                index += 1


@kernel
def _store_strip(
    sums: Singles,
    width: int,
    bias: Singles,
    out: Codes,
    cells: Indices,
    offset: int,
    limits: Limits,
) -> np.uint32:
    """Store the rows of a strip `offset` behind their first cells; return the largest magnitude."""
    largest = np.uint32(0)
    for index in range(cells.size):
        cell, word = np.uintp(cells[index] + offset), np.uintp(index * width)
        if bias.size == PANEL:
            met = _store_run(sums, word, bias, STICK_CELLS, out, cell, limits)
        else:
            met = _store_run(sums, word, bias, np.uintp(bias.size), out, cell, limits)
        largest = np.uint32(max(largest, met))
    return largest


@inlined
def _store_run(
    sums: Singles, word: np.uintp, bias: Singles, count: np.uintp, out: Codes, cell: np.uintp,
    limits: Limits,
) -> np.uint32:  # fmt: skip
    """Add the bias, limit and round a run of sums; return the largest magnitude in FP32.

    NaN stays, and +0 as the lower limit takes the place of -0.
    """
    largest = np.uint32(0)
    low, high = limits
    for i in range(np.uintp(count)):
        value = sums[word + i] + bias[i]
        value = low if value <= low else value
        value = high if value > high else value
        largest = np.uint32(max(largest, np.uint32(as_bits(value) & MAGNITUDE32)))
        out[cell + i] = encode_result(value)
    return largest
