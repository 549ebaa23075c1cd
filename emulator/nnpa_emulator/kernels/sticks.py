# SPDX-License-Identifier: Apache-2.0
"""Movement between dense row-major arrays and sticks, conversion fused, one pass.

All kernels share two descriptions of the tensor: `dims` (dim4, dim3, dim2, dim1), outermost first,
and `pages`, the page strides (of dim4, of the stick column of dim1, of dim3).  A page has 32 sticks
of 128 bytes; a stick holds 64 DLFLOAT16 cells.  Arrays and stick buffers are one-dimensional and
contiguous.  `fresh` says that the buffer is zero already, so padding need not be written; otherwise
every padding cell of the pages that belong to the tensor is set to zero.
Source: zDNN API Reference 1.2.0, "Stickified tensors"; offsets as the zDNN library has them.
"""

import numpy as np
import numpy.typing as npt

from nnpa_emulator.kernels.convert import Codes, Words, decode_run, encode_run, kernel

Dims = tuple[int, int, int, int]
Pages = tuple[int, int, int]

PAGE_STICKS = 32
STICK_CELLS = 64
PAGE_CELLS = 2048
STICK_BYTES = 128


@kernel
def stickify_fp32(
    words: Words, sticks: Codes, dims: Dims, pages: Pages, limit: np.uint32, fresh: bool
) -> tuple[np.uint32, np.uint32]:
    """Round FP32 bits into DLFLOAT16 sticks; return the extreme magnitudes as `encode_run` does."""
    d4, d3, d2, d1 = dims
    scratch = np.zeros(STICK_CELLS, np.uint32)
    largest, smallest = np.uint32(0), np.uint32(0xFFFFFFFF)
    for e4 in range(d4):
        for k in range((d1 + 63) // 64):
            real = min(64, d1 - 64 * k)
            scratch[real:] = 0
            for e3 in range(d3):
                cell = (e4 * pages[0] + k * pages[1] + e3 * pages[2]) * PAGE_CELLS
                word = (e4 * d3 + e3) * d2 * d1 + 64 * k
                high, low = _stickify_plane(
                    words[word:], sticks[cell:], d2, d1, real, scratch, limit, fresh
                )
                largest, smallest = max(largest, high), min(smallest, low)
    return largest, smallest


@kernel
def _stickify_plane(
    words: Words,
    sticks: Codes,
    rows: int,
    step: int,
    real: int,
    scratch: Words,
    limit: np.uint32,
    fresh: bool,
) -> tuple[np.uint32, np.uint32]:
    """Fill one stick column of one (e4, e3): `real` cells per row, rows `step` words apart."""
    largest, smallest = np.uint32(0), np.uint32(0xFFFFFFFF)
    width = 16 if real <= 16 else 64
    for row in range(rows):
        stick = sticks[row * 64 : row * 64 + 64]
        source = words[row * step : row * step + real]
        if real == 64:
            high, low = encode_run(source, stick, limit)
        elif fresh:
            high, low = encode_run(source, stick[:real], limit)
        else:
            for i in range(real):
                scratch[i] = source[i]
            high, low = encode_run(scratch[:width], stick[:width], limit)
            stick[width:] = 0
        largest, smallest = max(largest, high), min(smallest, low)
    if not fresh:
        sticks[rows * 64 : (rows + 31) // 32 * PAGE_CELLS] = 0
    return largest, smallest


@kernel
def unstickify_fp32(sticks: Codes, words: Words, dims: Dims, pages: Pages) -> np.uint16:
    """Widen DLFLOAT16 sticks to FP32 bits; return the largest magnitude of the codes."""
    d4, d3, d2, d1 = dims
    largest = np.uint16(0)
    for e4 in range(d4):
        for k in range((d1 + 63) // 64):
            real = min(64, d1 - 64 * k)
            for e3 in range(d3):
                cell = (e4 * pages[0] + k * pages[1] + e3 * pages[2]) * PAGE_CELLS
                word = (e4 * d3 + e3) * d2 * d1 + 64 * k
                for row in range(d2):
                    stick = sticks[cell + row * 64 : cell + row * 64 + real]
                    target = words[word + row * d1 : word + row * d1 + real]
                    largest = max(largest, decode_run(stick, target))
    return largest


@kernel
def stickify_table(
    source: Codes, table: Words, sticks: Codes, dims: Dims, pages: Pages, fresh: bool
) -> np.uint32:
    """Convert 16-bit values into sticks through a table: code in the low half, flags in the high.

    Returns the flags of all elements, or-ed.
    """
    d4, d3, d2, d1 = dims
    flags = np.uint32(0)
    for e4 in range(d4):
        for k in range((d1 + 63) // 64):
            real = min(64, d1 - 64 * k)
            for e3 in range(d3):
                cell = (e4 * pages[0] + k * pages[1] + e3 * pages[2]) * PAGE_CELLS
                item = (e4 * d3 + e3) * d2 * d1 + 64 * k
                for row in range(d2):
                    values = source[item + row * d1 : item + row * d1 + real]
                    stick = sticks[cell + row * 64 : cell + row * 64 + 64]
                    flags = np.uint32(flags | _convert_run(values, table, stick))
                    if not fresh:
                        stick[real:] = 0
                if not fresh:
                    sticks[cell + d2 * 64 : cell + (d2 + 31) // 32 * PAGE_CELLS] = 0
    return np.uint32(flags >> np.uint32(16))


@kernel
def unstickify_table(
    sticks: Codes, table: Words, target: Codes, dims: Dims, pages: Pages
) -> np.uint32:
    """Convert sticks to 16-bit values through a table as `stickify_table` has it; return flags."""
    d4, d3, d2, d1 = dims
    flags = np.uint32(0)
    for e4 in range(d4):
        for k in range((d1 + 63) // 64):
            real = min(64, d1 - 64 * k)
            for e3 in range(d3):
                cell = (e4 * pages[0] + k * pages[1] + e3 * pages[2]) * PAGE_CELLS
                item = (e4 * d3 + e3) * d2 * d1 + 64 * k
                for row in range(d2):
                    stick = sticks[cell + row * 64 : cell + row * 64 + real]
                    values = target[item + row * d1 : item + row * d1 + real]
                    flags = np.uint32(flags | _convert_run(stick, table, values))
    return np.uint32(flags >> np.uint32(16))


@kernel
def _convert_run(source: Codes, table: Words, target: Codes) -> np.uint32:
    """Look up a run of 16-bit values; the low half is stored, everything is or-ed and returned."""
    seen = np.uint32(0)
    for i in range(source.size):
        entry = table[source[i]]
        seen = np.uint32(seen | entry)
        target[i] = np.uint16(entry)
    return seen


@kernel
def stickify_copy(
    source: npt.NDArray[np.generic],
    sticks: npt.NDArray[np.generic],
    dims: Dims,
    pages: Pages,
    fresh: bool,
) -> None:
    """Copy cells of 1, 2 or 4 bytes from a dense array into feature or kernel sticks."""
    d4, d3, d2, d1 = dims
    cells = STICK_BYTES // sticks.itemsize
    for e4 in range(d4):
        for k in range((d1 + cells - 1) // cells):
            real = min(cells, d1 - cells * k)
            for e3 in range(d3):
                cell = (e4 * pages[0] + k * pages[1] + e3 * pages[2]) * PAGE_STICKS * cells
                item = (e4 * d3 + e3) * d2 * d1 + cells * k
                for row in range(d2):
                    stick = sticks[cell + row * cells : cell + (row + 1) * cells]
                    stick[:real] = source[item + row * d1 : item + row * d1 + real]
                    if not fresh:
                        stick[real:] = 0
                if not fresh:
                    sticks[cell + d2 * cells : cell + (d2 + 31) // 32 * 32 * cells] = 0


@kernel
def unstickify_copy(
    sticks: npt.NDArray[np.generic], target: npt.NDArray[np.generic], dims: Dims, pages: Pages
) -> None:
    """Copy cells of any width from feature or kernel sticks into a dense array."""
    d4, d3, d2, d1 = dims
    cells = STICK_BYTES // sticks.itemsize
    for e4 in range(d4):
        for k in range((d1 + cells - 1) // cells):
            real = min(cells, d1 - cells * k)
            for e3 in range(d3):
                cell = (e4 * pages[0] + k * pages[1] + e3 * pages[2]) * PAGE_STICKS * cells
                item = (e4 * d3 + e3) * d2 * d1 + cells * k
                for row in range(d2):
                    first = cell + row * cells
                    target[item + row * d1 : item + row * d1 + real] = sticks[first : first + real]


@kernel
def stickify_weights(
    source: npt.NDArray[np.uint8], sticks: npt.NDArray[np.uint8], dims: Dims, pages: Pages
) -> None:
    """Interleave INT8 rows in pairs into 4DWEIGHTS sticks; the buffer is zero already."""
    d4, d3, d2, d1 = dims
    item = 0
    for e4 in range(d4):
        for e3 in range(d3):
            for e2 in range(d2):
                for e1 in range(d1):
                    page = e4 * pages[0] + e1 // 64 * pages[1] + e3 * pages[2]
                    byte = page * 4096 + e2 // 2 * STICK_BYTES + e1 % 64 * 2 + e2 % 2
                    sticks[byte] = source[item]
                    item += 1


@kernel
def unstickify_weights(
    sticks: npt.NDArray[np.uint8], target: npt.NDArray[np.uint8], dims: Dims, pages: Pages
) -> None:
    """Read INT8 rows out of 4DWEIGHTS sticks."""
    d4, d3, d2, d1 = dims
    item = 0
    for e4 in range(d4):
        for e3 in range(d3):
            for e2 in range(d2):
                for e1 in range(d1):
                    page = e4 * pages[0] + e1 // 64 * pages[1] + e3 * pages[2]
                    byte = page * 4096 + e2 // 2 * STICK_BYTES + e1 % 64 * 2 + e2 % 2
                    target[item] = sticks[byte]
                    item += 1
