# SPDX-License-Identifier: Apache-2.0
"""Pooling by its definition: every window gathered, summed in extended precision or searched.

Source: zDNN API Reference 1.2.0, "AvgPool2D Parameter Restrictions"; the split of SAME padding is
TensorFlow's, the odd element behind.
"""

from collections.abc import Iterator

import numpy as np

from tests.oracle.rounding import Codes, Precise, decoded, rounded

Pair = tuple[int, int]


def windows(size: int, window: int, stride: int, same: bool) -> list[range]:
    """Return the in-bounds positions of every window along one dimension."""
    if stride == 0:
        return [range(size)]
    count = -(-size // stride) if same else -(-(size - window + 1) // stride)
    total = max((count - 1) * stride + window - size, 0) if same else 0
    starts = [index * stride - total // 2 for index in range(count)]
    return [range(max(start, 0), min(start + window, size)) for start in starts]


def _gathered(
    shape: tuple[int, ...], kernel: Pair, stride: Pair, same: bool
) -> Iterator[tuple[int, int, slice, slice]]:
    for o3, high in enumerate(windows(shape[1], kernel[0], stride[0], same)):
        for o2, wide in enumerate(windows(shape[2], kernel[1], stride[1], same)):
            yield o3, o2, slice(high.start, high.stop), slice(wide.start, wide.stop)


def _counts(shape: tuple[int, ...], kernel: Pair, stride: Pair, same: bool) -> tuple[int, int]:
    high = windows(shape[1], kernel[0], stride[0], same)
    return len(high), len(windows(shape[2], kernel[1], stride[1], same))


def average(x: Precise, kernel: Pair, stride: Pair, same: bool) -> Precise:
    """Average the elements inside the input of every window of (n, h, w, c)."""
    counts = _counts(x.shape, kernel, stride, same)
    result = np.zeros((x.shape[0], *counts, x.shape[3]), np.longdouble)
    for o3, o2, high, wide in _gathered(x.shape, kernel, stride, same):
        result[:, o3, o2] = x[:, high, wide].mean(axis=(1, 2))
    return result


def maximum(codes: Codes, kernel: Pair, stride: Pair, same: bool) -> Codes:
    """Select the greatest code of every window; -0 is less than +0, NINF gives 7FFF."""
    values = decoded(codes)
    order = np.where(codes == 0x8000, np.longdouble(-(2.0**-60)), values)
    counts = _counts(codes.shape, kernel, stride, same)
    result = np.zeros((codes.shape[0], *counts, codes.shape[3]), np.uint16)
    for o3, o2, high, wide in _gathered(codes.shape, kernel, stride, same):
        best = order[:, high, wide].max(axis=(1, 2))
        result[:, o3, o2] = rounded(best)
    return result
