# SPDX-License-Identifier: Apache-2.0
"""Element by element: add, sub, mul, div, min, max, and unary functions by table.

Arithmetic is done in FP32 and rounded to DLFLOAT16 at the end, which is one rounding; see
`kernels.elementwise` for the proof, and for what a region is.
Source: zDNN API Reference 1.2.0, zdnn_add, zdnn_sub, zdnn_mul, zdnn_div, zdnn_min, zdnn_max.
"""

from typing import TypeAlias

import numpy as np

from nnpa_emulator import dlfloat
from nnpa_emulator.reference.layout import CELLS, MAGNITUDE, STICKS, Codes, Singles, largest
from nnpa_emulator.reference.rounding import NINF, from_single

Region: TypeAlias = tuple[int, int, int, int, int]
"""Planes, planes per stick column, stick columns, rows, cells in the last column."""

ADD, SUB, MUL, DIV, MIN, MAX = range(6)


def binary(
    operation: int, a: Codes, b: Codes, out: Codes, region: Region, fresh: bool
) -> np.uint16:
    """See `kernels.elementwise.binary`."""
    x, y = _elements(a, region), _elements(b, region)
    if operation in (MIN, MAX):
        return _store(_select(operation, x, y), out, region, fresh)
    with np.errstate(all="ignore"):
        results = _calculate(operation, dlfloat.to_fp32(x), dlfloat.to_fp32(y))
    return _store(from_single(results), out, region, fresh)


def _calculate(operation: int, a: Singles, b: Singles) -> Singles:
    """Calculate in FP32; a quotient by zero is not finite, which is NINF as a code."""
    if operation == ADD:
        return a + b
    if operation == SUB:
        return a - b
    return a * b if operation == MUL else a / b


def _select(operation: int, a: Codes, b: Codes) -> Codes:
    """Take the lesser or the greater, -0 being less than +0; a NINF operand gives 7FFF."""
    x, y = (codes.view(np.int16) for codes in (a, b))
    x, y = (number ^ (number >> 15 & np.int16(0x7FFF)) for number in (x, y))
    chosen = np.where((x <= y) if operation == MIN else (x >= y), a, b)
    ninf = (a & MAGNITUDE == NINF) | (b & MAGNITUDE == NINF)
    return np.where(ninf, NINF, chosen)


def lookup(table: Codes, codes: Codes, out: Codes, region: Region) -> np.uint16:
    """Replace every code by its entry in a table; see `kernels.elementwise.lookup`."""
    return _store(table[_elements(codes, region)], out, region, False)


def _planes(cells: Codes, region: Region) -> Codes:
    """View the cells of a region as (column groups, columns, planes per column, rows, 64)."""
    planes, per_column, columns, rows, _ = region
    height = -(-rows // STICKS) * STICKS
    shape = planes // (per_column * columns), columns, per_column, height, CELLS
    return cells[: planes * height * CELLS].reshape(shape)


def _elements(cells: Codes, region: Region) -> Codes:
    """Copy the rows of a region; cells behind the last column come along as zero."""
    codes = _planes(cells, region)[..., : region[3], :].copy()
    codes[:, -1, ..., region[4] :] = 0
    return codes


def _store(codes: Codes, out: Codes, region: Region, fresh: bool) -> np.uint16:
    """Store results, with zeros behind the rows unless `fresh`; return their largest magnitude."""
    codes[:, -1, ..., region[4] :] = 0
    target, rows = _planes(out, region), region[3]
    target[..., :rows, :] = codes
    if not fresh:
        target[..., rows:, :] = 0
    return largest(codes)
