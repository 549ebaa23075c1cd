# SPDX-License-Identifier: Apache-2.0
"""Format words of buffers, and the conversions that an application does itself.

Names and arithmetic: X-CUBE-AI 7.0 Embedded Inference Client API, "Tensor format", "float32 to 8b
data type conversion", "8b to float32 data type conversion".
"""

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from nnpa_client._values.user_arrays import Array

_FBITS_BIAS = 64
_FORMAT_MASK = 0x01FF_FFFF


class Format(IntEnum):
    """AI_BUFFER_FORMAT_XXX; the formats after BOOL occur in models and have no public name."""

    NONE = 0x0000_0040
    FLOAT = 0x0182_1040
    U8 = 0x0004_0440
    U16 = 0x0004_0840
    S8 = 0x0084_0440
    S16 = 0x0084_0840
    Q = 0x0084_0040
    Q7 = 0x0084_0447
    Q15 = 0x0084_084F
    UQ = 0x0004_0040
    UQ7 = 0x0004_0447
    UQ15 = 0x0004_084F
    BOOL = 0x0006_0440
    U32 = 0x0004_1040
    U64 = 0x0004_2040
    S32 = 0x0084_1040
    S64 = 0x0084_2040
    FLOAT16 = 0x0182_0840
    FLOAT64 = 0x0182_2040


FMT_TYPE_FLOAT, FMT_TYPE_Q, FMT_TYPE_BOOL = 1, 2, 3
_LETTERS = {FMT_TYPE_FLOAT: "f", FMT_TYPE_BOOL: "b"}


def fmt_get_type(fmt: int) -> int:
    """Return FMT_TYPE_FLOAT, FMT_TYPE_Q, FMT_TYPE_BOOL, or 0: AI_BUFFER_FMT_GET_TYPE."""
    return fmt >> 17 & 0xF


def fmt_get_float(fmt: int) -> int:
    """Return 1 for floating point, else 0: AI_BUFFER_FMT_GET_FLOAT."""
    return fmt >> 24 & 1


def fmt_get_sign(fmt: int) -> int:
    """Return 1 for signed elements, else 0: AI_BUFFER_FMT_GET_SIGN."""
    return fmt >> 23 & 1


def fmt_get_bits(fmt: int) -> int:
    """Return the bits of an element: AI_BUFFER_FMT_GET_BITS."""
    return fmt >> 7 & 0x7F


def fmt_get_fbits(fmt: int) -> int:
    """Return the fractional bits of an element: AI_BUFFER_FMT_GET_FBITS."""
    return (fmt & 0x7F) - _FBITS_BIAS


def fmt_get(fmt: int) -> int:
    """Return a format without attribute flags: AI_BUFFER_FORMAT."""
    return fmt & _FORMAT_MASK


def byte_size(count: int, fmt: int) -> int:
    """Return the bytes of `count` elements: AI_BUFFER_BYTE_SIZE."""
    return (count * fmt_get_bits(fmt) + 4) >> 3


def dtype_of(fmt: int) -> np.dtype[np.generic]:
    """Return the little-endian NumPy type of a format's elements; ValueError for none."""
    kind, bits = fmt_get_type(fmt), fmt_get_bits(fmt)
    letter = _LETTERS.get(kind) or ("i" if fmt_get_sign(fmt) else "u")
    if kind not in (FMT_TYPE_FLOAT, FMT_TYPE_Q, FMT_TYPE_BOOL) or bits not in (8, 16, 32, 64):
        raise ValueError(f"fmt: 0x{fmt:08X}, expected elements of a whole type")
    return np.dtype(f"<{letter}{bits // 8}")


def quantize(values: Array, scale: float, zero_point: int, fmt: int) -> Array:
    """Quantize floats to integers, as in the documented snippet.

    NaN becomes `zero_point`; values beyond the type saturate.
    """
    with np.errstate(all="ignore"):
        scaled = np.asarray(values, np.float32) * (np.float32(1.0) / np.float32(scale))
        rounded = np.trunc(scaled + np.where(scaled < 0, np.float32(-0.5), np.float32(0.5)))
    whole = np.nan_to_num(rounded.astype(np.float64), nan=0.0) + zero_point
    limits = np.iinfo(dtype_of(fmt).name)
    clipped: Array = np.clip(whole, limits.min, limits.max)
    return clipped.astype(dtype_of(fmt))


def dequantize(values: Array, scale: float, zero_point: int) -> npt.NDArray[np.float32]:
    """Dequantize integers to floats, as in the documented snippet."""
    return np.float32(scale) * (np.asarray(values).astype(np.float32) - np.float32(zero_point))


def to_bhwc(array: Array) -> Array:
    """Convert batches of channels-first tensors to the contiguous layout of buffers.

    (b, c, h, w) becomes (b, h, w, c), (b, h, c) becomes (b, h, 1, c), (b, c) becomes (b, 1, 1, c).
    """
    match array.ndim:
        case 4:
            return np.ascontiguousarray(array.transpose(0, 2, 3, 1))
        case 3:
            return np.ascontiguousarray(array[:, :, np.newaxis, :])
        case 2:
            return np.ascontiguousarray(array[:, np.newaxis, np.newaxis, :])
        case _:
            raise ValueError(f"array: {array.ndim} dims, expected 2 to 4, the batch first")


def from_bhwc(array: Array, ndim: int) -> Array:
    """Undo `to_bhwc`: return a (b, h, w, c) array with the model's 2 to 4 dims."""
    match ndim:
        case 4:
            return np.ascontiguousarray(array.transpose(0, 3, 1, 2))
        case 3:
            return array.reshape(array.shape[0], array.shape[1], array.shape[3])
        case 2:
            return array.reshape(array.shape[0], array.shape[3])
        case _:
            raise ValueError(f"ndim: {ndim}, expected 2 to 4")
