# SPDX-License-Identifier: Apache-2.0
"""Layer normalisation of dim1 vectors in one pass: moments, layernorm, mul and add.

By themselves the calls work on a tensor with a page for each vector, because moments takes a mean
of every dim4; a pass over the vectors where they lie reads and writes the memory once.
Source: zDNN API Reference 1.2.0, "Normalization Operations".
"""

import math

import numpy as np
import numpy.typing as npt

from nnpa_emulator.kernels.convert import (
    MAGNITUDE16,
    Codes,
    decode,
    encode_fp64,
    encode_result,
    encode_run64,
)
from nnpa_emulator.kernels.jit import implements, inlined, kernel
from nnpa_emulator.kernels.normalization import LANES, PAGE_CELLS, SUMS, cell_of, moments_of
from nnpa_emulator.kernels.order import NINF16
from nnpa_emulator.reference import layer_normalization as reference
from nnpa_emulator.reference.layout import Dims, Doubles, Pages, Singles

Places = npt.NDArray[np.uintp]


@implements(reference.layer_normalization)
def layer_normalization(
    codes: Codes, dims: Dims, pages: Pages, out: Codes, out_dims: Dims, out_pages: Pages,
    scalars: Doubles, factors: Singles, added: Singles,
) -> bool:  # fmt: skip
    """Normalise every dim1 vector; False: a NINF was met. Padding is left as it is."""
    vector = (1, 1, 1, dims[3])
    starts, targets = _first_cells(dims, pages), _first_cells(out_dims, out_pages)
    lanes, squares = np.zeros(SUMS * LANES), np.zeros(SUMS * LANES)
    results, rounded = np.empty(2 * SUMS), np.empty(2 * SUMS, np.uint16)
    line, cells = np.empty(LANES), np.empty(LANES, np.uint16)
    steps = np.uintp(pages[1] * PAGE_CELLS), np.uintp(out_pages[1] * PAGE_CELLS)
    for first in range(0, starts.size, SUMS):
        some = starts[first : first + SUMS]
        moments_of(codes, some, vector, pages, 0, lanes, squares, results)
        count = 2 * some.size
        largest = encode_fp64(results[:count].view(np.uint64), rounded[:count])
        for number in range(some.size):
            moved = _factor(rounded[2 * number], rounded[2 * number + 1], scalars)
            met = _normalise(
                codes, some[number], out, targets[first + number], steps, dims[3], moved, factors,
                added, line, cells,
            )  # fmt: skip
            largest = np.uint16(max(largest, met))
        if largest >= NINF16:
            return False
    return True


@kernel
def _factor(mean: np.uint16, variance: np.uint16, scalars: Doubles) -> tuple[float, float, float]:
    """Return the mean, gamma over the root of variance and epsilon, and beta."""
    total = np.float64(decode(variance)) + scalars[2]
    factor = scalars[1] / math.sqrt(total) if total > 0 else math.nan
    return np.float64(decode(mean)), factor, scalars[0]


@kernel
def _normalise(
    codes: Codes, start: np.uintp, out: Codes, target: np.uintp, steps: tuple[np.uintp, np.uintp],
    width: int, moved: tuple[float, float, float], factors: Singles, added: Singles,
    line: Doubles, cells: Codes,
) -> np.uint16:  # fmt: skip
    """Normalise one vector, stick by stick; return the largest magnitude of all results."""
    largest = np.uint16(0)
    for column in range((width + 63) // 64):
        real = min(64, width - 64 * column)
        at, place = start + np.uintp(column) * steps[0], target + np.uintp(column) * steps[1]
        met = _standardise(codes, at, moved, line, cells, np.uintp(real))
        after = _scale(cells, np.uintp(real), factors, added, np.uintp(64 * column), out, place)
        largest = np.uint16(max(largest, max(met, after)))
    return largest


@kernel
def _first_cells(dims: Dims, pages: Pages) -> Places:
    """Return where the dim1 vectors of a tensor begin."""
    cells = np.empty(dims[0] * dims[1] * dims[2], np.uintp)
    count = 0
    for e4 in range(dims[0]):
        for e3 in range(dims[1]):
            for e2 in range(dims[2]):
                cells[count] = np.uintp(cell_of(pages, e4, 0, e3, e2))
                count += 1
    return cells


@inlined
def _standardise(
    codes: Codes, start: np.uintp, moved: tuple[float, float, float], line: Doubles, cells: Codes,
    count: np.uintp,
) -> np.uint16:  # fmt: skip
    """Round (x - mean) * scale + beta of a stick into `cells`; return the largest magnitude."""
    mean, scale, beta = moved
    for i in range(count):
        line[i] = (np.float64(decode(codes[start + i])) - mean) * scale + beta
    return encode_run64(line.view(np.uint64), np.uintp(0), cells, np.uintp(0), count)


@inlined
def _scale(
    cells: Codes, count: np.uintp, factors: Singles, added: Singles, channel: np.uintp, out: Codes,
    at: np.uintp,
) -> np.uint16:  # fmt: skip
    """Multiply and add channel by channel, rounded twice; return the largest magnitude."""
    largest = np.uint16(0)
    if factors.size:
        for i in range(count):
            code = encode_result(np.float32(decode(cells[i]) * factors[channel + i]))
            largest = np.uint16(max(largest, np.uint16(code & MAGNITUDE16)))
            cells[i] = code
    if added.size:
        for i in range(count):
            code = encode_result(np.float32(decode(cells[i]) + added[channel + i]))
            largest = np.uint16(max(largest, np.uint16(code & MAGNITUDE16)))
            cells[i] = code
    for i in range(count):
        out[at + i] = cells[i]
    return largest
