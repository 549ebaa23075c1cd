# SPDX-License-Identifier: Apache-2.0
"""Arguments of every kernel that has a reference, drawn from a seeded generator."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from nnpa_emulator import dlfloat
from nnpa_emulator.kernels import chains as chains  # called by networks alone, as the next one
from nnpa_emulator.kernels import comparison as comparison
from nnpa_emulator.kernels import convert, elementwise, matmul, tables
from nnpa_emulator.kernels import host_operators as host_operators
from nnpa_emulator.kernels import layer_normalization as layer_normalization
from nnpa_emulator.kernels import recurrent_layers as layers
from nnpa_emulator.reference import recurrent_layers as reference
from nnpa_emulator.reference.chains import LOAD, RELU, SCALE, SPLAT, STORE
from nnpa_emulator.reference.convolution import Tile
from nnpa_emulator.ztensor import DataTypes

Random: TypeAlias = np.random.Generator
Codes: TypeAlias = npt.NDArray[np.uint16]
Dims: TypeAlias = tuple[int, int, int, int]
Pages: TypeAlias = tuple[int, int, int]
Case: TypeAlias = tuple[tuple[Any, ...], tuple[int, ...]]
"""Arguments of a call, and the positions of those that the kernel writes."""

SIZES = 1, 3, 16, 17, 31, 32, 33, 63, 64, 65, 96, 128, 129
SPECIAL = np.array(
    [0, 0x8000, 1, 0x8001, 0x3E00, 0xBE00, 0x7FFE, 0xFFFE, 0x7FFF, 0xFFFF], np.uint16
)


def codes(random: Random, count: int) -> Codes:
    """Draw codes: numbers of ordinary size, of any size, or with some that are special."""
    kind = random.integers(0, 4)
    if kind == 0:
        return random.integers(0, 65536, count, np.uint16)
    numbers = dlfloat.from_fp32(random.standard_normal(count).astype(np.float32))
    if kind == 1:
        at = random.integers(0, count, 1 + count // 50)
        numbers[at] = random.choice(SPECIAL, at.size)
    if kind == 2:
        numbers = random.choice(np.array([0, 0x8000, 0x3E00, 0x3F00, 0xBE00], np.uint16), count)
    return numbers


def numbers(random: Random, count: int) -> npt.NDArray[np.float32]:
    """Draw FP32 values of DLFLOAT16 codes that are numbers."""
    return dlfloat.to_fp32(dlfloat.from_fp32(random.standard_normal(count).astype(np.float32)))


def flag(random: Random) -> bool:
    """Draw a truth value."""
    return bool(random.integers(0, 2))


def sizes(random: Random, most: Dims) -> Dims:
    """Draw dims, each from `SIZES` up to its limit."""
    d4, d3, d2, d1 = (int(random.choice([n for n in SIZES if n <= limit])) for limit in most)
    return d4, d3, d2, d1


def pages_of(dims: Dims, cells: int = 64, pairs: int = 1, kernel: bool = False) -> Pages:
    """Return page strides of a feature tensor, or of a 4DKERNEL one."""
    d4, d3, d2, d1 = dims
    height, columns = -(-d2 // (32 * pairs)), -(-d1 // cells)
    if kernel:
        return d3 * height, d4 * d3 * height, height
    return columns * d3 * height, d3 * height, height


def page_count(dims: Dims, cells: int = 64, pairs: int = 1) -> int:
    """Return the pages of a tensor."""
    return dims[0] * pages_of(dims, cells, pairs)[0]


def tensor(random: Random, dims: Dims, kernel: bool = False) -> tuple[Codes, Pages]:
    """Draw a used buffer of DLFLOAT16 sticks; return it with its page strides."""
    return codes(random, page_count(dims) * 2048), pages_of(dims, kernel=kernel)


def matrix(random: Random, stacks: int, rows: int, columns: int) -> Codes:
    """Draw stacks of matrices on sticks."""
    return tensor(random, (stacks, 1, rows, columns))[0]


def words_of(random: Random, count: int) -> npt.NDArray[np.uint32]:
    """Draw FP32 bits: any, or numbers with some that are special."""
    if flag(random):
        bits = random.integers(0, 1 << 32, count, np.uint32)
    else:
        bits = random.standard_normal(count).astype(np.float32).view(np.uint32)
    special = np.array([0, 0x80000000, 0x7F800000, 0xFFC00000, 0x4FFFA000, 0x2FFFDFFF], np.uint32)
    at = random.integers(0, count, count // 50)
    bits[at] = random.choice(special, at.size)
    return bits


def binary(random: Random) -> Case:
    """Arguments of `elementwise.binary`."""
    region, count = _region(random)
    a, b, out = (codes(random, count) for _ in range(3))
    if flag(random):
        out = a if flag(random) else b
    return (int(random.integers(0, 6)), a, b, out.copy(), region, flag(random)), (3,)


def chain(random: Random) -> Case:
    """Arguments of `chains.chain` that meet no NINF: what they write is void where one does."""
    region, count = _region(random)
    sources = tuple(dlfloat.from_fp32(numbers(random, count)) for _ in range(6))
    limits = np.array([3.0, 6.0, np.inf], np.float32)
    links = [(LOAD, 0, int(random.integers(0, 6)), 0), (SPLAT, 1, int(random.integers(0, 2)), 0)]
    links += [(LOAD, 2, int(random.integers(0, 6)), 0)]
    for register in range(3, int(random.integers(4, 9))):
        operation = int(random.integers(elementwise.ADD, SCALE + 1))
        # of what is read: a product of results grows without bound, and one may be zero
        second = {RELU: int(random.integers(0, 3)), SCALE: 0, elementwise.DIV: 1}.get(operation)
        b = int(random.integers(0, 3)) if second is None else second
        links.append((operation, register, int(random.integers(0, register)), b))
    last = links[-1][1]
    links += [(STORE, 0, last, 0), (STORE, 0, int(random.integers(0, last)), 1)]
    channels = numbers(random, 2 * 64 * region[2]).reshape(2, -1)
    out, other = codes(random, count), codes(random, count)
    rows = np.array(links, np.int64)
    return (rows, sources, out, other, limits, channels, region), (2, 3)


def lookup(random: Random) -> Case:
    """Arguments of `elementwise.lookup`."""
    region, count = _region(random)
    table = random.permutation(np.arange(65536, dtype=np.uint16))
    return (table, codes(random, count), codes(random, count), region), (2,)


def _region(random: Random) -> tuple[tuple[int, int, int, int, int], int]:
    dims = sizes(random, (3, 3, 65, 129))
    d4, d3, d2, d1 = dims
    columns = -(-d1 // 64)
    per_column = d4 * d3 if flag(random) else d3
    region = d4 * d3 * columns, per_column, columns, d2, d1 - 64 * (columns - 1)
    return region, page_count(dims) * 2048


def stickify_fp32(random: Random) -> Case:
    """Arguments of `sticks.stickify_fp32` and `planar.stickify_nchw`."""
    dims = sizes(random, (3, 3, 65, 129))
    buffer, pages = tensor(random, dims, flag(random))
    limit = convert.LINE_HIGH32 if flag(random) else convert.MAX32
    return (words_of(random, int(np.prod(dims))), buffer, dims, pages, limit, flag(random)), (1,)


def unstickify_fp32(random: Random) -> Case:
    """Arguments of `sticks.unstickify_fp32` and `planar.unstickify_nchw`."""
    dims = sizes(random, (3, 3, 65, 129))
    buffer, pages = tensor(random, dims, flag(random))
    return (buffer, np.zeros(int(np.prod(dims)), np.uint32), dims, pages), (1,)


def stickify_table(random: Random) -> Case:
    """Arguments of `sticks.stickify_table`."""
    dims = sizes(random, (3, 3, 65, 129))
    buffer, pages = tensor(random, dims)
    kind = DataTypes.FP16 if flag(random) else DataTypes.BFLOAT
    table = tables.from_bits(kind, flag(random))
    source = random.integers(0, 65536, int(np.prod(dims)), np.uint16)
    return (source, table, buffer, dims, pages, flag(random)), (2,)


def unstickify_table(random: Random) -> Case:
    """Arguments of `sticks.unstickify_table`."""
    dims = sizes(random, (3, 3, 65, 129))
    buffer, pages = tensor(random, dims)
    table = tables.to_bits(DataTypes.FP16 if flag(random) else DataTypes.BFLOAT)
    return (buffer, table, np.zeros(int(np.prod(dims)), np.uint16), dims, pages), (2,)


def stickify_copy(random: Random) -> Case:
    """Arguments of `sticks.stickify_copy`."""
    buffer, line, dims, pages = _copied(random)
    return (line, buffer, dims, pages, flag(random)), (1,)


def unstickify_copy(random: Random) -> Case:
    """Arguments of `sticks.unstickify_copy`."""
    buffer, line, dims, pages = _copied(random)
    return (buffer, line, dims, pages), (1,)


def _copied(random: Random) -> tuple[Any, Any, Dims, Pages]:
    dims, dtype = sizes(random, (3, 3, 65, 129)), np.dtype(f"u{random.choice([1, 2, 4])}")
    cells = 128 // dtype.itemsize
    buffer = random.bytes(page_count(dims, cells) * 4096)
    line = random.bytes(int(np.prod(dims)) * dtype.itemsize)
    sticks, cells_of = (np.frombuffer(part, dtype).copy() for part in (buffer, line))
    return sticks, cells_of, dims, pages_of(dims, cells, kernel=flag(random))


def find_codes(random: Random) -> Case:
    """Arguments of `scan.find_codes`."""
    cells, dim1 = code_range(random)[0]
    least = int(random.choice([0x7FFF, 0x7F00, 0x4000, 0]))
    return (cells, dim1, least, np.zeros((8, 4), np.int64)), (3,)


def code_range(random: Random) -> Case:
    """Arguments of `scan.code_range`."""
    dims = sizes(random, (3, 3, 65, 129))
    buffer, pages = tensor(random, dims)
    shape = dims[0], -(-dims[3] // 64), dims[1], dims[2], 64
    strides = (*(4096 * count for count in pages), 128, 2)
    return (np.lib.stride_tricks.as_strided(buffer, shape, strides), dims[3]), ()


def stickify_quantized(random: Random) -> Case:
    """Arguments of `integers.stickify_quantized`."""
    dims = sizes(random, (3, 3, 65, 129))
    values = words_of(random, int(np.prod(dims))).view(np.float32)
    buffer = np.full(page_count(dims, 128) * 4096, 7, np.int8)
    scale = np.array([random.choice([1, 12.5, 0]), random.choice([0, 3, -100.5])], np.float32)
    limits = np.array([[-128, 127], [0, 0], [-3, 100]][random.integers(0, 3)], np.float32)
    return (values, buffer, dims, pages_of(dims, 128), scale, limits, flag(random)), (1,)


def stickify_weights(random: Random) -> Case:
    """Arguments of `integers.stickify_weights`."""
    dims = sizes(random, (3, 1, 65, 129))
    line = random.integers(0, 256, int(np.prod(dims)), np.uint8)
    buffer = np.zeros(page_count(dims, 64, 2) * 4096, np.uint8)
    return (line, buffer, dims, pages_of(dims, 64, 2)), (1,)


def unstickify_weights(random: Random) -> Case:
    """Arguments of `integers.unstickify_weights`."""
    dims = sizes(random, (3, 1, 65, 129))
    buffer = random.integers(0, 256, page_count(dims, 64, 2) * 4096, np.uint8)
    return (buffer, np.zeros(int(np.prod(dims)), np.uint8), dims, pages_of(dims, 64, 2)), (1,)


def softmax(random: Random) -> Case:
    """Arguments of `activation.softmax`."""
    dims = sizes(random, (3, 1, 33, 129))
    buffer, pages = tensor(random, dims)
    count = int(random.integers(1, dims[3] + 1))
    return (buffer, codes(random, buffer.size), dims, pages, count, flag(random)), (1,)


def scale(random: Random) -> Case:
    """Arguments of `normalization.scale`."""
    dims = sizes(random, (3, 3, 33, 129))
    buffer, pages = tensor(random, dims)
    factors, added = (dlfloat.to_fp32(codes(random, dims[3])) for _ in range(2))
    return (buffer, codes(random, buffer.size), dims, pages, factors, added), (1,)


def distances(random: Random) -> Case:
    """Arguments of `normalization.distances`."""
    dims = sizes(random, (3, 1, 33, 129))
    buffer, pages = tensor(random, dims)
    results = np.zeros(dims[0] * dims[2])
    return (buffer, codes(random, buffer.size), dims, pages, results), (4,)


def moments(random: Random) -> Case:
    """Arguments of `normalization.moments`."""
    dims = sizes(random, (9, 3, 33, 129))
    buffer, pages = tensor(random, dims)
    bessel = int(flag(random) and dims[1:] != (1, 1, 1))
    return (buffer, dims, pages, bessel, np.zeros(2 * dims[0])), (4,)


def vectors(random: Random) -> Case:
    """Arguments of `layer_normalization.layer_normalization` that meet no NINF, else as `chain`."""
    d4, d3, d2, width = sizes(random, (3, 3, 33, 129))
    width = max(width, 3)
    source, target = (d4, d3, d2, width), (d4 * d3 * d2, 1, 1, width)
    buffer, pages = tensor(random, source)
    buffer[:] = dlfloat.from_fp32(numbers(random, buffer.size))
    out, out_pages = tensor(random, target)
    scalars = np.array([random.standard_normal(), random.standard_normal(), 0.5])
    factors, added = (numbers(random, width if flag(random) else 0) for _ in range(2))
    return (buffer, source, pages, out, target, out_pages, scalars, factors, added), (3,)


def standardise(random: Random) -> Case:
    """Arguments of `normalization.standardise`."""
    dims = sizes(random, (3, 3, 33, 129))
    buffer, pages = tensor(random, dims)
    means, factors = random.standard_normal((2, dims[0]))
    factors[0] = np.nan if flag(random) else 0
    out, added = codes(random, buffer.size), float(random.standard_normal())
    return (buffer, out, dims, pages, means, factors, added, flag(random)), (1,)


def extremes(random: Random) -> Case:
    """Arguments of `normalization.extremes`."""
    dims = sizes(random, (3, 3, 33, 129))
    buffer, pages = tensor(random, dims)
    count = dims[0] * dims[1] * dims[2]
    outputs = np.zeros(count, np.uint16), np.zeros(count, np.int32)
    return (buffer, dims, pages, flag(random), *outputs), (4, 5)


def pooling(random: Random) -> Case:
    """Arguments of `pooling.average` and `pooling.maximum`."""
    dims = sizes(random, (3, 17, 33, 129))
    buffer, pages = tensor(random, dims)
    axes = [_windows(random, dims[1], 8), _windows(random, dims[2], 8)]
    (height, step3, above, o3), (width, step2, left, o2) = axes
    target = dims[0], o3, o2, dims[3]
    out = codes(random, page_count(target) * 2048)
    window = height, width, step3, step2, above, left
    return (buffer, out, dims, pages, target, pages_of(target), window), (1,)


def _windows(random: Random, size: int, most: int) -> tuple[int, int, int, int]:
    """Draw size, stride and padding of windows over a dimension, and their number."""
    window, stride = int(random.integers(1, min(size, most) + 1)), int(random.integers(1, 4))
    if flag(random):
        return window, stride, 0, (size - window) // stride + 1
    count = -(-size // stride)
    return window, stride, max((count - 1) * stride + window - size, 0) // 2, count


def clear_feature(random: Random) -> Case:
    """Arguments of `padding.clear_padding`."""
    dims = sizes(random, (3, 3, 65, 129))
    buffer, pages = tensor(random, dims)
    return (buffer, dims, pages), (0,)


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
    wanted = int(random.integers(1, 7))
    return (sums, operand, tensor(random, dims)[0], place, rows, columns, wanted), (2,)


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
    wanted = int(random.choice([0, 0, 4, 6, 2, 5, 3, 1]))
    shape, work = (of_a, of_b, of_c, stacks, rows, inner, columns), np.zeros(matmul.WORK)
    others = c.view(np.uint8), output.view(np.uint8), shape, turned, wanted
    return (*operands, np.empty(0, np.float32), *others, work.astype(np.float32)), (4,)


def _sliding(random: Random) -> tuple[Dims, Dims, tuple[int, int, int, int], Tile]:
    """Draw the dims of an input and of a kernel, how windows slide, and a tile of them."""
    dims = sizes(random, (3, 17, 17, 65))
    down, across = _windows(random, dims[1], 3), _windows(random, dims[2], 3)
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


def round_sums(random: Random) -> Case:
    """Arguments of `recurrent.round_sums`."""
    width = int(random.integers(1, 70))
    sums = random.standard_normal(5 * width).astype(np.float32) * np.float32(10)
    sums[0] = random.choice([np.nan, 1e11, 0])
    return (sums, numbers(random, width)), (0,)


def round_doubles(random: Random) -> Case:
    """Arguments of `recurrent.round_doubles`."""
    sums, bias = round_sums(random)[0]
    return (sums.astype(np.float64), bias, np.zeros(sums.size, np.float32)), (2,)


def _step(
    random: Random, gates: int
) -> tuple[list[Any], tuple[int, int], Codes, tuple[int, int, int]]:
    _, _, rows, hidden = sizes(random, (1, 1, 33, 129))
    widths = [hidden, -(-hidden // 64) * 64]
    wide, narrow = (int(random.choice(widths)) for _ in range(2))
    dense = [numbers(random, rows * gates * width) for width in (wide, narrow)]
    out, pages = tensor(random, (1, 1, rows, hidden))
    return dense, (wide, narrow), out, (rows, hidden, pages[1] * 2048)


def lstm_step(random: Random) -> Case:
    """Arguments of `recurrent.lstm_step`."""
    dense, widths, out, (rows, hidden, column) = _step(random, 4)
    h, c = np.zeros(rows * hidden, np.float32), numbers(random, rows * hidden)
    c[0] = np.nan if random.integers(0, 4) == 0 else 0
    places = ((0, column), (0 if flag(random) else -1, column))
    sizes_of = rows, hidden, *widths
    return (*dense, h, c, sizes_of, out, places[0], out.copy(), places[1]), (2, 3, 5, 7)


def gru_step(random: Random) -> Case:
    """Arguments of `recurrent.gru_step`."""
    dense, widths, out, (rows, hidden, column) = _step(random, 3)
    h, place = numbers(random, rows * hidden), (0 if flag(random) else -1, column)
    return (*dense, h, (rows, hidden, *widths), out, place), (2, 4)


def gate_panels(random: Random) -> Case:
    """Arguments of `recurrent_layers.gate_panels`."""
    _, _, rows, hidden = sizes(random, (1, 1, 33, 129))
    gates, start = int(random.integers(3, 5)), int(random.integers(0, 5))
    buffer = matrix(random, 1, rows, gates * -(-hidden // 64) * 64)
    size = start + rows * gates * -(-hidden // 16) * 16
    panels = np.zeros(size, np.uint32)
    return (buffer.view(np.uint8), panels, start, rows, hidden, gates), (1,)


def _layer(random: Random) -> tuple[tuple[int, int, int, int, int], int]:
    _, timesteps, batch, hidden = sizes(random, (1, 3, 33, 65))
    features, gates = int(random.choice([1, 17, 65])), int(random.integers(3, 5))
    return (timesteps, batch, features, hidden, gates), gates * -(-hidden // 16) * 16


def _gates(random: Random, rows: int, hidden: int, gates: int) -> Codes:
    """Draw weights or biases; sums stay in range nearly always."""
    kind, width = random.integers(0, 5), -(-hidden // 64) * 64
    cells = matrix(random, 1, rows, gates * width)
    if kind == 0:
        return cells
    drawn = dlfloat.from_fp32(random.standard_normal(cells.size).astype(np.float32))
    if kind != 1:
        drawn.reshape(gates, width // 64, -1, 64)[:, -1, :, (hidden - 1) % 64 + 1 :] = 0
    return drawn


def _panels(random: Random, rows: int, shape: tuple[int, int, int, int, int], width: int) -> Any:
    dense = np.zeros(rows * width + 1, np.float32)
    buffer = _gates(random, rows, shape[3], shape[4]).view(np.uint8)
    dense[-1] = reference.gate_panels(buffer, dense.view(np.uint32), 0, rows, shape[3], shape[4])
    return dense


def fuse(random: Random) -> Case:
    """Arguments of `recurrent_layers.fuse`."""
    shape, width = _layer(random)
    timesteps, batch, features, hidden, gates = shape
    source = matrix(random, timesteps, batch, features).view(np.uint8)
    biases = _gates(random, 1, hidden, gates).view(np.uint8)
    fused = np.zeros(timesteps * batch * width, np.uint16)
    work = np.zeros(layers.LEFT + layers.TILE + width, np.float32)
    return (source, _panels(random, features, shape, width), biases, fused, shape, work), (3,)


def run_layer(random: Random) -> Case:
    """Arguments of `recurrent_layers.run_layer`."""
    shape, width = _layer(random)
    timesteps, batch, _, hidden, gates = shape
    numbers_of = random.standard_normal(timesteps * batch * width).astype(np.float32)
    biases = _gates(random, 1, hidden, gates).view(np.uint8)
    states = [matrix(random, 1, batch, hidden).view(np.uint8) for _ in range(2)]
    if gates == 3:
        states[1] = states[0]
    halves, units = 1 + int(flag(random)), -(-hidden // 16) * 16
    across = -(-hidden // 64)
    every = timesteps if flag(random) else 1
    outputs = [matrix(random, n, batch, halves * across * 64).view(np.uint8) for n in (every, 1)]
    target = every, 1, halves * across, across * int(random.integers(0, halves))
    work = np.zeros(layers.TILE + width + 2 * batch * (units + 16), np.float32)
    new = np.zeros(2 * batch * units, np.uint16)
    weights_of = _panels(random, hidden, shape, width)
    fused = dlfloat.from_fp32(numbers_of)
    probing = random.integers(0, 5) == 0
    given = fused, weights_of, biases, *states, *outputs, shape, target, flag(random), bool(probing)
    return (*given, work, new), (5, 6)


def encode_fp64(random: Random) -> Case:
    """Arguments of `convert.encode_fp64`."""
    values = np.ldexp(random.standard_normal(300), random.integers(-40, 41, 300))
    values[:4] = random.choice([np.nan, np.inf, -np.inf, -0.0], 4)
    return (values.view(np.uint64), np.zeros(300, np.uint16)), (1,)


def depthwise(random: Random) -> Case:
    """Images, windows that reach beyond them, and now and then a number that is none."""
    n, height, width, channels = (int(random.integers(1, most)) for most in (3, 8, 8, 150))
    kernel = tuple(int(size) for size in random.integers(1, 6, 2))
    strides, dilations = ([int(size) for size in random.integers(1, 4, 2)] for _ in range(2))
    before = [int(size) for size in random.integers(0, 5, 2)]
    sizes = tuple(int(size) for size in random.integers(1, 8, 2))
    source = singles(random, n * height * width * channels)
    weights, bias = singles(random, kernel[0] * kernel[1] * channels), singles(random, channels)
    out = singles(random, n * sizes[0] * sizes[1] * channels)
    window = (*kernel, *strides, *before, *dilations)
    return (source, weights, bias, out, (n, height, width, channels), sizes, window), (3,)


def singles(random: Random, count: int) -> npt.NDArray[np.float32]:
    """Draw FP32 values, now and then with some that are special."""
    values = (4 * random.standard_normal(count)).astype(np.float32)
    if flag(random):
        at = random.integers(0, count, 1 + count // 50)
        values[at] = random.choice(np.array([0, -0.0, np.inf, np.nan, 3e38, 1e-44]), at.size)
    return values


def hard_sigmoid(random: Random) -> Case:
    """A line of numbers."""
    source = singles(random, int(random.integers(1, 200)))
    alpha, beta = random.uniform(0, 1, 2).astype(np.float32)
    return (source, source.copy(), alpha, beta), (1,)


def hard_swish(random: Random) -> Case:
    """A line of numbers."""
    source = singles(random, int(random.integers(1, 200)))
    return (source, source.copy()), (1,)


def compared(random: Random) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Lines of numbers, most of them a little apart, and now and then some that are special."""
    line = singles(random, int(random.integers(1, 400)))
    apart = np.exp2(random.uniform(-14, 0)) * random.standard_normal(line.size)
    with np.errstate(all="ignore"):
        got = (line + line * apart * (random.random(line.size) < 0.8)).astype(np.float32)
    at = random.integers(0, line.size, 1 + line.size // 50)
    got[at] = singles(random, at.size)
    return got, line


def tally(random: Random) -> Case:
    """Arguments of `comparison.tally`."""
    return (*compared(random), np.empty(8), np.empty(9, np.int64)), (2, 3)


def row_errors(random: Random) -> Case:
    """Arguments of `comparison.row_errors`; a row of zeros beside zeros has none."""
    got, line = compared(random)
    rows = int(random.integers(1, 1 + got.size))
    size = rows * (got.size // rows)
    got, line = got[:size], line[:size]
    if flag(random):
        got[: size // rows] = line[: size // rows] = 0
    return (got, line, np.empty(rows)), (2,)


def classes(random: Random) -> Case:
    """Arguments of `comparison.classes`: equal ones, NaN, and rows without a number."""
    rows, size = (int(random.integers(1, most)) for most in (30, 70))
    values = random.integers(-9, 9, (rows, size)).astype(np.float32)
    values[random.random((rows, size)) < random.choice([0, 0.05, 0.5])] = np.nan
    values[0] = random.choice(np.array([np.nan, -np.inf, np.inf], np.float32), size)
    return (values.reshape(-1), np.empty(rows, np.int64)), (1,)


CASES: dict[str, Callable[[Random], Case]] = {
    "activation.softmax": softmax,
    "chains.chain": chain,
    "comparison.classes": classes,
    "comparison.row_errors": row_errors,
    "comparison.tally": tally,
    "convert.encode_fp64": encode_fp64,
    "convolution_matrices.store_fp64": store_fp64,
    "convolution_matrices.weights": weights,
    "convolution_matrices.windows": windows,
    "convolution.correlate": correlate,
    "convolution.panels": panels,
    "convolution.patch": patch,
    "elementwise.binary": binary,
    "elementwise.lookup": lookup,
    "host_operators.depthwise": depthwise,
    "host_operators.hard_sigmoid": hard_sigmoid,
    "host_operators.hard_swish": hard_swish,
    "integers.stickify_quantized": stickify_quantized,
    "integers.stickify_weights": stickify_weights,
    "integers.unstickify_weights": unstickify_weights,
    "layer_normalization.layer_normalization": vectors,
    "recurrent_layers.fuse": fuse,
    "recurrent_layers.gate_panels": gate_panels,
    "recurrent_layers.run_layer": run_layer,
    "matmul_blocks.clear_padding": clear_matrices,
    "matmul_blocks.decode_block": decode_block,
    "matmul_blocks.store_codes": store_codes,
    "matmul_blocks.store_relations": store_relations,
    "normalization.distances": distances,
    "normalization.extremes": extremes,
    "normalization.moments": moments,
    "normalization.scale": scale,
    "normalization.standardise": standardise,
    "padding.clear_padding": clear_feature,
    "planar.stickify_nchw": stickify_fp32,
    "planar.unstickify_nchw": unstickify_fp32,
    "pooling.average": pooling,
    "pooling.maximum": pooling,
    "matmul.all_panels": all_panels,
    "matmul.multiply": multiply,
    "quantized.column_sums": column_sums,
    "quantized.decode_bytes": decode_bytes,
    "quantized.decode_weights": decode_weights,
    "quantized.finish": finish,
    "quantized.lane_sums": lane_sums,
    "quantized.quantize": quantize,
    "quantized.row_sums": row_sums,
    "recurrent.gru_step": gru_step,
    "recurrent.lstm_step": lstm_step,
    "recurrent.round_doubles": round_doubles,
    "recurrent.round_sums": round_sums,
    "scan.code_range": code_range,
    "scan.find_codes": find_codes,
    "sticks.stickify_copy": stickify_copy,
    "sticks.stickify_fp32": stickify_fp32,
    "sticks.stickify_table": stickify_table,
    "sticks.unstickify_copy": unstickify_copy,
    "sticks.unstickify_fp32": unstickify_fp32,
    "sticks.unstickify_table": unstickify_table,
}
