# SPDX-License-Identifier: Apache-2.0
"""Transforms: dense arrays into sticks and back, converted on the way.

Source: zDNN API Reference 1.2.0, "Data Type Conversion" and the transform functions.
"""

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from nnpa_emulator import dlfloat
from nnpa_emulator.reference.layout import Codes, Dims, Pages, Words, fill, gather

Cell = TypeVar("Cell", np.uint8, np.uint16, np.uint32)

MAGNITUDE32, SIGN32 = np.uint32(0x7FFFFFFF), np.uint32(0x80000000)
INFINITY32 = np.uint32(0x7F800000)
BLOCK = 1 << 16  # elements that are rounded at a time: what lies between takes six times theirs


def stickify_fp32(
    words: Words, sticks: Codes, dims: Dims, pages: Pages, limit: np.uint32, fresh: bool
) -> tuple[np.uint32, np.uint32]:
    """Round FP32 bits into DLFLOAT16 sticks; magnitudes of numbers stop at `limit`.

    Returns the largest magnitude, and the smallest less one modulo 2^32: zeros do not underflow.
    """
    codes = np.empty(words.size, np.uint16)
    largest, smallest = np.uint32(0), np.uint32(0xFFFFFFFF)
    for first in range(0, words.size, BLOCK):
        part = words[first : first + BLOCK]
        magnitudes = part & MAGNITUDE32
        clamped = np.where(magnitudes >= INFINITY32, magnitudes, np.minimum(magnitudes, limit))
        codes[first : first + BLOCK] = dlfloat.from_fp32((clamped | part & SIGN32).view(np.float32))
        largest = max(largest, magnitudes.max())
        smallest = min(smallest, (magnitudes - np.uint32(1)).min())
    fill(sticks, codes.reshape(dims), pages, fresh)
    return np.uint32(largest), np.uint32(smallest)


def stickify_nchw(
    words: Words, sticks: Codes, dims: Dims, pages: Pages, limit: np.uint32, fresh: bool
) -> tuple[np.uint32, np.uint32]:
    """Round FP32 bits in NCHW order into DLFLOAT16 sticks."""
    d4, d3, d2, d1 = dims
    turned = words.reshape(d4, d1, d3, d2).transpose(0, 2, 3, 1).ravel()
    return stickify_fp32(turned, sticks, dims, pages, limit, fresh)


def unstickify_fp32(sticks: Codes, words: Words, dims: Dims, pages: Pages) -> np.uint16:
    """Widen DLFLOAT16 sticks to FP32 bits; return the largest magnitude of the codes."""
    codes = gather(sticks, dims, pages)
    words[:] = dlfloat.to_fp32(codes).view(np.uint32).ravel()
    return dlfloat.largest(codes)


def unstickify_nchw(sticks: Codes, words: Words, dims: Dims, pages: Pages) -> np.uint16:
    """Widen DLFLOAT16 sticks to FP32 bits in NCHW order."""
    codes = gather(sticks, dims, pages)
    words[:] = dlfloat.to_fp32(codes).view(np.uint32).transpose(0, 3, 1, 2).ravel()
    return dlfloat.largest(codes)


def stickify_table(
    source: Codes, table: Words, sticks: Codes, dims: Dims, pages: Pages, fresh: bool
) -> np.uint32:
    """Convert 16-bit values into sticks through a table; return the flags of all, or-ed."""
    entries = table[source]
    fill(sticks, entries.astype(np.uint16).reshape(dims), pages, fresh)
    return np.uint32(np.bitwise_or.reduce(entries) >> np.uint32(16))


def unstickify_table(
    sticks: Codes, table: Words, target: Codes, dims: Dims, pages: Pages
) -> np.uint32:
    """Convert sticks to 16-bit values through a table; return the flags of all, or-ed."""
    entries = table[gather(sticks, dims, pages).ravel()]
    target[:] = entries.astype(np.uint16)
    return np.uint32(np.bitwise_or.reduce(entries) >> np.uint32(16))


def stickify_copy(
    source: npt.NDArray[Cell], sticks: npt.NDArray[Cell], dims: Dims, pages: Pages, fresh: bool
) -> None:
    """Copy cells of 1, 2 or 4 bytes from a dense array into sticks."""
    fill(sticks, source.reshape(dims), pages, fresh)


def unstickify_copy(
    sticks: npt.NDArray[Cell], target: npt.NDArray[Cell], dims: Dims, pages: Pages
) -> None:
    """Copy cells of 1, 2 or 4 bytes from sticks into a dense array."""
    target[:] = gather(sticks, dims, pages).ravel()
