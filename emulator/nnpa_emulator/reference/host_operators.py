# SPDX-License-Identifier: Apache-2.0
"""Operators that networks leave to the host, on dense FP32: every operation rounds once to FP32.

Images are lines of (N, H, W, C) elements in row-major order. No element depends on another channel,
so the place of the channels makes no difference.
Source: ONNX operators Conv, HardSigmoid and HardSwish.
"""

from typing import TypeAlias

import numpy as np

from nnpa_emulator.reference.layout import Dims, Singles

Sizes: TypeAlias = tuple[int, int]
"""Height and width of the output."""
Window: TypeAlias = tuple[int, int, int, int, int, int, int, int]
"""Height and width of the kernel, strides, padding before, dilations, each (height, width)."""

SIXTH = np.float32(1 / 6)
HALF = np.float32(0.5)
ZERO, ONE = np.float32(0), np.float32(1)


def depthwise(
    source: Singles, weights: Singles, bias: Singles, out: Singles, dims: Dims, sizes: Sizes,
    window: Window,
) -> None:  # fmt: skip
    """Convolve every channel with its own kernel of `weights`, a line of (kh, kw, C).

    A sum begins at zero; products are added by kernel row, then kernel column, the bias last.
    Elements outside of the image are not there: nothing is added for them.
    """
    height, width, down, across, above, left, apart, aside = window
    images = source.reshape(dims)
    sums = out.reshape(dims[0], *sizes, dims[3])
    kernels = weights.reshape(height, width, dims[3])
    sums[:] = 0
    with np.errstate(all="ignore"):
        for row in range(height):
            into, lines = _inside(dims[1], sizes[0], down, row * apart - above)
            for column in range(width):
                onto, places = _inside(dims[2], sizes[1], across, column * aside - left)
                sums[:, into, onto] += images[:, lines, places] * kernels[row, column]
        sums += bias


def _inside(size: int, count: int, stride: int, offset: int) -> tuple[slice, slice]:
    """Return which of `count` windows have an element `offset` from their start, and these."""
    first = max(-(offset // stride), 0)
    last = max(min(count, (size - 1 - offset) // stride + 1), first)
    start = first * stride + offset
    return slice(first, last), slice(start, start + (last - first) * stride, stride)


def hard_sigmoid(source: Singles, out: Singles, alpha: np.float32, beta: np.float32) -> None:
    """Limit alpha * x + beta to 0 and 1; NaN stays."""
    with np.errstate(all="ignore"):
        out[:] = source * alpha + beta
    out[out < ZERO] = ZERO
    out[out > ONE] = ONE


def hard_swish(source: Singles, out: Singles) -> None:
    """Multiply x by its hard sigmoid of alpha 1/6 and beta 0.5."""
    hard_sigmoid(source, out, SIXTH, HALF)
    with np.errstate(all="ignore"):
        out *= source
