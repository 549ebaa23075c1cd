# SPDX-License-Identifier: Apache-2.0
"""Operators that networks leave to the host, on dense FP32, channels last.

Source: ONNX operators Conv, HardSigmoid and HardSwish; the order of sums is the reference's.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from nnpa_emulator.kernels.jit import implements, inlined, kernel, kernel_in
from nnpa_emulator.reference import host_operators as reference
from nnpa_emulator.reference.host_operators import HALF, ONE, SIXTH, ZERO, Sizes, Window
from nnpa_emulator.reference.layout import Dims, Singles

Steps = npt.NDArray[np.int64]

sum_window: Callable[..., None] = kernel_in("nnpa_emulator.kernels.lanes", "sum_window")


@implements(reference.depthwise)
def depthwise(
    source: Singles, weights: Singles, bias: Singles, out: Singles, dims: Dims, sizes: Sizes,
    window: Window,
) -> None:  # fmt: skip
    """Convolve every channel with its own kernel: all channels of a window side by side."""
    _, _, down, across, above, left, _, _ = window
    lines, places, channels = dims[1:]
    steps = np.empty(2 * window[0] * window[1], np.int64)
    count, at = 0, 0
    for image in range(dims[0]):
        for o3 in range(sizes[0]):
            rows, columns = _within(o3 * down - above, window[0], window[6], lines), (0, -1)
            for o2 in range(sizes[1]):
                span = _within(o2 * across - left, window[1], window[7], places)
                if span != columns:
                    columns = span
                    count = _find(steps, rows, columns, window, places, channels)
                line, place = image * lines + o3 * down - above, o2 * across - left
                sum_window(
                    source, (line * places + place) * channels, weights, steps, count, bias, out, at
                )
                at += channels


@kernel
def _within(start: int, count: int, step: int, size: int) -> Sizes:
    """Return first and end of the steps from `start` that are inside of `size` elements."""
    first, end = 0, count
    while first < count and start + first * step < 0:
        first += 1
    while end > first and start + (end - 1) * step >= size:
        end -= 1
    return first, end


@kernel
def _find(
    steps: Steps, rows: Sizes, columns: Sizes, window: Window, places: int, channels: int
) -> int:
    """Write where elements of a window and their weights are; return how many there are."""
    count = 0
    for row in range(rows[0], rows[1]):
        for column in range(columns[0], columns[1]):
            steps[2 * count] = (row * window[6] * places + column * window[7]) * channels
            steps[2 * count + 1] = (row * window[1] + column) * channels
            count += 1
    return count


@inlined
def _limited(value: np.float32) -> np.float32:
    """Limit to 0 and 1; NaN stays."""
    value = ZERO if value < ZERO else value
    return ONE if value > ONE else value


@implements(reference.hard_sigmoid)
def hard_sigmoid(source: Singles, out: Singles, alpha: np.float32, beta: np.float32) -> None:
    """Limit alpha * x + beta to 0 and 1."""
    for i in range(np.uintp(out.size)):
        out[i] = _limited(np.float32(np.float32(source[i] * alpha) + beta))


@implements(reference.hard_swish)
def hard_swish(source: Singles, out: Singles) -> None:
    """Multiply x by its hard sigmoid."""
    for i in range(np.uintp(out.size)):
        value = source[i]
        out[i] = np.float32(value * _limited(np.float32(np.float32(value * SIXTH) + HALF)))
