# SPDX-License-Identifier: Apache-2.0
"""DLFLOAT16 conversion of single cells for use inside kernels, and of runs of cells.

Rounding follows VCRNF: clamp the FP32 magnitude to the line of codes, add half a unit in the last
kept place, truncate (ties away from zero); the line starts at the FP32 bits of 2^-31.
Source: z/Architecture VCRNF and VCLFNH; zDNN API Reference 1.2.0, "Data Type Conversion".
"""

import numpy as np
import numpy.typing as npt

from nnpa_emulator.kernels.jit import implements, inlined, kernel
from nnpa_emulator.reference import sums as reference

Words = npt.NDArray[np.uint32]
Words64 = npt.NDArray[np.uint64]
Codes = npt.NDArray[np.uint16]

MAGNITUDE32 = np.uint32(0x7FFFFFFF)
INFINITY32 = np.uint32(0x7F800000)
QUIET_NAN32 = np.uint32(0x7FC00000)
LINE_LOW32 = np.uint32(0x30000000)
LINE_HIGH32 = np.uint32(0x4FFFC000)
MAX32 = np.uint32(0x4FFF8000)
ROUNDED_START32 = np.uint32(0x30000000 - 0x2000)
DROPPED_BITS = np.uint32(14)
SIGN16 = np.uint32(0x8000)
MAGNITUDE16 = np.uint16(0x7FFF)
HALF_WORD = np.uint32(16)
MAGNITUDE64 = np.uint64(0x7FFFFFFFFFFFFFFF)
INFINITY64 = np.uint64(0x7FF0000000000000)
LINE_LOW64 = np.uint64(0x3E00000000000000)
LINE_HIGH64 = np.uint64(0x41FFF80000000000)
HALF_UNIT64 = np.uint64(0x40000000000)
DROPPED_BITS64 = np.uint64(43)
LINE_START64 = np.uint64(0x7C000)


@kernel
def as_float(bits: np.uint32) -> np.float32:
    """Reinterpret 32 bits as an FP32 value."""
    value: np.float32 = np.uint32(bits).view(np.float32)
    return value


@kernel
def as_bits(value: np.float32) -> np.uint32:
    """Reinterpret an FP32 value as its 32 bits."""
    bits: np.uint32 = np.float32(value).view(np.uint32)
    return bits


@kernel
def encode(bits: np.uint32, limit: np.uint32) -> np.uint16:
    """Round FP32 bits to a code, sign kept; magnitudes stop at `limit` (FP32 bits).

    `limit` LINE_HIGH32 makes NINF of overflow, infinity and NaN; MAX32 saturates all of them.
    """
    magnitude = np.uint32(bits & MAGNITUDE32)
    clamped = np.uint32(min(max(magnitude, LINE_LOW32), limit))
    code = np.uint32(np.uint32(clamped - ROUNDED_START32) >> DROPPED_BITS)
    return np.uint16(code | (np.uint32(bits >> HALF_WORD) & SIGN16))


@kernel
def encode_result(value: np.float32) -> np.uint16:
    """Round an FP32 result to a code: finite overflow keeps its sign, NaN and infinity are 7FFF."""
    bits = as_bits(value)
    magnitude = np.uint32(bits & MAGNITUDE32)
    clamped = np.uint32(min(max(magnitude, LINE_LOW32), LINE_HIGH32))
    code = np.uint32(np.uint32(clamped - ROUNDED_START32) >> DROPPED_BITS)
    sign = np.uint32(bits >> HALF_WORD) & SIGN16
    return np.uint16(code | (np.uint32(0) if magnitude >= INFINITY32 else np.uint32(sign)))


@kernel
def decode_bits(code: np.uint16) -> np.uint32:
    """Widen a code to FP32 bits, exactly; NINF of either sign is the quiet NaN 7FC00000."""
    wide = np.uint32(code)
    magnitude = np.uint32(wide & np.uint32(0x7FFF))
    line = np.uint32(np.uint32(magnitude << DROPPED_BITS) + LINE_LOW32)
    line = np.uint32(0) if magnitude == 0 else line
    signed = np.uint32(line | np.uint32(np.uint32(wide & SIGN16) << HALF_WORD))
    return QUIET_NAN32 if magnitude == np.uint32(0x7FFF) else signed


@kernel
def decode(code: np.uint16) -> np.float32:
    """Widen a code to its FP32 value; NINF is NaN."""
    return as_float(decode_bits(code))


@inlined
def encode_run(
    words: Words, word: np.uintp, codes: Codes, code: np.uintp, count: np.uintp, limit: np.uint32
) -> tuple[np.uint32, np.uint32]:
    """Round `count` FP32 bits from index `word` to codes from index `code`; see `encode`.

    Returns the largest magnitude and the smallest magnitude minus one modulo 2^32, so that zeros,
    which never underflow, count as the largest: enough to know the flags.
    """
    largest = np.uint32(0)
    smallest = np.uint32(0xFFFFFFFF)
    for i in range(np.uintp(count)):
        bits = words[word + i]
        magnitude = np.uint32(bits & MAGNITUDE32)
        largest = np.uint32(max(largest, magnitude))
        smallest = np.uint32(min(smallest, np.uint32(magnitude - np.uint32(1))))
        codes[code + i] = encode(bits, limit)
    return largest, smallest


@inlined
def encode_masked(
    words: Words,
    word: np.uintp,
    codes: Codes,
    code: np.uintp,
    count: np.uintp,
    mask: Words,
    limit: np.uint32,
) -> tuple[np.uint32, np.uint32]:
    """Round as `encode_run` does, taking words as zero where `mask` is zero.

    Words behind the end of the array are never read, those that are masked may be.
    """
    largest = np.uint32(0)
    smallest = np.uint32(0xFFFFFFFF)
    inside = np.uintp(min(count, np.uintp(words.size) - word))
    if inside < count:
        for i in range(count):
            codes[code + i] = 0
    for i in range(count if inside == count else inside):
        bits = np.uint32(words[word + i] & mask[i])
        magnitude = np.uint32(bits & MAGNITUDE32)
        largest = np.uint32(max(largest, magnitude))
        smallest = np.uint32(min(smallest, np.uint32(magnitude - np.uint32(1))))
        codes[code + i] = encode(bits, limit)
    return largest, smallest


@inlined
def decode_run(
    codes: Codes, code: np.uintp, words: Words, word: np.uintp, count: np.uintp
) -> np.uint16:
    """Widen `count` codes from index `code` to FP32 bits from index `word`.

    Returns the largest magnitude of the codes: 7FFF says that NINF is among them.
    """
    largest = np.uint16(0)
    for i in range(np.uintp(count)):
        largest = np.uint16(max(largest, np.uint16(codes[code + i] & MAGNITUDE16)))
        words[word + i] = decode_bits(codes[code + i])
    return largest


@implements(reference.encode_fp64)
def encode_fp64(words: Words64, codes: Codes) -> np.uint16:
    """Round a run of float64 bits to codes in one step; return the largest magnitude.

    NaN is 7FFF, overflow and infinity keep their sign.
    """
    return encode_run64(words, np.uintp(0), codes, np.uintp(0), np.uintp(codes.size))


@inlined
def encode_run64(
    words: Words64, word: np.uintp, codes: Codes, code: np.uintp, count: np.uintp
) -> np.uint16:
    """Round `count` float64 bits from index `word` as `encode_fp64` does."""
    largest = np.uint16(0)
    for i in range(np.uintp(count)):
        bits = words[word + i]
        magnitude = np.uint64(bits & MAGNITUDE64)
        clamped = np.uint64(min(max(magnitude, LINE_LOW64), LINE_HIGH64))
        place = np.uint64((clamped + HALF_UNIT64) >> DROPPED_BITS64) - LINE_START64
        largest = np.uint16(max(largest, np.uint16(place)))
        sign = np.uint64(bits >> np.uint64(48)) & np.uint64(0x8000)
        codes[code + i] = np.uint16(place | (np.uint64(0) if magnitude > INFINITY64 else sign))
    return largest
