# SPDX-License-Identifier: Apache-2.0
"""Operands of kernels, drawn from a seeded generator."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from nnpa_emulator import dlfloat

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


def draw_window(random: Random, size: int, most: int) -> tuple[int, int, int, int]:
    """Draw size, stride and padding of windows over a dimension, and their number."""
    window, stride = int(random.integers(1, min(size, most) + 1)), int(random.integers(1, 4))
    if flag(random):
        return window, stride, 0, (size - window) // stride + 1
    count = -(-size // stride)
    return window, stride, max((count - 1) * stride + window - size, 0) // 2, count


def singles(random: Random, count: int) -> npt.NDArray[np.float32]:
    """Draw FP32 values, now and then with some that are special."""
    values = (4 * random.standard_normal(count)).astype(np.float32)
    if flag(random):
        at = random.integers(0, count, 1 + count // 50)
        values[at] = random.choice(np.array([0, -0.0, np.inf, np.nan, 3e38, 1e-44]), at.size)
    return values
