# SPDX-License-Identifier: Apache-2.0
"""INT8 sticks: quantisation of FP32 values, and weights whose rows are interleaved in pairs.

`dims`, `pages` and `fresh` as in `kernels.sticks`; a stick holds 128 INT8 cells, or 64 pairs.
Source: zDNN API Reference 1.2.0, zdnn_transform_quantized_ztensor; zDNN library behaviour.
"""

import numpy as np
import numpy.typing as npt

from nnpa_emulator.kernels.convert import INFINITY32, MAGNITUDE32, as_bits
from nnpa_emulator.kernels.jit import implements, kernel
from nnpa_emulator.kernels.sticks import STICK_BYTES
from nnpa_emulator.reference import integers as reference
from nnpa_emulator.reference.layout import Dims, Pages


@implements(reference.stickify_quantized)
def stickify_quantized(
    values: npt.NDArray[np.float32],
    sticks: npt.NDArray[np.int8],
    dims: Dims,
    pages: Pages,
    scale: npt.NDArray[np.float32],
    limits: npt.NDArray[np.float32],
    fresh: bool,
) -> bool:
    """Quantize FP32 values into INT8 sticks; tell whether a NaN or an infinity is among them.

    `scale` is (reciprocal scale, offset), `limits` the clipping values.  Product and sum are FP32
    operations of their own, rounding is half to even, NaN counts as zero.
    """
    d4, d3, d2, d1 = dims
    largest = np.uint32(0)
    for e4 in range(d4):
        for k in range((d1 + 127) // 128):
            real = np.uintp(min(128, d1 - 128 * k))
            for e3 in range(d3):
                cell = np.uintp((e4 * pages[0] + k * pages[1] + e3 * pages[2]) * 4096)
                item = np.uintp((e4 * d3 + e3) * d2 * d1 + 128 * k)
                for row in range(np.uintp(d2)):
                    first, stick = item + row * np.uintp(d1), cell + row * np.uintp(128)
                    high = _quantize_run(values, first, sticks, stick, real, scale, limits)
                    largest = np.uint32(max(largest, high))
                    if not fresh:
                        sticks[stick + real : stick + np.uintp(128)] = 0
                if not fresh:
                    sticks[cell + np.uintp(d2 * 128) : cell + np.uintp((d2 + 31) // 32 * 4096)] = 0
    return bool(largest >= INFINITY32)


@kernel
def _quantize_run(
    values: npt.NDArray[np.float32],
    first: np.uintp,
    sticks: npt.NDArray[np.int8],
    stick: np.uintp,
    count: np.uintp,
    scale: npt.NDArray[np.float32],
    limits: npt.NDArray[np.float32],
) -> np.uint32:
    """Quantize a run of values; return the largest magnitude of their FP32 bits."""
    largest = np.uint32(0)
    for i in range(count):
        value = values[first + i]
        largest = np.uint32(max(largest, np.uint32(as_bits(value) & MAGNITUDE32)))
        scaled = np.rint(np.float32(value * scale[0]) + scale[1])
        scaled = np.float32(0) if scaled != scaled else np.float32(scaled)
        sticks[stick + i] = np.int8(min(max(scaled, limits[0]), limits[1]))
    return largest


@implements(reference.stickify_weights)
def stickify_weights(
    source: npt.NDArray[np.uint8], sticks: npt.NDArray[np.uint8], dims: Dims, pages: Pages
) -> None:
    """Interleave INT8 rows in pairs into 4DWEIGHTS sticks; the buffer is zero already."""
    d4, d3, d2, d1 = dims
    item = 0
    for e4 in range(d4):
        for e3 in range(d3):
            for e2 in range(d2):
                for e1 in range(d1):
                    page = e4 * pages[0] + e1 // 64 * pages[1] + e3 * pages[2]
                    byte = page * 4096 + e2 // 2 * STICK_BYTES + e1 % 64 * 2 + e2 % 2
                    sticks[byte] = source[item]
                    item += 1


@implements(reference.unstickify_weights)
def unstickify_weights(
    sticks: npt.NDArray[np.uint8], target: npt.NDArray[np.uint8], dims: Dims, pages: Pages
) -> None:
    """Read INT8 rows out of 4DWEIGHTS sticks."""
    d4, d3, d2, d1 = dims
    item = 0
    for e4 in range(d4):
        for e3 in range(d3):
            for e2 in range(d2):
                for e1 in range(d1):
                    page = e4 * pages[0] + e1 // 64 * pages[1] + e3 * pages[2]
                    byte = page * 4096 + e2 // 2 * STICK_BYTES + e1 % 64 * 2 + e2 % 2
                    target[item] = sticks[byte]
                    item += 1
