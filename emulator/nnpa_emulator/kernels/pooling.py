# SPDX-License-Identifier: Apache-2.0
"""Pooling straight on DLFLOAT16 sticks: window by window, 64 channels at a time.

A row of windows is reduced along dim3 first, then along dim2; sums are double precision in that
order, so they depend on nothing but the window. Elements outside the input are not there: they are
neither summed nor counted.
Source: zDNN API Reference 1.2.0, zdnn_avgpool2d and zdnn_maxpool2d.
"""

import numpy as np
import numpy.typing as npt

from nnpa_emulator.kernels.convert import MAGNITUDE16, Codes, decode, encode_fp64
from nnpa_emulator.kernels.jit import implements, kernel
from nnpa_emulator.kernels.order import MIN_KEY, from_ordered, greater
from nnpa_emulator.kernels.padding import clear_padding
from nnpa_emulator.reference import pooling as reference
from nnpa_emulator.reference.layout import Dims, Pages
from nnpa_emulator.reference.pooling import Window

PAGE_CELLS = 2048


@implements(reference.average)
def average(
    codes: Codes, out: Codes, dims: Dims, pages: Pages, sizes: Dims, places: Pages, window: Window
) -> np.uint16:
    """Average every window; return the largest magnitude of the result.

    `dims` and `pages` describe the input, `sizes` and `places` the output.
    """
    height, width, step3, step2, above, left = window
    lines = np.empty((dims[2], 64), np.float64)
    total = np.empty(64, np.float64)
    words = total.view(np.uint64)
    clear_padding(out, sizes, places)
    largest = np.uint16(0)
    for e4 in range(sizes[0]):
        for column in range((dims[3] + 63) // 64):
            real = min(64, dims[3] - 64 * column)
            for o3 in range(sizes[1]):
                top, bottom = max(o3 * step3 - above, 0), min(o3 * step3 - above + height, dims[1])
                base = e4 * pages[0] + column * pages[1]
                _sum_lines(codes, base, pages[2], top, bottom, dims[2], real, lines)
                page = e4 * places[0] + column * places[1] + o3 * places[2]
                for o2 in range(sizes[2]):
                    first, last = o2 * step2 - left, o2 * step2 - left + width
                    first, last = max(first, 0), min(last, dims[2])
                    _average_lines(lines, first, last, real, (bottom - top) * (last - first), total)
                    at = (page + o2 // 32) * PAGE_CELLS + o2 % 32 * 64
                    met = encode_fp64(words[:real], out[at : at + real])
                    largest = np.uint16(max(largest, met))
    return largest


@kernel
def _sum_lines(
    codes: Codes,
    base: int,
    step: int,
    top: int,
    bottom: int,
    width: int,
    real: int,
    lines: npt.NDArray[np.float64],
) -> None:
    """Sum rows `top` to `bottom` of one stick column, position by position of dim2."""
    lines[:] = 0.0
    for e3 in range(top, bottom):
        for e2 in range(width):
            at = np.uintp((base + e3 * step + e2 // 32) * PAGE_CELLS + e2 % 32 * 64)
            for lane in range(np.uintp(real)):
                lines[e2, lane] += np.float64(decode(codes[at + lane]))


@kernel
def _average_lines(
    lines: npt.NDArray[np.float64],
    first: int,
    last: int,
    real: int,
    count: int,
    total: npt.NDArray[np.float64],
) -> None:
    """Average the sums of positions `first` to `last`."""
    total[:] = 0.0
    for e2 in range(first, last):
        for lane in range(np.uintp(real)):
            total[lane] += lines[e2, lane]
    for lane in range(np.uintp(real)):
        total[lane] /= count


@implements(reference.maximum)
def maximum(
    codes: Codes, out: Codes, dims: Dims, pages: Pages, sizes: Dims, places: Pages, window: Window
) -> np.uint16:
    """Select the greatest element of every window; return the largest magnitude of the result."""
    height, width, step3, step2, above, left = window
    lines = np.empty((dims[2], 64), np.int16)
    best = np.empty(64, np.int16)
    clear_padding(out, sizes, places)
    largest = np.uint16(0)
    for e4 in range(sizes[0]):
        for column in range((dims[3] + 63) // 64):
            real = min(64, dims[3] - 64 * column)
            for o3 in range(sizes[1]):
                top, bottom = max(o3 * step3 - above, 0), min(o3 * step3 - above + height, dims[1])
                base = e4 * pages[0] + column * pages[1]
                _greatest_lines(codes, base, pages[2], top, bottom, dims[2], real, lines)
                page = e4 * places[0] + column * places[1] + o3 * places[2]
                for o2 in range(sizes[2]):
                    first, last = o2 * step2 - left, o2 * step2 - left + width
                    first, last = max(first, 0), min(last, dims[2])
                    _greatest_of_lines(lines, first, last, real, best)
                    at = np.uintp((page + o2 // 32) * PAGE_CELLS + o2 % 32 * 64)
                    for lane in range(np.uintp(real)):
                        code = from_ordered(best[lane])
                        largest = np.uint16(max(largest, np.uint16(code & MAGNITUDE16)))
                        out[at + lane] = code
    return largest


@kernel
def _greatest_lines(
    codes: Codes,
    base: int,
    step: int,
    top: int,
    bottom: int,
    width: int,
    real: int,
    lines: npt.NDArray[np.int16],
) -> None:
    """Find the greatest of rows `top` to `bottom`, position by position of dim2."""
    lines[:] = MIN_KEY
    for e3 in range(top, bottom):
        for e2 in range(width):
            at = np.uintp((base + e3 * step + e2 // 32) * PAGE_CELLS + e2 % 32 * 64)
            for lane in range(np.uintp(real)):
                lines[e2, lane] = np.int16(max(lines[e2, lane], greater(codes[at + lane])))


@kernel
def _greatest_of_lines(
    lines: npt.NDArray[np.int16], first: int, last: int, real: int, best: npt.NDArray[np.int16]
) -> None:
    """Find the greatest of positions `first` to `last`."""
    best[:] = MIN_KEY
    for e2 in range(first, last):
        for lane in range(np.uintp(real)):
            best[lane] = np.int16(max(best[lane], lines[e2, lane]))
