# SPDX-License-Identifier: Apache-2.0
"""Arguments of kernels of matrix products, convolutions and quantised products."""

from typing import Any

import numpy as np
import numpy.typing as npt
from nnpa_emulator import dlfloat
from nnpa_emulator.kernels import matmul
from nnpa_emulator.reference.convolution import Tile

from tests.emulator.kernel_draws import (
    Case,
    Dims,
    Random,
    codes,
    draw_window,
    flag,
    matrix,
    numbers,
    page_count,
    pages_of,
    sizes,
    tensor,
)


def _block(random: Random, size: int = 2) -> tuple[Dims, tuple[int, int, int, int], Any, Any]:
    """Draw stacks of matrices (rows, columns), a place, and spans of a block."""
    dims = sizes(random, (3, 1, 65, 129))
    cells = 128 // size
    pages = pages_of(dims, cells)
    first = int(random.integers(0, dims[0]))
    elements = 4096 // size
    place = first * pages[0] * elements, pages[0] * elements, pages[1] * elements, dims[0] - first
    row, column = (
        int(random.integers(0, dims[2])),
        cells * int(random.integers(0, -(-dims[3] // cells))),
    )
    rows = row, int(random.integers(1, dims[2] - row + 1))
    columns = column, int(random.integers(1, dims[3] - column + 1))
    return dims, place, rows, columns


def decode_block(random: Random) -> Case:
    """Arguments of `matmul_blocks.decode_block`."""
    dims, place, rows, columns = _block(random)
    words = np.zeros(place[3] * rows[1] * columns[1], np.uint32)
    return (tensor(random, dims)[0], words, place, rows, columns), (1,)


def store_relations(random: Random) -> Case:
    """Arguments of `matmul_blocks.store_relations`."""
    dims, place, rows, columns = _block(random)
    dtype = np.float64 if flag(random) else np.float32
    sums = random.choice([-1, 0, 2, np.nan], place[3] * rows[1] * columns[1]).astype(dtype)
    operands = columns[1] * (place[3] if flag(random) else 1)
    operand = random.choice([-1, 0, 2, np.nan], operands).astype(dtype)
    relation = int(random.integers(1, 7))
    return (sums, operand, tensor(random, dims)[0], place, rows, columns, relation), (2,)


def store_codes(random: Random) -> Case:
    """Arguments of `matmul_blocks.store_codes`."""
    dims, place, rows, columns = _block(random)
    cells = codes(random, place[3] * rows[1] * columns[1])
    return (cells, tensor(random, dims)[0], place, rows, columns), (1,)


def clear_matrices(random: Random) -> Case:
    """Arguments of `matmul_blocks.clear_padding`."""
    dims, place, _, _ = _block(random)
    return (tensor(random, dims)[0], place, dims[2], dims[3]), (0,)


def all_panels(random: Random) -> Case:
    """Arguments of `matmul.all_panels`."""
    stacks, _, rows, columns = sizes(random, (3, 1, 129, 129))
    turned = flag(random)
    buffer = matrix(random, stacks, *((columns, rows) if turned else (rows, columns)))
    panels = np.zeros(stacks * rows * -(-columns // 64) * 64, np.float32)
    work = np.zeros(matmul.WORK, np.float32)
    return (buffer.view(np.uint8), panels, stacks, rows, columns, turned, work), (1,)


def multiply(random: Random) -> Case:
    """Arguments of `matmul.multiply`."""
    stacks, _, rows, columns = sizes(random, (3, 1, 65, 129))
    inner = int(random.choice([1, 5, 64, 70, 4200] if rows < 4 else [1, 5, 64, 130]))
    of_a, of_b, of_c = (stacks if flag(random) else 1 for _ in range(3))
    turned = flag(random), flag(random)
    a = matrix(random, of_a, *((inner, rows) if turned[0] else (rows, inner)))
    b = matrix(random, of_b, *((columns, inner) if turned[1] else (inner, columns)))
    operands = a.view(np.uint8), b.view(np.uint8)
    c, output = matrix(random, of_c, 1, columns), matrix(random, stacks, rows, columns)
    relation = int(random.choice([0, 0, 4, 6, 2, 5, 3, 1]))
    shape, work = (of_a, of_b, of_c, stacks, rows, inner, columns), np.zeros(matmul.WORK)
    trailing = c.view(np.uint8), output.view(np.uint8), shape, turned, relation
    return (*operands, np.empty(0, np.float32), *trailing, work.astype(np.float32)), (4,)


def _sliding(random: Random) -> tuple[Dims, Dims, tuple[int, int, int, int], Tile]:
    """Draw the dims of an input and of a kernel, how windows slide, and a tile of them."""
    dims = sizes(random, (3, 17, 17, 65))
    down, across = draw_window(random, dims[1], 3), draw_window(random, dims[2], 3)
    channels = int(random.choice([1, 16, 48, 49, 64, 65, 112, 130]))
    slide = down[1], across[1], down[2], across[2]
    counts = dims[0], down[3], across[3]
    first = [int(random.integers(0, count)) for count in counts]
    number = [int(random.integers(1, n - at + 1)) for n, at in zip(counts, first, strict=True)]
    tile = first[0], number[0], first[1], number[1], first[2], number[2]
    return dims, (down[0], across[0], dims[3], channels), slide, tile


def windows(random: Random) -> Case:
    """Arguments of `convolution_matrices.windows`."""
    dims, window, slide, tile = _sliding(random)
    buffer, pages = tensor(random, dims)
    row = int(random.integers(0, window[0]))
    channel = 64 * int(random.integers(0, -(-dims[3] // 64)))
    part = row, window[0] - row, window[1], channel, dims[3] - channel
    size = tile[1] * tile[3] * tile[5] * part[1] * part[2] * part[4]
    words = np.zeros(size, np.uint32)
    return (buffer, words, dims, pages, slide, tile, part), (1,)


def patch(random: Random) -> Case:
    """Arguments of `convolution.patch`."""
    dims, window, slide, tile = _sliding(random)
    buffer, pages = tensor(random, dims)
    high, wide = (tile[3] - 1) * slide[0] + window[0], (tile[5] - 1) * slide[1] + window[1]
    words = np.zeros(tile[1] * high * wide * dims[3], np.uint32)
    return (buffer, words, dims, pages, slide, tile, window[:2]), (1,)


def weights(random: Random) -> Case:
    """Arguments of `convolution_matrices.weights`."""
    window = _sliding(random)[1]
    buffer, pages = tensor(random, window, kernel=True)
    first = 64 * int(random.integers(0, -(-window[3] // 64)))
    row, channel = int(random.integers(0, window[0])), int(random.integers(0, window[2]))
    part = row, window[0] - row, window[1], channel, window[2] - channel
    count = window[3] - first
    words = np.zeros(part[1] * part[2] * part[4] * count, np.uint32)
    return (buffer, words, pages, part, first, count), (1,)


def panels(random: Random) -> Case:
    """Arguments of `convolution.panels`."""
    window = _sliding(random)[1]
    buffer, pages = tensor(random, window, kernel=True)
    first = 64 * int(random.integers(0, -(-window[3] // 64)))
    count = window[3] - first
    words = np.zeros(-(-count // 64) * 64 * int(np.prod(window[:3])), np.uint32)
    return (buffer, words, window, pages, first, count), (1,)


def correlate(random: Random) -> Case:
    """Arguments of `convolution.correlate`."""
    dims, window, slide, tile = _sliding(random)
    slide = min(slide[0], window[0]), min(slide[1], window[1]), 0, 0
    counts = tile[1], tile[3], tile[5]
    high, wide = (counts[1] - 1) * slide[0] + window[0], (counts[2] - 1) * slide[1] + window[1]
    line = wide * dims[3]
    source = dlfloat.to_fp32(codes(random, counts[0] * high * line))
    first = 64 * int(random.integers(0, 2))
    count = window[3]
    size = -(-count // 64) * 64 * int(np.prod(window[:3]))
    dense, bias = numbers(random, size), numbers(random, count)
    target = tile[0] + tile[1], tile[2] + tile[3], tile[4] + tile[5], first + count
    out, pages = tensor(random, target)
    under = line, window[0], window[1] * dims[3]
    lattice = *counts, high * line, slide[0] * line, slide[1] * dims[3]
    limits = _limits(random)
    places = np.zeros(counts[0] * counts[1] * counts[2], np.int64)
    return (source, dense, bias, out, places, pages, tile, under, lattice, first, limits), (3,)


def _limits(random: Random) -> tuple[np.float32, np.float32]:
    low, high = [(-np.inf, np.inf), (0, np.inf), (0, 1), (-0.5, 0.25)][random.integers(0, 4)]
    return np.float32(low), np.float32(high)


def store_fp64(random: Random) -> Case:
    """Arguments of `convolution_matrices.store_fp64`."""
    _, window, _, tile = _sliding(random)
    rows, first = tile[1] * tile[3] * tile[5], 64 * int(random.integers(0, 2))
    sums = random.choice([0.0, -0.0, 1e12, np.nan, 0.3, -7.0], (rows, window[3]))
    target = tile[0] + tile[1], tile[2] + tile[3], tile[4] + tile[5], first + window[3]
    out, pages = tensor(random, target)
    bias = numbers(random, first + window[3])
    return (sums, bias, out, pages, tile, first, *_limits(random)), (2,)


def decode_bytes(random: Random) -> Case:
    """Arguments of `quantized.decode_bytes`."""
    dims, place, rows, columns = _block(random, 1)
    sticks = _integers(random, page_count(dims, 128))
    return (sticks, np.zeros(rows[1] * columns[1], np.float32), (*place[:3], 1), rows, columns), (
        1,
    )


def _integers(random: Random, pages: int) -> npt.NDArray[np.int8]:
    return random.integers(-128, 128, pages * 4096, np.int8)


def _weights(random: Random) -> tuple[npt.NDArray[np.int8], tuple[int, int, int, int], Dims]:
    dims = sizes(random, (1, 1, 65, 129))
    place = 0, 0, pages_of(dims, 64, 2)[1] * 4096, 1
    return _integers(random, page_count(dims, 64, 2)), place, dims


def decode_weights(random: Random) -> Case:
    """Arguments of `quantized.decode_weights`."""
    sticks, place, dims = _weights(random)
    row, column = 2 * int(random.integers(0, -(-dims[2] // 2))), 64 * int(dims[3] > 64)
    rows, columns = (row, dims[2] - row), (column, dims[3] - column)
    return (sticks, np.zeros(rows[1] * columns[1], np.float32), place, rows, columns), (1,)


def column_sums(random: Random) -> Case:
    """Arguments of `quantized.column_sums`."""
    sticks, place, dims = _weights(random)
    return (sticks, np.full(dims[3], 5, np.int64), place, dims[2], dims[3]), (1,)


def row_sums(random: Random) -> Case:
    """Arguments of `quantized.row_sums`."""
    dims, place, _, _ = _block(random, 1)
    sticks = _integers(random, page_count(dims, 128))
    return (sticks, np.full(dims[2], 5, np.int64), (*place[:3], 1), dims[2], dims[3]), (1,)


def lane_sums(random: Random) -> Case:
    """Arguments of `quantized.lane_sums`."""
    dims, place, _, _ = _block(random)
    sums = np.zeros(dims[2], np.float32)
    return (tensor(random, dims)[0], sums, (*place[:3], 1), dims[2], dims[3]), (1,)


def quantize(random: Random) -> Case:
    """Arguments of `quantized.quantize`."""
    values = dlfloat.to_fp32(codes(random, 300))
    clips = (-128, 127) if flag(random) else (-5, 5)
    return (values, np.float32(random.choice([0, 1.5, 20])), np.float32(3), clips), (0,)


def finish(random: Random) -> Case:
    """Arguments of `quantized.finish`."""
    dims, place, _, _ = _block(random)
    terms = (dlfloat.to_fp32(codes(random, size)) for size in (dims[2], dims[3]))
    singles = (np.float32(number) for number in (-5, 5, 0.5, 2))
    how = (flag(random), flag(random), *singles)
    return (tensor(random, dims)[0], (*place[:3], 1), dims[2], dims[3], *terms, how), (0,)
