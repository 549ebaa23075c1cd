# SPDX-License-Identifier: Apache-2.0
"""Arguments of kernels that fill, read and search sticks."""

from typing import Any

import numpy as np
import numpy.typing as npt
from nnpa_emulator.kernels import convert, tables
from nnpa_emulator.ztensor import DataTypes

from tests.emulator.kernel_draws import (
    Case,
    Dims,
    Pages,
    Random,
    flag,
    page_count,
    pages_of,
    sizes,
    tensor,
)


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


def encode_fp64(random: Random) -> Case:
    """Arguments of `convert.encode_fp64`."""
    values = np.ldexp(random.standard_normal(300), random.integers(-40, 41, 300))
    values[:4] = random.choice([np.nan, np.inf, -np.inf, -0.0], 4)
    return (values.view(np.uint64), np.zeros(300, np.uint16)), (1,)
