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

import numpy as np

from nnpa_emulator.kernels.convert import (
    MAGNITUDE16,
    Codes,
    decode,
    encode_result,
    kernel,
)

Region = tuple[int, int, int, int, int]

ADD, SUB, MUL, DIV, MIN, MAX = range(6)
"""Operation numbers of `binary`."""

NINF16 = np.uint16(0x7FFF)


@kernel
def binary(operation: int, a: Codes, b: Codes, out: Codes, region: Region) -> np.uint16:
    """Combine two stick buffers cell by cell; return the largest magnitude of the result.

    A NINF operand and a division by zero give 7FFF, an overflow NINF of its own sign, an underflow
    a zero of its own sign; minimum and maximum take -0 as less than +0.
    """
    planes, per_column, columns, rows, last = region
    if rows % 32 == 0 and last == 64:
        return binary_run(operation, a, b, out)
    largest = np.uint16(0)
    size = (rows + 31) // 32 * 2048
    for plane in range(planes):
        real = last if plane // per_column % columns == columns - 1 else 64
        width, count = (rows * 64, 1) if real == 64 else (real, rows)
        for row in range(count):
            at = plane * size + row * 64
            end = at + width
            met = binary_run(operation, a[at:end], b[at:end], out[at:end])
            largest = max(largest, met)
            if real < 64:
                out[end : at + 64] = 0
        out[plane * size + rows * 64 : (plane + 1) * size] = 0
    return largest


@kernel
def binary_run(operation: int, a: Codes, b: Codes, out: Codes) -> np.uint16:
    """Combine two runs of codes; return the largest magnitude of the result."""
    if operation == ADD:
        for i in range(out.size):
            out[i] = encode_result(np.float32(decode(a[i]) + decode(b[i])))
    elif operation == SUB:
        for i in range(out.size):
            out[i] = encode_result(np.float32(decode(a[i]) - decode(b[i])))
    elif operation == MUL:
        for i in range(out.size):
            out[i] = encode_result(np.float32(decode(a[i]) * decode(b[i])))
    elif operation == DIV:
        for i in range(out.size):
            out[i] = _divide(a[i], b[i])
    elif operation == MIN:
        for i in range(out.size):
            out[i] = _select(a[i], b[i], np.int16(-1))
    else:
        for i in range(out.size):
            out[i] = _select(a[i], b[i], np.int16(0))
    return largest_magnitude(out)


@kernel
def _divide(a: np.uint16, b: np.uint16) -> np.uint16:
    """Divide two codes; anything by zero is 7FFF."""
    divisor = np.uint16(b & MAGNITUDE16)
    safe = np.float32(1) if divisor == 0 else decode(b)
    quotient = encode_result(np.float32(decode(a) / safe))
    return NINF16 if divisor == 0 else quotient


@kernel
def _select(a: np.uint16, b: np.uint16, flip: np.int16) -> np.uint16:
    """Return the greater of two codes, or with `flip` -1 the lesser; NINF wins as 7FFF."""
    x, y = np.int16(a), np.int16(b)
    left = np.int16((x ^ (np.int16(x >> 15) & np.int16(0x7FFF))) ^ flip)
    right = np.int16((y ^ (np.int16(y >> 15) & np.int16(0x7FFF))) ^ flip)
    chosen = a if left >= right else b
    symbol = np.uint16(a & MAGNITUDE16) == NINF16 or np.uint16(b & MAGNITUDE16) == NINF16
    return NINF16 if symbol else chosen


@kernel
def largest_magnitude(codes: Codes) -> np.uint16:
    """Return the largest magnitude of a run of codes: 7FFF says that NINF is among them."""
    largest = np.uint16(0)
    for i in range(codes.size):
        largest = np.uint16(max(largest, np.uint16(codes[i] & MAGNITUDE16)))
    return largest


@kernel
def lookup(table: Codes, codes: Codes, out: Codes, region: Region) -> np.uint16:
    """Replace every code by its entry in a table of 65 536; return the largest magnitude met."""
    planes, per_column, columns, rows, last = region
    if rows % 32 == 0 and last == 64:
        return lookup_run(table, codes, out)
    largest = np.uint16(0)
    size = (rows + 31) // 32 * 2048
    for plane in range(planes):
        real = last if plane // per_column % columns == columns - 1 else 64
        width, count = (rows * 64, 1) if real == 64 else (real, rows)
        for row in range(count):
            at = plane * size + row * 64
            end = at + width
            largest = max(largest, lookup_run(table, codes[at:end], out[at:end]))
            if real < 64:
                out[end : at + 64] = 0
        out[plane * size + rows * 64 : (plane + 1) * size] = 0
    return largest


@kernel
def lookup_run(table: Codes, codes: Codes, out: Codes) -> np.uint16:
    """Replace a run of codes by their table entries; return the largest magnitude stored."""
    largest = np.uint16(0)
    for i in range(out.size):
        entry = table[codes[i]]
        largest = np.uint16(max(largest, np.uint16(entry & MAGNITUDE16)))
        out[i] = entry
    return largest
