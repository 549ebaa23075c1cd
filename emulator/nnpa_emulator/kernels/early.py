# SPDX-License-Identifier: Apache-2.0
"""Kernels in NumPy, by the names of those that they stand for: same arguments, same bits.

They are for the first calls of a process, see `compilation`.
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nnpa_emulator import dlfloat
from nnpa_emulator.kernels import convert

Codes: TypeAlias = npt.NDArray[np.uint16]
Words: TypeAlias = npt.NDArray[np.uint32]
Cells: TypeAlias = npt.NDArray[Any]
Four: TypeAlias = tuple[int, int, int, int]
Pages: TypeAlias = tuple[int, int, int]
Region: TypeAlias = tuple[int, int, int, int, int]

_PAGE_BYTES, _STICK_BYTES, _STICKS = 4096, 128, 32
_ADD, _SUB, _MUL, _DIV, _MIN = range(5)
_SIGN = np.uint16(0x8000)


def stickify_fp32(
    words: Words, sticks: Codes, dims: Four, pages: Pages, limit: np.uint32, fresh: bool
) -> tuple[np.uint32, np.uint32]:
    """See `sticks.stickify_fp32`."""
    magnitudes = words & convert.MAGNITUDE32
    limits = np.where(magnitudes >= convert.INFINITY32, convert.LINE_HIGH32, limit)
    line = np.minimum(np.maximum(magnitudes, convert.LINE_LOW32), limits) - convert.ROUNDED_START32
    signs = words >> convert.HALF_WORD & convert.SIGN16
    codes = (line >> convert.DROPPED_BITS | signs).astype(np.uint16)
    _fill(sticks, codes.reshape(dims), pages, fresh)
    return np.uint32(magnitudes.max()), np.uint32((magnitudes - np.uint32(1)).min())


def stickify_nchw(
    words: Words, sticks: Codes, dims: Four, pages: Pages, limit: np.uint32, fresh: bool
) -> tuple[np.uint32, np.uint32]:
    """See `planar.stickify_nchw`."""
    d4, d3, d2, d1 = dims
    turned = words.reshape(d4, d1, d3, d2).transpose(0, 2, 3, 1).ravel()
    return stickify_fp32(turned, sticks, dims, pages, limit, fresh)


def unstickify_fp32(sticks: Codes, words: Words, dims: Four, pages: Pages) -> np.uint16:
    """See `sticks.unstickify_fp32`."""
    codes = _gather(sticks, dims, pages)
    words[:] = dlfloat.to_fp32(codes).view(np.uint32).ravel()
    return _largest(codes)


def unstickify_nchw(sticks: Codes, words: Words, dims: Four, pages: Pages) -> np.uint16:
    """See `planar.unstickify_nchw`."""
    codes = _gather(sticks, dims, pages)
    words[:] = dlfloat.to_fp32(codes).view(np.uint32).transpose(0, 3, 1, 2).ravel()
    return _largest(codes)


def stickify_table(
    source: Codes, table: Words, sticks: Codes, dims: Four, pages: Pages, fresh: bool
) -> np.uint32:
    """See `sticks.stickify_table`."""
    entries = table[source]
    _fill(sticks, entries.astype(np.uint16).reshape(dims), pages, fresh)
    return np.uint32(np.bitwise_or.reduce(entries) >> np.uint32(16))


def unstickify_table(
    sticks: Codes, table: Words, target: Codes, dims: Four, pages: Pages
) -> np.uint32:
    """See `sticks.unstickify_table`."""
    entries = table[_gather(sticks, dims, pages).ravel()]
    target[:] = entries.astype(np.uint16)
    return np.uint32(np.bitwise_or.reduce(entries) >> np.uint32(16))


def stickify_copy(source: Cells, sticks: Cells, dims: Four, pages: Pages, fresh: bool) -> None:
    """See `sticks.stickify_copy`."""
    _fill(sticks, source.reshape(dims), pages, fresh)


def unstickify_copy(sticks: Cells, target: Cells, dims: Four, pages: Pages) -> None:
    """See `sticks.unstickify_copy`."""
    target[:] = _gather(sticks, dims, pages).ravel()


def binary(
    operation: int, a: Codes, b: Codes, out: Codes, region: Region, fresh: bool
) -> np.uint16:
    """See `elementwise.binary`."""
    left, right = _real(a, region), _real(b, region)
    combine = _select if operation >= _MIN else _calculate
    return _store(combine(operation, left, right), out, region, fresh)


def lookup(table: Codes, codes: Codes, out: Codes, region: Region) -> np.uint16:
    """See `elementwise.lookup`."""
    return _store(table[_real(codes, region)], out, region, False)


def code_range(cells: Codes, dim1: int) -> tuple[np.uint16, np.uint16]:
    """See `scan.code_range`."""
    codes = _rows(cells, dim1)
    positive = np.where(codes & _SIGN, np.uint16(0), codes)
    return max(_SIGN, np.uint16(codes.max())), np.uint16(positive.max())


def find_codes(cells: Codes, dim1: int, least: int, found: npt.NDArray[np.int64]) -> int:
    """See `scan.find_codes`."""
    places = np.argwhere(_rows(cells, dim1) & convert.MAGNITUDE16 >= least)
    noted = places[: len(found)]
    found[: len(noted)] = noted
    return len(places)


def _calculate(operation: int, a: Codes, b: Codes) -> Codes:
    """Calculate in FP32 and round once; NaN, infinity and a division by zero are 7FFF."""
    x, y = dlfloat.to_fp32(a), dlfloat.to_fp32(b)
    function = {_ADD: np.add, _SUB: np.subtract, _MUL: np.multiply, _DIV: np.divide}[operation]
    with np.errstate(all="ignore"):
        values: npt.NDArray[np.float32] = function(x, y)
    return np.where(np.isfinite(values), dlfloat.from_fp32(values), np.uint16(dlfloat.NINF))


def _select(operation: int, a: Codes, b: Codes) -> Codes:
    """Take the lesser or the greater by keys of the same order; a NINF operand gives 7FFF."""
    x, y = (one.view(np.int16) ^ (one.view(np.int16) >> 15 & np.int16(0x7FFF)) for one in (a, b))
    chosen = np.where((x <= y) if operation == _MIN else (x >= y), a, b)
    ninf = ((a & convert.MAGNITUDE16) == dlfloat.NINF) | ((b & convert.MAGNITUDE16) == dlfloat.NINF)
    return np.where(ninf, np.uint16(dlfloat.NINF), chosen)


def _largest(codes: Codes) -> np.uint16:
    return np.uint16((codes & convert.MAGNITUDE16).max())


def _planes(cells: Codes, region: Region) -> Codes:
    """View the cells of a region as (column groups, columns, planes per column, rows, 64)."""
    planes, per_column, columns, rows, _ = region
    height = -(-rows // _STICKS) * _STICKS
    shape = planes // (per_column * columns), columns, per_column, height, 64
    return cells[: planes * height * 64].reshape(shape)


def _real(cells: Codes, region: Region) -> Codes:
    """Copy what is not padding behind the rows; cells behind the last column come along as zero."""
    codes = _planes(cells, region)[..., : region[3], :].copy()
    codes[:, -1, ..., region[4] :] = 0
    return codes


def _store(codes: Codes, out: Codes, region: Region, fresh: bool) -> np.uint16:
    """Store results with padding of zeros, `fresh` if there are some; return their largest."""
    codes[:, -1, ..., region[4] :] = 0
    target, rows = _planes(out, region), region[3]
    target[..., :rows, :] = codes
    if not fresh:
        target[..., rows:, :] = 0
    return _largest(codes)


def _view(sticks: Cells, dims: Four, pages: Pages) -> Cells:
    """View a buffer as (dim4, stick columns, dim3, dim2 in whole pages, cells of a stick)."""
    d4, d3, d2, d1 = dims
    cells = _STICK_BYTES // sticks.itemsize
    strides = (*(_PAGE_BYTES * one for one in pages), _STICK_BYTES, sticks.itemsize)
    shape = d4, -(-d1 // cells), d3, -(-d2 // _STICKS) * _STICKS, cells
    return np.lib.stride_tricks.as_strided(sticks, shape, strides)


def _fill(sticks: Cells, values: Cells, pages: Pages, fresh: bool) -> None:
    """Write an array of the tensor's dims into sticks, and zeros behind unless those are there."""
    _, _, d2, d1 = dims = values.shape
    view = _view(sticks, (dims[0], dims[1], d2, d1), pages)
    if not fresh:
        view[...] = 0
    for column in range(view.shape[1]):
        part = values[..., column * view.shape[4] :][..., : view.shape[4]]
        view[:, column, :, :d2, : part.shape[-1]] = part


def _gather(sticks: Cells, dims: Four, pages: Pages) -> Cells:
    """Return the cells of a tensor as a dense array of its dims."""
    return _rows(_view(sticks, dims, pages)[:, :, :, : dims[2]], dims[3])


def _rows(cells: Cells, dim1: int) -> Cells:
    """Return a view (dim4, stick columns, dim3, dim2, cells) as dense rows of dim1 elements."""
    turned = cells.transpose(0, 2, 3, 1, 4)
    return turned.reshape(*turned.shape[:3], -1)[..., :dim1]
