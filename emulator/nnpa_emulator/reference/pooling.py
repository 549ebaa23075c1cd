# SPDX-License-Identifier: Apache-2.0
"""Pooling: averages and maxima of windows; elements outside the input are not there.

A window is reduced along dim3 first, then along dim2; sums are double precision in that order.
Source: zDNN API Reference 1.2.0, zdnn_avgpool2d and zdnn_maxpool2d.
"""

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from nnpa_emulator import dlfloat
from nnpa_emulator.reference.layout import Codes, Dims, Pages, fill, gather
from nnpa_emulator.reference.normalization import codes_of, keys_of
from nnpa_emulator.reference.sums import add_in_order

Window: TypeAlias = tuple[int, int, int, int, int, int]
"""Height and width of the window, strides (height, width), padding before (height, width)."""


def _reach(count: int, stride: int, before: int, window: int, size: int) -> Iterator[slice]:
    """Yield the range of a dimension that each of `count` windows covers."""
    for index in range(count):
        first = index * stride - before
        yield slice(max(first, 0), min(first + window, size))


def average(
    codes: Codes, out: Codes, dims: Dims, pages: Pages, sizes: Dims, places: Pages, window: Window
) -> np.uint16:
    """Average every window; return the largest magnitude of the result."""
    x = dlfloat.to_fp32(gather(codes, dims, pages)).astype(np.float64)
    means = np.empty(sizes)
    height, width, step3, step2, above, left = window
    for o3, down in enumerate(_reach(sizes[1], step3, above, height, dims[1])):
        lines = add_in_order(x[:, down].swapaxes(0, 1))
        for o2, across in enumerate(_reach(sizes[2], step2, left, width, dims[2])):
            count = (down.stop - down.start) * (across.stop - across.start)
            means[:, o3, o2] = add_in_order(lines[:, across].swapaxes(0, 1)) / count
    results = dlfloat.result_from_fp64(means)
    fill(out, results, places)
    return dlfloat.largest(results)


def maximum(
    codes: Codes, out: Codes, dims: Dims, pages: Pages, sizes: Dims, places: Pages, window: Window
) -> np.uint16:
    """Select the greatest element of every window; return the largest magnitude of the result."""
    keys = keys_of(gather(codes, dims, pages), True)
    best = np.empty(sizes, np.int16)
    height, width, step3, step2, above, left = window
    for o3, down in enumerate(_reach(sizes[1], step3, above, height, dims[1])):
        for o2, across in enumerate(_reach(sizes[2], step2, left, width, dims[2])):
            best[:, o3, o2] = keys[:, down, across].max(axis=(1, 2))
    results = codes_of(best)
    fill(out, results, places)
    return dlfloat.largest(results)
