# SPDX-License-Identifier: Apache-2.0
"""Convolution by its definition: the padded input shifted under the kernel, in double precision.

Products of DLFLOAT16 numbers are exact in double precision and sums of a few thousand of them are
off by parts of 1e-13, so rounding to DLFLOAT16 is the only rounding that counts.
Source: zDNN API Reference 1.2.0, zdnn_conv2d.
"""

import numpy as np
import numpy.typing as npt

from tests.oracle.pooling import Pair
from tests.oracle.rounding import Precise

Doubles = npt.NDArray[np.float64]


def _padding(size: int, window: int, stride: int, same: bool) -> tuple[int, int, int]:
    """Return the number of windows and the padding before and behind."""
    if stride == 0:
        return 1, 0, 0
    count = -(-size // stride) if same else -(-(size - window + 1) // stride)
    total = max((count - 1) * stride + window - size, 0) if same else 0
    return count, total // 2, total - total // 2


def _padded(x: Precise, window: Pair, stride: Pair, same: bool) -> tuple[Doubles, int, int]:
    """Return the input with its padding, and the numbers of windows."""
    high, above, below = _padding(x.shape[1], window[0], stride[0], same)
    wide, left, right = _padding(x.shape[2], window[1], stride[1], same)
    source = np.pad(x.astype(np.float64), ((0, 0), (above, below), (left, right), (0, 0)))
    return source, high, wide


def convolution(x: Precise, kernel: Precise, bias: Precise, stride: Pair, same: bool) -> Doubles:
    """Convolve (n, h, w, c) with (kh, kw, c, k) and add the bias (k,)."""
    rows, width = kernel.shape[:2]
    source, high, wide = _padded(x, (rows, width), stride, same)
    weights = kernel.astype(np.float64)
    total = np.zeros((x.shape[0], high, wide, kernel.shape[3]))
    for row in range(rows):
        for column in range(width):
            shifted = source[:, row :: max(stride[0], 1), column :: max(stride[1], 1)]
            total += shifted[:, :high, :wide] @ weights[row, column]
    return np.asarray(total + bias.astype(np.float64).reshape(-1))


def in_order(x: Precise, kernel: Precise, bias: Precise, stride: Pair, same: bool) -> Doubles:
    """Convolve in FP32: one addition after the other, rows, columns, channels, the bias last."""
    rows, width, channels = kernel.shape[:3]
    source, high, wide = _padded(x, (rows, width), stride, same)
    singles, weights = source.astype(np.float32), kernel.astype(np.float32)
    total = np.zeros((x.shape[0], high, wide, kernel.shape[3]), np.float32)
    for row in range(rows):
        for column in range(width):
            shifted = singles[:, row :: max(stride[0], 1), column :: max(stride[1], 1)]
            for channel in range(channels):
                values = shifted[:, :high, :wide, channel : channel + 1]
                total += values * weights[row, column, channel]
    return np.asarray(total + bias.astype(np.float32).reshape(-1), np.float64)


def rectified(values: Doubles, clipping: float) -> Doubles:
    """Return max(0, x), at most `clipping` unless that is 0; NaN stays."""
    positive = np.where(values <= 0, 0.0, values)
    return np.where(positive > clipping, clipping, positive) if clipping else positive
