# SPDX-License-Identifier: Apache-2.0
"""DLFLOAT16 codes of whole arrays of precise values, and distances in units of the last place.

Values are `numpy.longdouble` (64-bit significands on x86), so that one rounding is one rounding.
Source: "DLFloat: A 16-b Floating Point Format" (ARITH 2019); ties away from zero.
"""

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.uint16]
Precise = npt.NDArray[np.longdouble]


def decoded(codes: Codes) -> Precise:
    """Return the exact values of codes; NINF is NaN."""
    magnitude = (codes & 0x7FFF).astype(np.int64)
    significand = (512 + magnitude % 512).astype(np.longdouble)
    values = np.ldexp(significand, (magnitude // 512 - 31 - 9).astype(np.int32))
    values = np.where(magnitude == 0, np.longdouble(0), values)
    values = np.where(magnitude == 0x7FFF, np.longdouble(np.nan), values)
    return np.where(codes & 0x8000, -values, values)


def rounded(values: npt.ArrayLike) -> Codes:
    """Round once; overflow and zero keep their sign, NaN is 7FFF."""
    precise = np.asarray(values, np.longdouble)
    size = np.abs(precise)
    usable = np.isfinite(size)
    significand, exponent = np.frexp(np.where(usable, size, 1))
    units = np.floor(significand * 1024 + np.longdouble(0.5)).astype(np.int64)
    magnitude = (exponent.astype(np.int64) - 1 + 31) * 512 + units - 512
    magnitude = np.where(size == 0, 0, np.clip(magnitude, 0, 0x7FFF))
    magnitude = np.where(usable, magnitude, 0x7FFF)
    sign = np.where(np.signbit(precise) & ~np.isnan(precise), 0x8000, 0)
    return (magnitude | sign).astype(np.uint16)


def distance(first: Codes, second: Codes) -> int:
    """Return the largest distance in units of the last place; NINF only equals NINF."""
    place = [
        np.where(a & 0x8000, -(a & 0x7FFF).astype(np.int64), a & 0x7FFF) for a in (first, second)
    ]
    ninf = [a & 0x7FFF == 0x7FFF for a in (first, second)]
    if np.any(ninf[0] != ninf[1]):
        return 0x7FFF
    gaps = np.abs(place[0] - place[1])[~ninf[0]]
    return int(gaps.max()) if gaps.size else 0
