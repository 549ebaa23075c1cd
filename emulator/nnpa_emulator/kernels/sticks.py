# SPDX-License-Identifier: Apache-2.0
"""Movement between dense row-major arrays and sticks, conversion fused, one pass.

All kernels share two descriptions of the tensor: `dims` (dim4, dim3, dim2, dim1), outermost first,
and `pages`, the page strides (of dim4, of the stick column of dim1, of dim3).  A page has 32 sticks
of 128 bytes; a stick holds 64 DLFLOAT16 cells.  Arrays and stick buffers are one-dimensional and
contiguous.  `fresh` says that the buffer is zero already, so padding need not be written; otherwise
every padding cell of the pages that belong to the tensor is set to zero.
Indices are unsigned so that no kernel tests for negative ones; loops over whole sticks have a
constant length, so that they become vector code.
Source: zDNN API Reference 1.2.0, "Stickified tensors"; offsets as the zDNN library has them.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from nnpa_emulator.kernels.convert import (
    INFINITY32,
    LINE_HIGH32,
    MAGNITUDE32,
    Codes,
    Words,
    decode_run,
    encode,
    encode_masked,
    encode_run,
)
from nnpa_emulator.kernels.jit import implements, inlined, kernel, kernel_in
from nnpa_emulator.reference import sticks as reference
from nnpa_emulator.reference.layout import Dims, Pages

Level: TypeAlias = tuple[np.uintp, np.uintp, np.uintp]
"""A loop: its count, and how far apart its words and its cells are."""
Cells = npt.NDArray[np.uint8] | npt.NDArray[np.uint16] | npt.NDArray[np.uint32]

PAGE_STICKS = 32
STICK_CELLS = np.uintp(64)
SHORT_CELLS = np.uintp(16)
PAGE_CELLS = 2048
STICK_BYTES = 128
LONG = 4
"""Whole sticks of a row that are faster one after the other than with those of the next rows."""

encode_sticks: Callable[..., tuple[np.uint32, np.uint32]] = kernel_in(
    "nnpa_emulator.kernels.cells", "encode_sticks"
)
decode_sticks: Callable[..., np.uint16] = kernel_in("nnpa_emulator.kernels.cells", "decode_sticks")


@implements(reference.stickify_fp32)
def stickify_fp32(
    words: Words, sticks: Codes, dims: Dims, pages: Pages, limit: np.uint32, fresh: bool
) -> tuple[np.uint32, np.uint32]:
    """Round FP32 bits into DLFLOAT16 sticks; return the extreme magnitudes as `encode_run` does.

    `limit` is as in `encode`; NaN and infinities are NINF with any limit. The work goes by pages of
    32 rows, which stay in the host's caches: long rows one by one, as they are in memory, and stick
    columns of short ones.
    """
    d4, d3, d2, d1 = dims
    mask = np.zeros(STICK_CELLS, np.uint32)
    mask[: (d1 - 1) % 64 + 1] = 0xFFFFFFFF
    whole, column = d1 // 64, pages[1] * PAGE_CELLS
    largest, smallest = np.uint32(0), np.uint32(0xFFFFFFFF)
    for e4 in range(d4):
        for e3 in range(d3):
            for e2 in range(0, d2, PAGE_STICKS):
                rows = min(PAGE_STICKS, d2 - e2)
                cell = (e4 * pages[0] + e3 * pages[2] + e2 // PAGE_STICKS) * PAGE_CELLS
                word = ((e4 * d3 + e3) * d2 + e2) * d1
                outer, inner = levels(rows, d1, whole, column)
                met = encode_sticks(
                    words, np.uintp(word), sticks, np.uintp(cell), outer, inner, limit
                )
                for k in range(whole):
                    start, page = np.uintp(word + 64 * k), np.uintp(cell + k * column)
                    _finish_page(words, start, sticks, page, rows, d1, 64, limit, met[0], fresh)
                largest = np.uint32(max(largest, met[0]))
                smallest = np.uint32(min(smallest, met[1]))
                if whole * 64 < d1:
                    start, page = np.uintp(word + 64 * whole), np.uintp(cell + whole * column)
                    real = d1 - 64 * whole
                    met = encode_page(
                        words, start, sticks, page, rows, d1, real, mask, limit, fresh
                    )
                    largest = np.uint32(max(largest, met[0]))
                    smallest = np.uint32(min(smallest, met[1]))
    return largest, smallest


@inlined
def levels(rows: int, step: int, columns: int, stride: int) -> tuple[Level, Level]:
    """Return the loops over whole sticks of a page of each column: rows outside if they are long.

    A long row is read as it lies in memory, which is faster than its sticks beside those of other
    rows.
    """
    down = np.uintp(rows), np.uintp(step), STICK_CELLS
    along = np.uintp(columns), STICK_CELLS, np.uintp(stride)
    return (down, along) if columns >= LONG else (along, down)


@kernel
def encode_page(
    words: Words, word: np.uintp, sticks: Codes, cell: np.uintp, rows: int, step: int, real: int,
    mask: Words, limit: np.uint32, fresh: bool,
) -> tuple[np.uint32, np.uint32]:  # fmt: skip
    """Fill a page: `rows` sticks of `real` < 64 cells, rows `step` words apart, then zeros.

    `mask` has ones for the first `real` of 64 cells.
    """
    if fresh:
        met = _encode_cells(words, word, sticks, cell, rows, step, np.uintp(real), limit)
    elif real <= 16:
        met = _encode_masked_cells(words, word, sticks, cell, rows, step, SHORT_CELLS, mask, limit)
    else:
        met = _encode_masked_cells(words, word, sticks, cell, rows, step, STICK_CELLS, mask, limit)
    _finish_page(words, word, sticks, cell, rows, step, real, limit, met[0], fresh)
    return met


@kernel
def _finish_page(
    words: Words, word: np.uintp, sticks: Codes, cell: np.uintp, rows: int, step: int, real: int,
    limit: np.uint32, largest: np.uint32, fresh: bool,
) -> None:  # fmt: skip
    """Mark what is no number among words up to `largest`, unless `limit` does; zero other rows."""
    if limit != LINE_HIGH32 and largest >= INFINITY32:
        mark_nonfinite(words, word, sticks, cell, rows, step, real)
    if not fresh:
        sticks[cell + np.uintp(rows * 64) : cell + np.uintp(PAGE_CELLS)] = 0


@inlined
def _encode_cells(
    words: Words, word: np.uintp, sticks: Codes, cell: np.uintp, rows: int, step: int,
    real: np.uintp, limit: np.uint32,
) -> tuple[np.uint32, np.uint32]:  # fmt: skip
    """Fill the first `real` cells of a stick per row; rows are `step` words apart."""
    largest, smallest = np.uint32(0), np.uint32(0xFFFFFFFF)
    for row in range(np.uintp(rows)):
        source, target = word + row * np.uintp(step), cell + row * STICK_CELLS
        high, low = encode_run(words, source, sticks, target, real, limit)
        largest = np.uint32(max(largest, high))
        smallest = np.uint32(min(smallest, low))
    return largest, smallest


@inlined
def _encode_masked_cells(
    words: Words, word: np.uintp, sticks: Codes, cell: np.uintp, rows: int, step: int,
    cells: np.uintp, mask: Words, limit: np.uint32,
) -> tuple[np.uint32, np.uint32]:  # fmt: skip
    """Fill a stick per row: the first `cells` where `mask` is set, zeros elsewhere."""
    largest, smallest = np.uint32(0), np.uint32(0xFFFFFFFF)
    for row in range(np.uintp(rows)):
        source, target = word + row * np.uintp(step), cell + row * STICK_CELLS
        high, low = encode_masked(words, source, sticks, target, cells, mask, limit)
        largest = np.uint32(max(largest, high))
        smallest = np.uint32(min(smallest, low))
        for i in range(STICK_CELLS - cells):
            sticks[target + cells + i] = 0
    return largest, smallest


@kernel
def mark_nonfinite(
    words: Words, word: np.uintp, sticks: Codes, cell: np.uintp, rows: int, step: int, real: int
) -> None:
    """Store NINF for every NaN and infinity, which saturation does not touch."""
    for row in range(np.uintp(rows)):
        for i in range(np.uintp(real)):
            bits = words[word + row * np.uintp(step) + i]
            if np.uint32(bits & MAGNITUDE32) >= INFINITY32:
                sticks[cell + row * STICK_CELLS + i] = encode(bits, LINE_HIGH32)


@implements(reference.unstickify_fp32)
def unstickify_fp32(sticks: Codes, words: Words, dims: Dims, pages: Pages) -> np.uint16:
    """Widen DLFLOAT16 sticks to FP32 bits; return the largest magnitude of the codes."""
    d4, d3, d2, d1 = dims
    whole, column = d1 // 64, pages[1] * PAGE_CELLS
    largest = np.uint16(0)
    for e4 in range(d4):
        for e3 in range(d3):
            for e2 in range(0, d2, PAGE_STICKS):
                rows = min(PAGE_STICKS, d2 - e2)
                cell = (e4 * pages[0] + e3 * pages[2] + e2 // PAGE_STICKS) * PAGE_CELLS
                word = ((e4 * d3 + e3) * d2 + e2) * d1
                outer, inner = levels(rows, d1, whole, column)
                high = decode_sticks(words, np.uintp(word), sticks, np.uintp(cell), outer, inner)
                largest = np.uint16(max(largest, high))
                for row in range(rows if whole * 64 < d1 else 0):
                    source = np.uintp(cell + whole * column + row * 64)
                    target = np.uintp(word + row * d1 + whole * 64)
                    high = decode_run(sticks, source, words, target, np.uintp(d1 - whole * 64))
                    largest = np.uint16(max(largest, high))
    return largest


@implements(reference.stickify_table)
def stickify_table(
    source: Codes, table: Words, sticks: Codes, dims: Dims, pages: Pages, fresh: bool
) -> np.uint32:
    """Convert 16-bit values into sticks through a table: code in the low half, flags in the high.

    Returns the flags of all elements, or-ed.
    """
    d4, d3, d2, d1 = dims
    seen = np.uint32(0)
    for e4 in range(d4):
        for k in range((d1 + 63) // 64):
            real = min(64, d1 - 64 * k)
            for e3 in range(d3):
                cell = np.uintp((e4 * pages[0] + k * pages[1] + e3 * pages[2]) * PAGE_CELLS)
                item = np.uintp((e4 * d3 + e3) * d2 * d1 + 64 * k)
                for row in range(np.uintp(d2)):
                    first, stick = item + row * np.uintp(d1), cell + row * STICK_CELLS
                    seen = np.uint32(seen | _convert(source, first, sticks, stick, real, table))
                    if real < 64 and not fresh:
                        sticks[stick + np.uintp(real) : stick + STICK_CELLS] = 0
                if not fresh:
                    sticks[cell + np.uintp(d2 * 64) : cell + np.uintp((d2 + 31) // 32 * 2048)] = 0
    return np.uint32(seen >> np.uint32(16))


@implements(reference.unstickify_table)
def unstickify_table(
    sticks: Codes, table: Words, target: Codes, dims: Dims, pages: Pages
) -> np.uint32:
    """Convert sticks to 16-bit values through a table as `stickify_table` has it; return flags."""
    d4, d3, d2, d1 = dims
    seen = np.uint32(0)
    for e4 in range(d4):
        for k in range((d1 + 63) // 64):
            real = min(64, d1 - 64 * k)
            for e3 in range(d3):
                cell = np.uintp((e4 * pages[0] + k * pages[1] + e3 * pages[2]) * PAGE_CELLS)
                item = np.uintp((e4 * d3 + e3) * d2 * d1 + 64 * k)
                for row in range(np.uintp(d2)):
                    first, stick = item + row * np.uintp(d1), cell + row * STICK_CELLS
                    seen = np.uint32(seen | _convert(sticks, stick, target, first, real, table))
    return np.uint32(seen >> np.uint32(16))


@kernel
def _convert(
    source: Codes, start: np.uintp, target: Codes, to: np.uintp, count: int, table: Words
) -> np.uint32:
    """Look up a run of 16-bit values; the low half is stored, everything is or-ed and returned."""
    seen = np.uint32(0)
    for i in range(np.uintp(count)):
        entry = table[source[start + i]]
        seen = np.uint32(seen | entry)
        target[to + i] = np.uint16(entry)
    return seen


@implements(reference.stickify_copy)
def stickify_copy(source: Cells, sticks: Cells, dims: Dims, pages: Pages, fresh: bool) -> None:
    """Copy cells of 1, 2 or 4 bytes from a dense array into feature or kernel sticks."""
    d4, d3, d2, d1 = dims
    cells = STICK_BYTES // sticks.itemsize
    for e4 in range(d4):
        for k in range((d1 + cells - 1) // cells):
            real = np.uintp(min(cells, d1 - cells * k))
            for e3 in range(d3):
                page = e4 * pages[0] + k * pages[1] + e3 * pages[2]
                cell = np.uintp(page * PAGE_STICKS * cells)
                item = np.uintp((e4 * d3 + e3) * d2 * d1 + cells * k)
                for row in range(np.uintp(d2)):
                    first, stick = item + row * np.uintp(d1), cell + row * np.uintp(cells)
                    for i in range(real):
                        sticks[stick + i] = source[first + i]
                    if not fresh:
                        sticks[stick + real : stick + np.uintp(cells)] = 0
                if not fresh:
                    end = np.uintp((d2 + 31) // 32 * PAGE_STICKS * cells)
                    sticks[cell + np.uintp(d2 * cells) : cell + end] = 0


@implements(reference.unstickify_copy)
def unstickify_copy(sticks: Cells, target: Cells, dims: Dims, pages: Pages) -> None:
    """Copy cells of 1, 2 or 4 bytes from feature or kernel sticks into a dense array."""
    d4, d3, d2, d1 = dims
    cells = STICK_BYTES // sticks.itemsize
    for e4 in range(d4):
        for k in range((d1 + cells - 1) // cells):
            real = np.uintp(min(cells, d1 - cells * k))
            for e3 in range(d3):
                page = e4 * pages[0] + k * pages[1] + e3 * pages[2]
                cell = np.uintp(page * PAGE_STICKS * cells)
                item = np.uintp((e4 * d3 + e3) * d2 * d1 + cells * k)
                for row in range(np.uintp(d2)):
                    first, stick = item + row * np.uintp(d1), cell + row * np.uintp(cells)
                    for i in range(real):
                        target[first + i] = sticks[stick + i]
