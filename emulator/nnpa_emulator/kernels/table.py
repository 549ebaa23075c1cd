# SPDX-License-Identifier: Apache-2.0
"""Run the calls of kernels that a table holds one after the other, without Python in between.

A row is (number of its kernel, cells of the row, limit, operands): what the kernel returns is below
the limit if the row comes out clean. Operands are in the order of the kernel's parameters: an array
is its address and size, a tuple its numbers, FP32 its bits. See `nnpa_emulator.table`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from nnpa_emulator.kernels.activation import softmax
from nnpa_emulator.kernels.convert import as_float
from nnpa_emulator.kernels.convolution import correlate, patch
from nnpa_emulator.kernels.convolution_matrices import windows
from nnpa_emulator.kernels.elementwise import binary, lookup
from nnpa_emulator.kernels.jit import implements, inlined, kernel, kernel_in
from nnpa_emulator.kernels.layer_normalization import layer_normalization
from nnpa_emulator.kernels.matmul import multiply
from nnpa_emulator.kernels.normalization import scale
from nnpa_emulator.kernels.planar import stickify_nchw, unstickify_nchw
from nnpa_emulator.kernels.pooling import average, maximum
from nnpa_emulator.kernels.sticks import (
    stickify_copy,
    stickify_fp32,
    unstickify_copy,
    unstickify_fp32,
)
from nnpa_emulator.reference import table as reference
from nnpa_emulator.reference.layout import Dims, Pages
from nnpa_emulator.reference.table import Cells

NAMES = (
    "binary", "lookup", "scale", "softmax", "layer_normalization", "stickify_fp32", "stickify_nchw",
    "unstickify_fp32", "unstickify_nchw", "stickify_copy", "unstickify_copy", "patch", "windows",
    "correlate", "multiply", "average", "maximum",
)  # fmt: skip
"""Names of the kernels by the number of their rows."""
(BINARY, LOOKUP, SCALE, SOFTMAX, LAYER_NORMALIZATION, STICKIFY_FP32, STICKIFY_NCHW,
 UNSTICKIFY_FP32, UNSTICKIFY_NCHW, STICKIFY_COPY, UNSTICKIFY_COPY, PATCH, WINDOWS, CORRELATE,
 MULTIPLY, AVERAGE, MAXIMUM) = range(len(NAMES))  # fmt: skip
BYTE, CODE, WORD, SINGLE, INDEX = np.uint8, np.uint16, np.uint32, np.float32, np.int64
"""Types of elements of operands."""
HEAD = 3
"""Cells of a row before its operands."""

_array: Callable[..., Any] = kernel_in("nnpa_emulator.kernels.addresses", "array_at")


@implements(reference.place)
def place(cells: Cells, at: int, array: npt.NDArray[Any]) -> None:
    """Write the address and the size of an array into two cells: NumPy takes ten times as long."""
    cells[at] = array.ctypes.data
    cells[at + 1] = array.size


@implements(reference.walk)
def walk(cells: Cells, first: int, end: int) -> int:
    """Run rows from one cell up to another; return where the first begins that is not clean."""
    at = first
    while at < end and _run(cells, cells[at], at + HEAD) < cells[at + 2]:
        at += cells[at + 1]
    return at


@kernel
def _run(c: Cells, number: int, at: int) -> np.int64:
    """Call the kernel of a row whose operands begin at a cell; return what it returns, or 0."""
    if number <= LAYER_NORMALIZATION:
        return _compute(c, number, at)
    if number <= UNSTICKIFY_COPY:
        return _move(c, number, at)
    if number <= CORRELATE:
        return _convolve(c, number, at)
    if number == MULTIPLY:
        a, b, panels = _array(c, at, BYTE), _array(c, at + 2, BYTE), _array(c, at + 4, SINGLE)
        added, out = _array(c, at + 6, BYTE), _array(c, at + 8, BYTE)
        shape, turned = (c[at + 10], *_six(c, at + 11)), (c[at + 17] != 0, c[at + 18] != 0)
        work = _array(c, at + 20, SINGLE)
        return np.int64(multiply(a, b, panels, added, out, shape, turned, c[at + 19], work))
    codes, dims, pages = _array(c, at, CODE), _four(c, at + 4), _three(c, at + 8)
    out, sizes, places = _array(c, at + 2, CODE), _four(c, at + 11), _three(c, at + 15)
    window = _six(c, at + 18)
    if number == AVERAGE:
        return np.int64(average(codes, out, dims, pages, sizes, places, window))
    return np.int64(maximum(codes, out, dims, pages, sizes, places, window))


@kernel
def _compute(c: Cells, number: int, at: int) -> np.int64:
    """Run a row of a function that works element by element or vector by vector."""
    if number == BINARY:
        a, b, out = _array(c, at + 1, CODE), _array(c, at + 3, CODE), _array(c, at + 5, CODE)
        return np.int64(binary(c[at], a, b, out, _five(c, at + 7), c[at + 12] != 0))
    a, b = _array(c, at, CODE), _array(c, at + 2, CODE)
    if number == LOOKUP:
        return np.int64(lookup(a, b, _array(c, at + 4, CODE), _five(c, at + 6)))
    dims, pages = _four(c, at + 4), _three(c, at + 8)
    if number == SCALE:
        factors, added = _array(c, at + 11, SINGLE), _array(c, at + 13, SINGLE)
        return np.int64(scale(a, b, dims, pages, factors, added))
    if number == SOFTMAX:
        return np.int64(softmax(a, b, dims, pages, c[at + 11], c[at + 12] != 0))
    beta, gamma, epsilon = _single(c, at + 11), _single(c, at + 12), _single(c, at + 13)
    return np.int64(layer_normalization(a, b, dims, pages, beta, gamma, epsilon))


@kernel
def _move(c: Cells, number: int, at: int) -> np.int64:
    """Run a row that moves elements into sticks or out of them."""
    dims, pages = _four(c, at + 4), _three(c, at + 8)
    if number <= STICKIFY_NCHW:
        words, sticks, limit = _array(c, at, WORD), _array(c, at + 2, CODE), np.uint32(c[at + 11])
        if number == STICKIFY_FP32:
            return np.int64(stickify_fp32(words, sticks, dims, pages, limit, c[at + 12] != 0)[0])
        return np.int64(stickify_nchw(words, sticks, dims, pages, limit, c[at + 12] != 0)[0])
    codes = _array(c, at, CODE)
    if number == UNSTICKIFY_FP32:
        return np.int64(unstickify_fp32(codes, _array(c, at + 2, WORD), dims, pages))
    if number == UNSTICKIFY_NCHW:
        return np.int64(unstickify_nchw(codes, _array(c, at + 2, WORD), dims, pages))
    target = _array(c, at + 2, CODE)
    if number == STICKIFY_COPY:
        stickify_copy(codes, target, dims, pages, c[at + 11] != 0)
    else:
        unstickify_copy(codes, target, dims, pages)
    return np.int64(0)


@kernel
def _convolve(c: Cells, number: int, at: int) -> np.int64:
    """Run a row of a convolution."""
    if number == CORRELATE:
        source, panels = _array(c, at, SINGLE), _array(c, at + 2, SINGLE)
        bias, out = _array(c, at + 4, SINGLE), _array(c, at + 6, CODE)
        places = _array(c, at + 8, INDEX)
        pages, tile, under = _three(c, at + 10), _six(c, at + 13), _three(c, at + 19)
        lattice, limits = _six(c, at + 22), (_single(c, at + 29), _single(c, at + 30))
        return np.int64(correlate(
            source, panels, bias, out, places, pages, tile, under, lattice, c[at + 28], limits
        ))  # fmt: skip
    codes, words = _array(c, at, CODE), _array(c, at + 2, WORD)
    dims, pages, slide = _four(c, at + 4), _three(c, at + 8), _four(c, at + 11)
    if number == PATCH:
        patch(codes, words, dims, pages, slide, _six(c, at + 15), (c[at + 21], c[at + 22]))
    else:
        windows(codes, words, dims, pages, slide, _six(c, at + 15), _five(c, at + 21))
    return np.int64(0)


@inlined
def _single(c: Cells, at: int) -> np.float32:
    return as_float(np.uint32(c[at]))


@inlined
def _three(c: Cells, at: int) -> Pages:
    return c[at], c[at + 1], c[at + 2]


@inlined
def _four(c: Cells, at: int) -> Dims:
    return c[at], c[at + 1], c[at + 2], c[at + 3]


@inlined
def _five(c: Cells, at: int) -> tuple[int, int, int, int, int]:
    return c[at], c[at + 1], c[at + 2], c[at + 3], c[at + 4]


@inlined
def _six(c: Cells, at: int) -> tuple[int, int, int, int, int, int]:
    return c[at], c[at + 1], c[at + 2], c[at + 3], c[at + 4], c[at + 5]
