# SPDX-License-Identifier: Apache-2.0
"""Element-wise operations straight on DLFLOAT16 sticks, padding never read and written as zero.

A region describes the cells of a tensor in memory order: (planes, planes per stick column, stick
columns, rows, cells in the last column).  A plane is the pages of one (dim4, stick column, dim3).
Arithmetic is done in FP32 and rounded to DLFLOAT16 at the end.  That is one rounding: products of
two 10-bit significands have 20 bits and are exact in FP32; a sum is exact or lies closer to its
larger operand than any rounding boundary of DLFLOAT16; a quotient of 10-bit significands that is
not itself a boundary is at least 2^-21 (relative) away from one, and FP32 rounds within 2^-24.
Source: zDNN API Reference 1.2.0, zdnn_add, zdnn_sub, zdnn_mul, zdnn_div, zdnn_min, zdnn_max.
"""

from collections.abc import Callable

import numpy as np

from nnpa_emulator.kernels.convert import MAGNITUDE16, Codes
from nnpa_emulator.kernels.jit import implements, inlined, kernel, kernel_in
from nnpa_emulator.reference import elementwise as reference
from nnpa_emulator.reference.elementwise import Region

PAGE_CELLS = np.uintp(2048)
HALF_STICK = np.uintp(32)

ADD, SUB, MUL, DIV, MIN, MAX = range(6)
"""Operation numbers of `binary`."""

NINF16 = np.uint16(0x7FFF)

_arithmetic: Callable[..., np.uint16] = kernel_in("nnpa_emulator.kernels.cells", "combine")


@implements(reference.binary)
def binary(
    operation: int, a: Codes, b: Codes, out: Codes, region: Region, fresh: bool
) -> np.uint16:
    """Combine two stick buffers cell by cell; return the largest magnitude of the result.

    `fresh` says that the cells of `out` behind the last row are zero already.

    A NINF operand and a division by zero give 7FFF, an overflow NINF of its own sign, an underflow
    a zero of its own sign; minimum and maximum take -0 as less than +0.
    """
    planes, per_column, columns, rows, last = region
    if rows % 32 == 0 and last == 64:
        return _run(operation, a, b, out, np.uintp(0), np.uintp(planes * rows * 64))
    largest = np.uint16(0)
    size = (rows + 31) // 32 * 2048
    for plane in range(planes):
        real = last if plane // per_column % columns == columns - 1 else 64
        start, end = np.uintp(plane * size), np.uintp(plane * size + rows * 64)
        if real > 32:
            met = _run(operation, a, b, out, start, end)
        else:
            met = _run_narrow(operation, a, b, out, start, end)
        if real < 64:
            met = _clear_tails(out, start, end, np.uintp(real))
        if not fresh:
            out[end : np.uintp((plane + 1) * size)] = 0
        largest = np.uint16(max(largest, met))
    return largest


@kernel
def _run_narrow(
    operation: int, a: Codes, b: Codes, out: Codes, start: np.uintp, end: np.uintp
) -> np.uint16:
    """Combine the first half of every stick, as `_run` does."""
    largest = np.uint16(0)
    for stick in range(start, end, np.uintp(64)):
        cell = np.uintp(stick)
        met = _run(operation, a, b, out, cell, cell + HALF_STICK)
        largest = np.uint16(max(largest, met))
    return largest


@kernel
def _clear_tails(out: Codes, start: np.uintp, end: np.uintp, real: np.uintp) -> np.uint16:
    """Zero all but the first `real` cells of every stick; return the largest magnitude left."""
    largest = np.uint16(0)
    for stick in range(start, end, np.uintp(64)):
        for i in range(stick + real, stick + np.uintp(64)):
            out[i] = 0
    for i in range(start, end):
        largest = np.uint16(max(largest, np.uint16(out[i] & MAGNITUDE16)))
    return largest


@kernel
def _run(
    operation: int, a: Codes, b: Codes, out: Codes, start: np.uintp, end: np.uintp
) -> np.uint16:
    """Combine the cells from `start` up to `end`; return the largest magnitude of the result."""
    if operation < MIN:
        return _arithmetic(operation, a, b, out, start, end)
    largest = np.uint16(0)
    flip = np.int16(-1) if operation == MIN else np.int16(0)
    for i in range(start, end):
        code = _select(a[i], b[i], flip)
        largest = np.uint16(max(largest, np.uint16(code & MAGNITUDE16)))
        out[i] = code
    return largest


@kernel
def _select(a: np.uint16, b: np.uint16, flip: np.int16) -> np.uint16:
    """Return the greater of two codes, or with `flip` -1 the lesser; NINF wins as 7FFF."""
    x, y = np.int16(a), np.int16(b)
    left = np.int16((x ^ (np.int16(x >> 15) & np.int16(0x7FFF))) ^ flip)
    right = np.int16((y ^ (np.int16(y >> 15) & np.int16(0x7FFF))) ^ flip)
    chosen = a if left >= right else b
    magnitude = np.uint16(max(np.uint16(a & MAGNITUDE16), np.uint16(b & MAGNITUDE16)))
    return NINF16 if magnitude == NINF16 else chosen


@implements(reference.lookup)
def lookup(table: Codes, codes: Codes, out: Codes, region: Region) -> np.uint16:
    """Replace every code by its entry in a table of 65 536; return the largest magnitude met."""
    planes, per_column, columns, rows, last = region
    if rows % 32 == 0 and last == 64:
        return _look(table, codes, out, np.uintp(0), np.uintp(planes * rows * 64))
    largest = np.uint16(0)
    size = (rows + 31) // 32 * 2048
    for plane in range(planes):
        real = last if plane // per_column % columns == columns - 1 else 64
        width, count = (rows * 64, 1) if real == 64 else (real, rows)
        for row in range(count):
            at = plane * size + row * 64
            met = _look(table, codes, out, np.uintp(at), np.uintp(at + width))
            largest = np.uint16(max(largest, met))
            if real < 64:
                out[at + real : at + 64] = 0
        out[plane * size + rows * 64 : (plane + 1) * size] = 0
    return largest


@inlined
def _look(table: Codes, codes: Codes, out: Codes, start: np.uintp, end: np.uintp) -> np.uint16:
    """Replace the codes from `start` up to `end`; return the largest magnitude stored.

    A page is looked up, then searched: the search is vector code only in a loop of its own.
    """
    largest = np.uint16(0)
    for first in range(start, end, PAGE_CELLS):
        last = np.uintp(min(first + PAGE_CELLS, end))
        for i in range(first, last):
            out[i] = table[codes[i]]
        for i in range(first, last):
            largest = np.uint16(max(largest, np.uint16(out[i] & MAGNITUDE16)))
    return largest
