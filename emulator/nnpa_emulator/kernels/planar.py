# SPDX-License-Identifier: Apache-2.0
"""Movement between NCHW arrays and sticks: 64 positions of 64 channels at a time.

`dims` are the transformed ones (N, H, W, C) and `pages` as in `kernels.sticks`.
Source: zDNN API Reference 1.2.0, ZDNN_NCHW; zDNN library behaviour.
"""

from collections.abc import Callable

import numpy as np

from nnpa_emulator.kernels.convert import (
    INFINITY32,
    LINE_HIGH32,
    Codes,
    Words,
    decode_run,
    encode_run,
)
from nnpa_emulator.kernels.jit import implements, kernel, kernel_in
from nnpa_emulator.kernels.sticks import (
    PAGE_CELLS,
    STICK_CELLS,
    decode_sticks,
    encode_sticks,
    levels,
    mark_nonfinite,
)
from nnpa_emulator.reference import sticks as reference
from nnpa_emulator.reference.layout import Dims, Pages

BLOCK = 64 * 64
"""Cells of 64 positions of 64 channels."""

turn: Callable[..., None] = kernel_in("nnpa_emulator.kernels.cells", "turn")


@implements(reference.stickify_nchw)
def stickify_nchw(
    words: Words, sticks: Codes, dims: Dims, pages: Pages, limit: np.uint32, fresh: bool
) -> tuple[np.uint32, np.uint32]:
    """Round FP32 bits in NCHW order into DLFLOAT16 sticks, as `stickify_fp32` does for NHWC."""
    d4, d3, d2, d1 = dims
    plane, height = d3 * d2, (d2 + 31) // 32 * PAGE_CELLS
    channels, positions = np.zeros(BLOCK, np.uint16), np.zeros(BLOCK, np.uint16)
    largest, smallest = np.uint32(0), np.uint32(0xFFFFFFFF)
    for e4 in range(d4):
        for k in range((d1 + 63) // 64):
            real = min(64, d1 - 64 * k)
            width = real if fresh else 64
            if real < 64:
                channels[:] = 0
                positions[:] = 0
            cell, step = (e4 * pages[0] + k * pages[1]) * PAGE_CELLS, pages[2] * PAGE_CELLS
            for start in range(0, plane, 64):
                count = min(64, plane - start)
                word = np.uintp((e4 * d1 + 64 * k) * plane + start)
                high, low = _encode_channels(words, word, plane, channels, real, count, limit)
                largest = np.uint32(max(largest, high))
                smallest = np.uint32(min(smallest, low))
                _turn_block(channels, 0, positions, real, count)
                _move(positions, sticks, cell, step, d2, start, count, width, True)
            for e3 in range(0 if fresh else d3):
                sticks[cell + e3 * step + d2 * 64 : cell + e3 * step + height] = 0
    return largest, smallest


@implements(reference.unstickify_nchw)
def unstickify_nchw(sticks: Codes, words: Words, dims: Dims, pages: Pages) -> np.uint16:
    """Widen DLFLOAT16 sticks to FP32 bits in NCHW order; return the codes' largest magnitude."""
    d4, d3, d2, d1 = dims
    plane = d3 * d2
    channels, positions = np.zeros(BLOCK, np.uint16), np.zeros(BLOCK, np.uint16)
    largest = np.uint16(0)
    for e4 in range(d4):
        for k in range((d1 + 63) // 64):
            real = min(64, d1 - 64 * k)
            cell, step = (e4 * pages[0] + k * pages[1]) * PAGE_CELLS, pages[2] * PAGE_CELLS
            for start in range(0, plane, 64):
                count = min(64, plane - start)
                word = np.uintp((e4 * d1 + 64 * k) * plane + start)
                e3, e2 = start // d2, start % d2
                if e2 + count <= d2 and count % 8 == 0:
                    _turn_block(sticks, cell + e3 * step + e2 * 64, channels, count, real)
                else:
                    _move(sticks, positions, cell, step, d2, start, count, 64, False)
                    _turn_block(positions, 0, channels, count, real)
                high = _decode_channels(channels, words, word, plane, real, count)
                largest = np.uint16(max(largest, high))
    return largest


@kernel
def _move(
    source: Codes, target: Codes, cell: int, step: int, d2: int, start: int, count: int,
    width: int, inward: bool,
) -> None:  # fmt: skip
    """Copy `width` cells of positions from `start` on between a block and a column of pages.

    A column has its rows of `d2` positions `step` cells apart, from `cell` on; `inward` means that
    it is the target.
    """
    done = 0
    while done < count:
        e3 = (start + done) // d2
        e2 = start + done - e3 * d2
        run = min(d2 - e2, count - done)
        stick, place = cell + e3 * step + e2 * 64, done * 64
        first, to = (place, stick) if inward else (stick, place)
        rows, cells = (1, run * 64) if width == 64 else (run, width)
        for row in range(0, rows * 64, 64):
            for i in range(np.uintp(cells)):
                target[np.uintp(to + row) + i] = source[np.uintp(first + row) + i]
        done += run


@kernel
def _encode_channels(
    words: Words, word: np.uintp, plane: int, channels: Codes, real: int, count: int,
    limit: np.uint32,
) -> tuple[np.uint32, np.uint32]:  # fmt: skip
    """Round `count` words of each channel, `plane` apart, into the channels' sticks of a block."""
    largest, smallest = np.uint32(0), np.uint32(0xFFFFFFFF)
    if count == 64:
        outer, inner = levels(real, plane, 1, 0)
        largest, smallest = encode_sticks(words, word, channels, np.uintp(0), outer, inner, limit)
    else:
        for channel in range(np.uintp(real)):
            first = word + channel * np.uintp(plane)
            to = channel * STICK_CELLS
            high, low = encode_run(words, first, channels, to, np.uintp(count), limit)
            largest = np.uint32(max(largest, high))
            smallest = np.uint32(min(smallest, low))
    if limit != LINE_HIGH32 and largest >= INFINITY32:
        mark_nonfinite(words, word, channels, np.uintp(0), real, plane, count)
    return largest, smallest


@kernel
def _turn_block(source: Codes, start: int, target: Codes, rows: int, columns: int) -> None:
    """Let rows of 64 cells from `start` on be columns of 64 cells: at least the first of them."""
    for row in range(0, rows, 8):
        for column in range(0, columns, 8):
            turn(source, start + row * 64 + column, target, column * 64 + row)


@kernel
def _decode_channels(
    channels: Codes, words: Words, word: np.uintp, plane: int, real: int, count: int
) -> np.uint16:
    """Widen the channels' sticks of a block to runs of `count` words, `plane` apart."""
    if count == 64:
        outer, inner = levels(real, plane, 1, 0)
        return decode_sticks(words, word, channels, np.uintp(0), outer, inner)
    largest = np.uint16(0)
    for channel in range(np.uintp(real)):
        to = word + channel * np.uintp(plane)
        high = decode_run(channels, channel * STICK_CELLS, words, to, np.uintp(count))
        largest = np.uint16(max(largest, high))
    return largest
