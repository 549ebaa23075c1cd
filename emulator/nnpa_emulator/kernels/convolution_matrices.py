# SPDX-License-Identifier: Apache-2.0
"""Parts of a convolution on DLFLOAT16 sticks: windows and weights into matrices, results out.

A convolution is a matrix product: one row of the left matrix per window, its columns the elements
under the window in the order (dim3, dim2, dim1), zero outside the input; one column of the right
matrix per output channel. Matrices are row-major, dense FP32.
Source: zDNN API Reference 1.2.0, zdnn_conv2d.
"""

import numpy as np
import numpy.typing as npt

from nnpa_emulator.kernels.convert import Codes, Words, decode_bits, decode_run, encode_fp64
from nnpa_emulator.kernels.jit import implements, kernel
from nnpa_emulator.reference import convolution as reference
from nnpa_emulator.reference.convolution import Part, Slide, Tile
from nnpa_emulator.reference.layout import Dims, Pages

PAGE_CELLS = 2048
STICK_CELLS = np.uintp(64)
ONE, TWO, THREE, FOUR, STEP = (np.uintp(number) for number in (1, 2, 3, 4, 8))


@implements(reference.weights)
def weights(codes: Codes, words: Words, pages: Pages, part: Part, first: int, count: int) -> None:
    """Widen a part of a 4DKERNEL tensor, output channels `first` on, into the right matrix.

    `first` is a multiple of 64, or the only block.
    """
    row, rows, width, channel, channels = part
    word = np.uintp(0)
    for e4 in range(row, row + rows):
        for e3 in range(width):
            for e2 in range(channel, channel + channels):
                for e1 in range(first, first + count, 64):
                    page = e4 * pages[0] + e1 // 64 * pages[1] + e3 * pages[2] + e2 // 32
                    cell = np.uintp(page * PAGE_CELLS + e2 % 32 * 64)
                    real = np.uintp(min(64, first + count - e1))
                    decode_run(codes, cell, words, word, real)
                    word += real


@implements(reference.windows)
def windows(
    codes: Codes, words: Words, dims: Dims, pages: Pages, slide: Slide, tile: Tile, part: Part
) -> None:
    """Widen the elements under a tile of windows straight from the sticks into the left matrix."""
    row, rows, width, channel, channels = part
    word = np.uintp(0)
    size = np.uintp(channels)
    for e4 in range(tile[0], tile[0] + tile[1]):
        for o3 in range(tile[2], tile[2] + tile[3]):
            for o2 in range(tile[4], tile[4] + tile[5]):
                for e3 in range(
                    o3 * slide[0] - slide[2] + row, o3 * slide[0] - slide[2] + row + rows
                ):
                    inside = 0 <= e3 < dims[1]
                    for e2 in range(o2 * slide[1] - slide[3], o2 * slide[1] - slide[3] + width):
                        if inside and 0 <= e2 < dims[2]:
                            page = e4 * pages[0] + e3 * pages[2] + e2 // 32
                            cell = page * PAGE_CELLS + e2 % 32 * 64
                            widen_element(codes, words, cell, pages[1], channel, size, word)
                        else:
                            words[word : word + size] = 0
                        word += size


@kernel
def widen_element(
    codes: Codes, words: Words, cell: int, step: int, channel: int, count: np.uintp, word: np.uintp
) -> None:
    """Widen `count` channels of one element, from channel `channel` (a multiple of 64) on."""
    done = np.uintp(0)
    source = np.uintp(cell + channel // 64 * step * PAGE_CELLS)
    while done + STICK_CELLS <= count:
        for i in range(STICK_CELLS):
            words[word + done + i] = decode_bits(codes[source + i])
        source += np.uintp(step * PAGE_CELLS)
        done += STICK_CELLS
    for i in range(count - done):
        words[word + done + i] = decode_bits(codes[source + i])


@implements(reference.store_fp64)
def store_fp64(
    sums: npt.NDArray[np.float64],
    bias: npt.NDArray[np.float32],
    out: Codes,
    pages: Pages,
    tile: Tile,
    first: int,
    low: np.float32,
    high: np.float32,
) -> np.uint16:
    """Add the bias, limit to `low` and `high`, round into sticks; return the largest magnitude.

    `sums` has one row per window of the tile and output channels from `first` on. NaN stays, and
    +0 as `low` takes the place of -0.
    """
    largest = np.uint16(0)
    rows, count = sums.shape
    line = np.empty(64, np.float64)
    words = line.view(np.uint64)
    for index in range(rows):
        o2 = tile[4] + index % tile[5]
        o3 = tile[2] + index // tile[5] % tile[3]
        e4 = tile[0] + index // tile[5] // tile[3]
        page = e4 * pages[0] + o3 * pages[2] + o2 // 32
        for start in range(0, count, 64):
            at = (page + (first + start) // 64 * pages[1]) * PAGE_CELLS + o2 % 32 * 64
            real = min(64, count - start)
            for i in range(real):
                value = sums[index, start + i] + np.float64(bias[first + start + i])
                value = np.float64(low) if value <= low else value
                line[i] = np.float64(high) if value > high else value
            met = encode_fp64(words[:real], out[at : at + real])
            largest = np.uint16(max(largest, met))
    return largest
