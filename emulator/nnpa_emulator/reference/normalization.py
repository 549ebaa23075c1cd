# SPDX-License-Identifier: Apache-2.0
"""Normalisation and reduction of feature tensors.

Sums are double precision in 64 lanes, one per cell of a stick, in the order of stick columns, dim3,
dim2; then the lanes are added, from the first.
Source: zDNN API Reference 1.2.0, "Normalization Operations".
"""

import numpy as np
import numpy.typing as npt

from nnpa_emulator import dlfloat
from nnpa_emulator.reference.layout import (
    CELLS,
    MAGNITUDE,
    NINF,
    Codes,
    Dims,
    Doubles,
    Pages,
    Singles,
    fill,
    gather,
)
from nnpa_emulator.reference.sums import add_in_order

GREATEST, LEAST = np.int16(0x7FFF), np.int16(-0x8000)


def _values(codes: Codes, dims: Dims, pages: Pages) -> Doubles:
    return dlfloat.to_fp32(gather(codes, dims, pages)).astype(np.float64)


def _add_lanes(terms: Doubles) -> float:
    """Add all terms (dim3, dim2, dim1) of a sum, in the order of the module."""
    d3, d2, d1 = terms.shape
    lanes = np.zeros((d3, d2, -(-d1 // CELLS) * CELLS))
    lanes[..., :d1] = terms
    runs = lanes.reshape(d3, d2, -1, CELLS).transpose(2, 0, 1, 3).reshape(-1, CELLS)
    return float(add_in_order(add_in_order(runs)))


def scale(
    codes: Codes, out: Codes, dims: Dims, pages: Pages, factors: Singles, added: Singles
) -> np.uint16:
    """Compute x * factor + added of each channel, rounded once; return the largest magnitude."""
    x = dlfloat.to_fp32(gather(codes, dims, pages))
    with np.errstate(all="ignore"):
        results = dlfloat.result_from_fp32(to_odd(x * factors, np.broadcast_to(added, x.shape)))
    fill(out, results, pages)
    return dlfloat.largest(results)


def to_odd(a: Singles, b: Singles) -> Singles:
    """Add FP32 numbers, rounded to odd: 24 bits then hold enough to round to 10 bits once.

    The error of a sum is computed (D. E. Knuth's two-sum); where there is one and the sum's last
    bit is even, its neighbour on the side of the error is taken.
    """
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)
    bits = total.view(np.uint32)
    away = (error > 0) == (total > 0)
    odd = np.where(away, bits + np.uint32(1), bits - np.uint32(1)).view(np.float32)
    return np.where((error == 0) | (bits & 1 != 0) | np.isnan(error), total, odd)


def distances(left: Codes, right: Codes, dims: Dims, pages: Pages, results: Doubles) -> None:
    """Store the square root of the sum of squared differences of every dim1 vector; dim3 is 1."""
    gaps = (_values(left, dims, pages) - _values(right, dims, pages)).reshape(-1, dims[3])
    for index, gap in enumerate(gaps):
        results[index] = np.sqrt(_add_lanes((gap * gap)[None, None]))


def moments(codes: Codes, dims: Dims, pages: Pages, bessel: int, results: Doubles) -> None:
    """Store mean and variance over dim3, dim2 and dim1 of every dim4 in rows of two.

    The variance is summed about the mean, and corrected by the mean's rounding error.
    """
    for index, x in enumerate(_values(codes, dims, pages)):
        results[2 * index : 2 * index + 2] = moments_of(x, bessel)


def moments_of(x: Doubles, bessel: int) -> tuple[float, float]:
    """Return mean and variance of an image (dim3, dim2, dim1)."""
    mean = _add_lanes(x) / x.size
    off, spread = _add_lanes(x - mean), _add_lanes((x - mean) * (x - mean))
    return mean + off / x.size, (spread - off * off / x.size) / (x.size - bessel)


def standardise(
    codes: Codes, out: Codes, dims: Dims, pages: Pages,
    means: Doubles, factors: Doubles, added: float, fresh: bool,
) -> np.uint16:  # fmt: skip
    """Store (x - mean) * factor + added with the mean and factor of each dim4, rounded once."""
    x = _values(codes, dims, pages)
    with np.errstate(all="ignore"):
        moved = (x - means[:, None, None, None]) * factors[:, None, None, None] + added
    results = dlfloat.result_from_fp64(moved)
    fill(out, results, pages, fresh)
    return dlfloat.largest(results)


def keys_of(codes: Codes, greatest: bool) -> npt.NDArray[np.int16]:
    """Map codes to integers of their order, -0 below +0; NINF wins the search."""
    number = codes.view(np.int16)
    keys = number ^ (number >> 15 & np.int16(0x7FFF))
    return np.where(codes & MAGNITUDE == NINF, GREATEST if greatest else LEAST, keys)


def codes_of(keys: npt.NDArray[np.int16]) -> Codes:
    """Undo `keys_of`; the key of a NINF that won is 7FFF."""
    codes = (keys ^ (keys >> 15 & np.int16(0x7FFF))).view(np.uint16)
    return np.where((keys == GREATEST) | (keys == LEAST), NINF, codes)


def extremes(
    codes: Codes, dims: Dims, pages: Pages, greatest: bool,
    codes_found: Codes, positions: npt.NDArray[np.int32],
) -> np.uint16:  # fmt: skip
    """Find the least or greatest element of every dim1 vector and its first position."""
    keys = keys_of(gather(codes, dims, pages), greatest).reshape(-1, dims[3])
    positions[:] = keys.argmax(axis=1) if greatest else keys.argmin(axis=1)
    codes_found[:] = codes_of(keys[np.arange(len(keys)), positions])
    return dlfloat.largest(codes_found)
