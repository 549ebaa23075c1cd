# SPDX-License-Identifier: Apache-2.0
"""Element by element on sticks: operations of two tensors, and unary functions by table.

`ops.elementwise` has the formulas, on FP32 arrays. Their results are rounded to DLFLOAT16 at the
end, which is one rounding; see `kernels.elementwise` for the proof.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from nnpa_emulator import dlfloat
from nnpa_emulator.reference.layout import CELLS, STICKS, Codes, Singles
from nnpa_emulator.ztensor import DataFormats, TensorDesc

Region: TypeAlias = tuple[int, int, int, int, int]
"""Planes, planes per stick column, stick columns, rows, cells in the last column."""
Formula: TypeAlias = Callable[[Singles, Singles], Singles]
"""What an operation computes of the elements of its two operands."""

FORMULAS: dict[int, Formula] = {}
"""The formulas of `binary` by the number of the operation; `ops.elementwise` sets them down."""


@lru_cache(maxsize=1024)
def region_of(desc: TensorDesc) -> Region:
    """Describe the real cells of a DLFLOAT16 tensor in memory order."""
    d4, d3, d2, d1 = desc.dims
    columns = -(-d1 // CELLS)
    kernel = desc.format == DataFormats.ZDNN_FORMAT_4DKERNEL
    return d4 * d3 * columns, d4 * d3 if kernel else d3, columns, d2, d1 - CELLS * (columns - 1)


def binary(
    operation: int, a: Codes, b: Codes, out: Codes, region: Region, fresh: bool
) -> np.uint16:
    """Apply a formula to the elements of two operands; see `kernels.elementwise.binary`."""
    x, y = dlfloat.to_fp32(read(a, region)), dlfloat.to_fp32(read(b, region))
    with np.errstate(all="ignore"):
        results = FORMULAS[operation](x, y)
    return _write(dlfloat.result_from_fp32(results), out, region, fresh)


def lookup(table: Codes, codes: Codes, out: Codes, region: Region) -> np.uint16:
    """Replace every code by its entry in a table; see `kernels.elementwise.lookup`."""
    return _write(table[read(codes, region)], out, region, False)


def planes_of(cells: Codes, region: Region) -> Codes:
    """View the cells of a region as (column groups, columns, planes per column, rows, 64)."""
    planes, per_column, columns, rows, _ = region
    height = -(-rows // STICKS) * STICKS
    shape = planes // (per_column * columns), columns, per_column, height, CELLS
    return cells[: planes * height * CELLS].reshape(shape)


def read(cells: Codes, region: Region) -> Codes:
    """Copy the rows of a region; cells behind the last column come along as zero."""
    codes = planes_of(cells, region)[..., : region[3], :].copy()
    codes[:, -1, ..., region[4] :] = 0
    return codes


def _write(codes: Codes, out: Codes, region: Region, fresh: bool) -> np.uint16:
    """Store results, with zeros behind the rows unless `fresh`; return their largest magnitude."""
    codes[:, -1, ..., region[4] :] = 0
    target, rows = planes_of(out, region), region[3]
    target[..., :rows, :] = codes
    if not fresh:
        target[..., rows:, :] = 0
    return dlfloat.largest(codes)
