# SPDX-License-Identifier: Apache-2.0
"""The 32-bit format word of a buffer, its quantisation, and the documented conversions.

Source: X-CUBE-AI 7.0 Embedded Inference Client API 1.1.0, "Tensor format", "float32 to 8b data type
conversion", "8b to float32 data type conversion"; bit positions as its public header compiles them.
"""

from dataclasses import dataclass
from enum import IntEnum, IntFlag

import numpy as np
import numpy.typing as npt

from nnpa_network.program import Array, DType

# Fields of the word: (lowest bit, width).
_FBITS, _BITS, _TYPE = (0, 7), (7, 7), (17, 4)
_FBITS_BIAS = 64
_FORMAT_MASK = 0x01FF_FFFF  # everything but the attribute flags


class FormatType(IntEnum):
    """Kinds of elements: AI_BUFFER_FMT_TYPE_XXX."""

    NONE = 0
    FLOAT = 1
    Q = 2
    BOOL = 3


class FormatFlag(IntFlag):
    """Attributes of a buffer, which comparisons of formats leave out: AI_BUFFER_FMT_FLAG_XXX."""

    IS_IO = 1 << 27
    STATIC = 1 << 29
    CONST = 1 << 30


class Format(IntEnum):
    """Predefined formats: AI_BUFFER_FORMAT_XXX. Those after BOOL are internal ones of the runtime.

    `Q` and `UQ` are wildcards: any fixed-point format of their sign.
    """

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


_OF_DTYPE = {
    "f4": Format.FLOAT,
    "f2": Format.FLOAT16,
    "f8": Format.FLOAT64,
    "i1": Format.S8,
    "i2": Format.S16,
    "i4": Format.S32,
    "i8": Format.S64,
    "u1": Format.U8,
    "u2": Format.U16,
    "u4": Format.U32,
    "u8": Format.U64,
    "b1": Format.BOOL,
}
# What decides the type of an element: not the fraction, and not the bit FLOAT, which later headers
# leave clear.
_ELEMENT_MASK = 0x00FF_FF80
_DTYPES = {word & _ELEMENT_MASK: name for name, word in _OF_DTYPE.items()}


def _field(word: int, place: tuple[int, int]) -> int:
    low, width = place
    return word >> low & (1 << width) - 1


def get_type(word: int) -> int:
    """Return the type of a word, AI_BUFFER_FMT_GET_TYPE: a `FormatType`, or a bare number."""
    return _field(word, _TYPE)


def get_bits(word: int) -> int:
    """Return the bits of an element: AI_BUFFER_FMT_GET_BITS."""
    return _field(word, _BITS)


def get_fbits(word: int) -> int:
    """Return the fractional bits of an element: AI_BUFFER_FMT_GET_FBITS."""
    return _field(word, _FBITS) - _FBITS_BIAS


def without_flags(word: int) -> int:
    """Return the word without attribute flags: AI_BUFFER_FORMAT."""
    return word & _FORMAT_MASK


def same_format(a: int, b: int) -> bool:
    """Return whether two words agree in all but attribute flags."""
    return without_flags(a) == without_flags(b)


def byte_size(count: int, word: int) -> int:
    """Return the bytes of `count` elements, AI_BUFFER_BYTE_SIZE: (count * bits + 4) >> 3.

    Exact for elements of whole bytes; it rounds up by 4 bits, not by 7, for smaller ones.
    """
    return (count * get_bits(word) + 4) >> 3


def format_of(dtype: npt.DTypeLike) -> int:
    """Return the format of a NumPy type; ValueError for one that no format describes."""
    name = np.dtype(dtype).str[1:]
    if name not in _OF_DTYPE:
        raise ValueError(f"dtype: {np.dtype(dtype)}, expected one of {', '.join(_OF_DTYPE)}")
    return _OF_DTYPE[name]


def dtype_of(word: int) -> DType:
    """Return the little-endian NumPy type that holds elements of a format.

    ValueError for a word whose elements are no whole type: NONE, wildcards, compressed formats.
    """
    name = _DTYPES.get(word & _ELEMENT_MASK)
    if name is None:
        raise ValueError(f"format: 0x{word & 0xFFFFFFFF:08X}, expected elements of a whole type")
    return np.dtype(f"<{name}")


@dataclass(frozen=True, slots=True)
class MetaInfo:
    """Quantisation of one tensor: real = scale * (q - zero_point); scale 0: no quantisation.

    Source: AI_BUFFER_META_INFO_INTQ; tensors of the application have one pair, at position 0.
    """

    scale: float
    zero_point: int


@dataclass(frozen=True, slots=True)
class Buffer:
    """A description of memory: `ai_buffer`, channels last, batches outermost.

    `data` is the memory, None for C's NULL. `offset` is where it lies in the network's activations,
    in bytes, None when it lies elsewhere. `parts` are the pieces of split weights, in graph order.
    `meta_info` is there only in a report.
    """

    format: int = Format.NONE
    n_batches: int = 1
    height: int = 1
    width: int = 1
    channels: int = 1
    data: bytes | memoryview | None = None
    offset: int | None = None
    parts: tuple[bytes, ...] | None = None
    meta_info: MetaInfo | None = None

    @property
    def size(self) -> int:
        """The elements of one batch: AI_BUFFER_SIZE."""
        return self.height * self.width * self.channels

    @property
    def nbytes(self) -> int:
        """Bytes of one batch."""
        return byte_size(self.size, self.format)

    @property
    def is_empty(self) -> bool:
        """Whether all dimensions are 0: as weights it means the default ones."""
        return not (self.height or self.width or self.channels)


def quantise(values: Array, scale: float, zero_point: int, word: int) -> Array:
    """Return 8-bit (or 16-bit) integers of floats, by the documented snippet.

    The reciprocal of `scale` is made once, in FP32; products are rounded half away from zero by
    adding 0.5 in FP32 and truncating. Where C leaves the result undefined: NaN is `zero_point`,
    values beyond the integers saturate.
    """
    with np.errstate(all="ignore"):
        inverse = np.float32(1.0) / np.float32(scale)
        products = np.asarray(values, np.float32) * inverse
        half = np.where(products < 0, np.float32(-0.5), np.float32(0.5))
        return _clamped(np.trunc(products + half), zero_point, word)


def dequantise(values: Array, scale: float, zero_point: int) -> npt.NDArray[np.float32]:
    """Return floats of integers, by the documented snippet: one subtraction, one multiplication."""
    with np.errstate(all="ignore"):
        return np.float32(scale) * (np.asarray(values).astype(np.float32) - np.float32(zero_point))


def to_fixed_point(values: Array, word: int) -> Array:
    """Return elements of a format QM.N: q = round half away (x * 2^N), saturated; NaN is 0."""
    with np.errstate(all="ignore"):
        scaled = np.ldexp(np.asarray(values, np.float64), get_fbits(word))
        rounded = np.trunc(scaled + np.copysign(0.5, scaled))
    return _clamped(rounded, 0, word)


def from_fixed_point(values: Array, word: int) -> npt.NDArray[np.float32]:
    """Return floats of elements of a format QM.N: q * 2^-N."""
    exact = np.ldexp(np.asarray(values).astype(np.float64), -get_fbits(word))
    return exact.astype(np.float32)


def _clamped(whole: Array, zero_point: int, word: int) -> Array:
    """Return whole numbers, moved by the zero point, as elements of a format; NaN moves from 0."""
    kind = dtype_of(word)
    limits = np.iinfo(kind)
    moved = np.nan_to_num(whole.astype(np.float64), nan=0.0) + zero_point
    return np.clip(moved, limits.min, limits.max).astype(kind)
