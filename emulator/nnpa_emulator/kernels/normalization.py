# SPDX-License-Identifier: Apache-2.0
"""Normalisation and reduction straight on DLFLOAT16 sticks, 64 cells at a time.

Sums are double precision in 64 lanes, one per cell of a stick, which are added up at the end: their
order depends on the shape of one sum alone. Cells behind dim1 and rows behind dim2 are not used.
Source: zDNN API Reference 1.2.0, "Normalization Operations".
"""

import math

import numpy as np
import numpy.typing as npt

from nnpa_emulator.kernels.convert import (
    MAGNITUDE16,
    Codes,
    as_bits,
    as_float,
    decode,
    encode_fp64,
    encode_result,
)
from nnpa_emulator.kernels.jit import implements, inlined, kernel
from nnpa_emulator.kernels.order import MAX_KEY, MIN_KEY, from_ordered, greater, lesser
from nnpa_emulator.kernels.padding import clear_padding
from nnpa_emulator.reference import normalization as reference
from nnpa_emulator.reference.layout import Dims, Doubles, Pages, Singles

Places = npt.NDArray[np.uintp]

PAGE_CELLS = 2048
LANES = 64
SUMS = 4
"""Sums that are made side by side: an addition waits for the one before it in its own sum."""
ONE, TWO, THREE = (np.uintp(number * LANES) for number in (1, 2, 3))


@inlined
def cell_of(pages: Pages, e4: int, column: int, e3: int, e2: int) -> int:
    """Return the index of the first cell of a stick."""
    page = e4 * pages[0] + column * pages[1] + e3 * pages[2] + e2 // 32
    return page * PAGE_CELLS + e2 % 32 * 64


@inlined
def scaled(value: np.float32, factor: np.float32, added: np.float32) -> np.float32:
    """Return value * factor + added, of which rounding to DLFLOAT16 is the only rounding.

    The product of two 10-bit significands is exact in FP32. Of the sum, the error is computed
    (D. E. Knuth's two-sum) and where there is one the last bit is made odd: rounded to odd, 24 bits
    hold enough to round to 10 bits as if the sum were exact.
    """
    product = np.float32(value * factor)
    total = np.float32(product + added)
    part = np.float32(total - product)
    error = np.float32(np.float32(product - np.float32(total - part)) + np.float32(added - part))
    bits = as_bits(total)
    outward = (error > 0) == (total > 0)
    odd = np.uint32(bits + np.uint32(1)) if outward else np.uint32(bits - np.uint32(1))
    exact = error == 0 or (bits & np.uint32(1)) != 0 or error != error
    return total if exact else as_float(odd)


@implements(reference.scale)
def scale(
    codes: Codes, out: Codes, dims: Dims, pages: Pages, factors: Singles, added: Singles
) -> np.uint16:
    """Multiply and add channel by channel, rounded once; return the largest magnitude."""
    clear_padding(out, dims, pages)
    largest = np.uint16(0)
    for e4 in range(dims[0]):
        for column in range((dims[3] + 63) // 64):
            real, base = min(64, dims[3] - 64 * column), np.uintp(64 * column)
            for e3 in range(dims[1]):
                for e2 in range(dims[2]):
                    at = np.uintp(cell_of(pages, e4, column, e3, e2))
                    for i in range(np.uintp(real)):
                        value = scaled(decode(codes[at + i]), factors[base + i], added[base + i])
                        code = encode_result(value)
                        largest = np.uint16(max(largest, np.uint16(code & MAGNITUDE16)))
                        out[at + i] = code
    return largest


@implements(reference.distances)
def distances(left: Codes, right: Codes, dims: Dims, pages: Pages, results: Doubles) -> None:
    """Store the square root of the sum of squared differences of every dim1 vector; dim3 is 1."""
    lanes = np.empty(64, np.float64)
    for e4 in range(dims[0]):
        for e2 in range(dims[2]):
            lanes[:] = 0.0
            for column in range((dims[3] + 63) // 64):
                at = np.uintp(cell_of(pages, e4, column, 0, e2))
                for i in range(np.uintp(min(64, dims[3] - 64 * column))):
                    gap = np.float64(decode(left[at + i])) - np.float64(decode(right[at + i]))
                    lanes[i] += gap * gap
            total = 0.0
            for lane in lanes:
                total += lane
            results[e4 * dims[2] + e2] = math.sqrt(total)


@implements(reference.moments)
def moments(codes: Codes, dims: Dims, pages: Pages, bessel: int, results: Doubles) -> None:
    """Store mean and variance over dim3, dim2 and dim1 of every dim4 in rows of two.

    The variance is summed about the mean, and corrected by its rounding error: equal to the
    formula of the reference without its cancellation.
    """
    lanes, squares = np.zeros(SUMS * LANES), np.zeros(SUMS * LANES)
    starts = np.arange(dims[0]).astype(np.uintp) * np.uintp(pages[0] * PAGE_CELLS)
    for first in range(0, dims[0], SUMS):
        place = slice(first, min(first + SUMS, dims[0]))
        moments_of(codes, starts[place], dims, pages, bessel, lanes, squares, results[2 * first :])


@kernel
def moments_of(
    codes: Codes, starts: Places, dims: Dims, pages: Pages, bessel: int, lanes: Doubles,
    squares: Doubles, results: Doubles,
) -> None:  # fmt: skip
    """Store mean and variance of up to `SUMS` images, which begin at the cells `starts`."""
    count = dims[1] * dims[2] * dims[3]
    for image in range(starts.size):
        _sum_lanes(codes, starts[image], dims, pages, 0.0, image, lanes, squares)
    a, b, c, d = _add_lanes(lanes)
    means = (a / count, b / count, c / count, d / count)
    for image in range(starts.size):
        _sum_lanes(codes, starts[image], dims, pages, means[image], image, lanes, squares)
    offs, spreads = _add_lanes(lanes), _add_lanes(squares)
    for image in range(starts.size):
        off, spread = offs[image], spreads[image]
        results[2 * image] = means[image] + off / count
        results[2 * image + 1] = (spread - off * off / count) / (count - bessel)


@kernel
def _add_lanes(lanes: Doubles) -> tuple[float, float, float, float]:
    """Return four sums, each of 64 lanes from the first on."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for i in range(np.uintp(LANES)):
        a += lanes[i]
        b += lanes[i + ONE]
        c += lanes[i + TWO]
        d += lanes[i + THREE]
    return a, b, c, d


@kernel
def _sum_lanes(
    codes: Codes, start: np.uintp, dims: Dims, pages: Pages, about: float, number: int,
    lanes: Doubles, squares: Doubles,
) -> None:  # fmt: skip
    """Sum the differences of an image from `about`, and their squares, in lanes of a number."""
    place = np.uintp(LANES * number)
    lanes[place : place + ONE] = 0.0
    squares[place : place + ONE] = 0.0
    for column in range((dims[3] + 63) // 64):
        real = min(64, dims[3] - 64 * column)
        for e3 in range(dims[1]):
            for e2 in range(dims[2]):
                at = start + np.uintp(cell_of(pages, 0, column, e3, e2))
                for i in range(np.uintp(real)):
                    gap = np.float64(decode(codes[at + i])) - about
                    lanes[place + i] += gap
                    squares[place + i] += gap * gap


@implements(reference.standardise)
def standardise(
    codes: Codes,
    out: Codes,
    dims: Dims,
    pages: Pages,
    means: Doubles,
    factors: Doubles,
    added: float,
    fresh: bool,
) -> np.uint16:
    """Store (x - mean) * factor + added with the mean and factor of each dim4, rounded once.

    `fresh` says that the padding may stay as it is.
    """
    if not fresh:
        clear_padding(out, dims, pages)
    line = np.empty(64, np.float64)
    words = line.view(np.uint64)
    largest = np.uint16(0)
    for e4 in range(dims[0]):
        mean, factor = means[e4], factors[e4]
        for column in range((dims[3] + 63) // 64):
            real = min(64, dims[3] - 64 * column)
            for e3 in range(dims[1]):
                for e2 in range(dims[2]):
                    at = cell_of(pages, e4, column, e3, e2)
                    cell = np.uintp(at)
                    for i in range(np.uintp(real)):
                        line[i] = (np.float64(decode(codes[cell + i])) - mean) * factor + added
                    met = encode_fp64(words[:real], out[at : at + real])
                    largest = np.uint16(max(largest, met))
    return largest


@implements(reference.extremes)
def extremes(
    codes: Codes,
    dims: Dims,
    pages: Pages,
    greatest: bool,
    codes_found: Codes,
    positions: npt.NDArray[np.int32],
) -> np.uint16:
    """Find the least or greatest element of every dim1 vector and its first position.

    `codes_found` and `positions` are dense (dim4, dim3, dim2); NINF wins over every number.
    Returns the largest magnitude.
    """
    keys = np.empty((dims[3] + 63) // 64 * 64, np.int16)
    largest = np.uint16(0)
    index = 0
    for e4 in range(dims[0]):
        for e3 in range(dims[1]):
            for e2 in range(dims[2]):
                best = _keys(codes, dims[3], pages, (e4, e3, e2), greatest, keys)
                at = np.uintp(0)
                while keys[at] != best:
                    at += np.uintp(1)
                code = from_ordered(best)
                ninf = best == (MAX_KEY if greatest else MIN_KEY)
                codes_found[index] = MAGNITUDE16 if ninf else code
                positions[index] = at
                largest = np.uint16(max(largest, np.uint16(codes_found[index] & MAGNITUDE16)))
                index += 1
    return largest


@kernel
def _keys(
    codes: Codes,
    dim1: int,
    pages: Pages,
    where: tuple[int, int, int],
    greatest: bool,
    keys: npt.NDArray[np.int16],
) -> np.int16:
    """Store the keys of one dim1 vector; return the greatest or the least of them."""
    best = MIN_KEY if greatest else MAX_KEY
    for column in range((dim1 + 63) // 64):
        at = np.uintp(cell_of(pages, where[0], column, where[1], where[2]))
        base, real = np.uintp(64 * column), np.uintp(min(64, dim1 - 64 * column))
        if greatest:
            for i in range(real):
                keys[base + i] = greater(codes[at + i])
                best = np.int16(max(best, keys[base + i]))
        else:
            for i in range(real):
                keys[base + i] = lesser(codes[at + i])
                best = np.int16(min(best, keys[base + i]))
    return best
