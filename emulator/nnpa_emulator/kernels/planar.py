# SPDX-License-Identifier: Apache-2.0
"""Movement between NCHW arrays and sticks: a page at a time is turned over in a small scratch.

`dims` are the transformed ones (N, H, W, C) and `pages` as in `kernels.sticks`.
Source: zDNN API Reference 1.2.0, ZDNN_NCHW; zDNN library behaviour.
"""

import numpy as np

from nnpa_emulator.kernels.convert import Codes, Words, decode_run
from nnpa_emulator.kernels.jit import implements, kernel
from nnpa_emulator.kernels.sticks import (
    PAGE_CELLS,
    PAGE_STICKS,
    STICK_CELLS,
    encode_page,
)
from nnpa_emulator.reference import sticks as reference
from nnpa_emulator.reference.layout import Dims, Pages


@implements(reference.stickify_nchw)
def stickify_nchw(
    words: Words, sticks: Codes, dims: Dims, pages: Pages, limit: np.uint32, fresh: bool
) -> tuple[np.uint32, np.uint32]:
    """Round FP32 bits in NCHW order into DLFLOAT16 sticks, as `stickify_fp32` does for NHWC."""
    d4, d3, d2, d1 = dims
    mask = np.zeros(STICK_CELLS, np.uint32)
    mask[: (d1 - 1) % 64 + 1] = 0xFFFFFFFF
    scratch = np.zeros(PAGE_CELLS, np.uint32)
    largest, smallest = np.uint32(0), np.uint32(0xFFFFFFFF)
    for e4 in range(d4):
        for k in range((d1 + 63) // 64):
            real = min(64, d1 - 64 * k)
            for e3 in range(d3):
                for e2 in range(0, d2, PAGE_STICKS):
                    rows = min(PAGE_STICKS, d2 - e2)
                    page = e4 * pages[0] + k * pages[1] + e3 * pages[2] + e2 // PAGE_STICKS
                    cell = np.uintp(page * PAGE_CELLS)
                    _turn_in(
                        words,
                        ((e4 * d1 + 64 * k) * d3 + e3) * d2 + e2,
                        d3 * d2,
                        scratch,
                        rows,
                        real,
                    )
                    high, low = encode_page(
                        scratch, np.uintp(0), sticks, cell, rows, 64, real, mask, limit, fresh
                    )
                    largest = np.uint32(max(largest, high))
                    smallest = np.uint32(min(smallest, low))
    return largest, smallest


@kernel
def _turn_in(words: Words, first: int, plane: int, scratch: Words, rows: int, real: int) -> None:
    """Copy `real` runs of `rows` words, `plane` apart, into the columns of the scratch page."""
    for channel in range(np.uintp(real)):
        start = np.uintp(first) + channel * np.uintp(plane)
        for row in range(np.uintp(rows)):
            scratch[row * STICK_CELLS + channel] = words[start + row]


@implements(reference.unstickify_nchw)
def unstickify_nchw(sticks: Codes, words: Words, dims: Dims, pages: Pages) -> np.uint16:
    """Widen DLFLOAT16 sticks to FP32 bits in NCHW order; return the codes' largest magnitude."""
    d4, d3, d2, d1 = dims
    scratch = np.zeros(PAGE_CELLS, np.uint32)
    largest = np.uint16(0)
    for e4 in range(d4):
        for k in range((d1 + 63) // 64):
            real = min(64, d1 - 64 * k)
            for e3 in range(d3):
                for e2 in range(0, d2, PAGE_STICKS):
                    rows = min(PAGE_STICKS, d2 - e2)
                    page = e4 * pages[0] + k * pages[1] + e3 * pages[2] + e2 // PAGE_STICKS
                    cell = np.uintp(page * PAGE_CELLS)
                    for row in range(np.uintp(rows)):
                        at = row * STICK_CELLS
                        high = decode_run(sticks, cell + at, scratch, at, np.uintp(real))
                        largest = np.uint16(max(largest, high))
                    _turn_out(
                        scratch,
                        words,
                        ((e4 * d1 + 64 * k) * d3 + e3) * d2 + e2,
                        d3 * d2,
                        rows,
                        real,
                    )
    return largest


@kernel
def _turn_out(scratch: Words, words: Words, first: int, plane: int, rows: int, real: int) -> None:
    """Copy the columns of the scratch page into `real` runs of `rows` words, `plane` apart."""
    for channel in range(np.uintp(real)):
        start = np.uintp(first) + channel * np.uintp(plane)
        for row in range(np.uintp(rows)):
            words[start + row] = scratch[row * STICK_CELLS + channel]
