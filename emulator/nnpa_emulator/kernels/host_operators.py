# SPDX-License-Identifier: Apache-2.0
"""Operators that networks leave to the host, on dense FP32, channels last.

Source: ONNX operators Conv, HardSigmoid and HardSwish; the order of sums is the reference's.
"""

import numpy as np
import numpy.typing as npt

from nnpa_emulator.kernels.jit import implements, inlined
from nnpa_emulator.reference import host_operators as reference

Singles = npt.NDArray[np.float32]
Dims = tuple[int, int, int, int]
Sizes = tuple[int, int]
Window = tuple[int, int, int, int, int, int, int, int]

ZERO, ONE = np.float32(0), np.float32(1)
SIXTH, HALF = np.float32(1 / 6), np.float32(0.5)


@implements(reference.depthwise)
def depthwise(
    source: Singles, weights: Singles, bias: Singles, out: Singles, dims: Dims, sizes: Sizes,
    window: Window,
) -> None:  # fmt: skip
    """Convolve every channel with its own kernel: all channels of a window side by side."""
    height, width, down, across, above, left, apart, aside = window
    images, lines, places, channels = dims
    count = np.uintp(channels)
    target = np.uintp(0)
    for image in range(images):
        for o3 in range(sizes[0]):
            for o2 in range(sizes[1]):
                for i in range(count):
                    out[target + i] = ZERO
                for row in range(height):
                    line = o3 * down - above + row * apart
                    if 0 <= line < lines:
                        for column in range(width):
                            place = o2 * across - left + column * aside
                            if 0 <= place < places:
                                at = np.uintp(((image * lines + line) * places + place) * channels)
                                weight = np.uintp((row * width + column) * channels)
                                for i in range(count):
                                    product = np.float32(source[at + i] * weights[weight + i])
                                    out[target + i] = np.float32(out[target + i] + product)
                for i in range(count):
                    out[target + i] = np.float32(out[target + i] + bias[i])
                target += count


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
