# SPDX-License-Identifier: Apache-2.0
"""DLFLOAT16, the 16-bit number of the NNPA: facts, and conversions on arrays of codes.

A code has a sign bit, six exponent bits (bias 31) and nine fraction bits; the leading one is always
implied, there are no subnormals.  Two magnitudes are special: 0x0000 is zero, 0x7FFF is NINF, one
symbol for "not a number or infinity".  Everything rounds once, to nearest, ties away from zero.
Sources: "DLFloat: A 16-b Floating Point Format" (ARITH 2019); z/Architecture VCRNF, VCLFNH, VCNF,
VCFN; zDNN API Reference 1.2.0, "Data Type Conversion"; zDNN library behaviour (flags, truncation).

Every function takes and returns whole arrays of any shape; codes are `uint16`. None raises for a
value: the `flags_*` functions return the exceptions that IEEE would signal, as bits of `Flags`.
"""

import enum
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Codes: TypeAlias = npt.NDArray[np.uint16]
"""DLFLOAT16 codes in native byte order."""

ZERO: Final = 0x0000
ONE: Final = 0x3E00
MAX: Final = 0x7FFE
LOWEST: Final = 0xFFFE
SMALLEST: Final = 0x0001
NINF: Final = 0x7FFF
NEGATIVE_NINF: Final = 0xFFFF
SIGN: Final = 0x8000
MAGNITUDE: Final = 0x7FFF

MAX_VALUE: Final = float.fromhex("0x1.ffp+32")
"""Largest finite value, 8573157376 (zDNN API Reference 1.2.0, zdnn_get_max_limit)."""
SMALLEST_VALUE: Final = float.fromhex("0x1.008p-31")
"""Smallest magnitude that is not zero; 2^-31 itself has the code of zero."""

EXPONENT_BIAS: Final = 31
FRACTION_BITS: Final = 9

_FP32_MAGNITUDE: Final = np.uint32(0x7FFFFFFF)
_FP32_INFINITY: Final = np.uint32(0x7F800000)
_FP32_QUIET_NAN: Final = np.uint32(0x7FC00000)
_FP32_UNDERFLOW: Final = np.uint32(0x2FFFE000)
"""Magnitudes below this signal underflow; from here to 0x30001FFF they become zero silently."""
_FP32_OF_ZERO_CODE: Final = np.uint32(0x30000000)
"""FP32 bits of 2^-31, where the line of codes starts."""
_FP32_TOP: Final = np.uint32(0x4FFFC000)
"""FP32 bits of the value that the NINF code would have; everything above is clamped to it."""
_FP32_MAX: Final = np.uint32(0x4FFF8000)

_FP16_QUIET_NAN: Final = 0x7E00
_FP16_INFINITY: Final = 0x7C00
FP16_OVERFLOW: Final = 0x5E00
"""65536, the first code above FP16's largest finite value."""
_CODE_FP16_EXACT: Final = 0x2000
"""2^-15: from here on every code is an exact FP16 value."""


class Flags(enum.IntFlag):
    """IEEE exception flags that a conversion raises (zDNN reads them from the C environment)."""

    NONE = 0
    INVALID = 1
    OVERFLOW = 2
    UNDERFLOW = 4
    INEXACT = 8


def from_fp32(values: npt.ArrayLike) -> Codes:
    """Round FP32 values to codes as VCRNF does: ties away, sign kept, overflow is NINF."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    clamped = np.clip(bits & _FP32_MAGNITUDE, _FP32_OF_ZERO_CODE, _FP32_TOP)
    magnitude = ((clamped + np.uint32(0x2000)) >> np.uint32(14)) - np.uint32(0xC000)
    codes: Codes = (magnitude | ((bits >> np.uint32(16)) & np.uint32(SIGN))).astype(np.uint16)
    return codes


def from_fp64(values: npt.ArrayLike) -> Codes:
    """Round float64 values to codes in one step, ties away; NaN and infinities become NINF."""
    bits = np.asarray(values, np.float64).view(np.uint64)
    line = np.uint64((1023 - EXPONENT_BIAS) << FRACTION_BITS)
    shift, half = np.uint64(43), np.uint64(1 << 42)
    low, high = line << shift, (line + np.uint64(NINF)) << shift
    clamped = np.clip(bits & np.uint64(0x7FFFFFFFFFFFFFFF), low, high)
    magnitude = ((clamped + half) >> shift) - line
    codes: Codes = (magnitude | ((bits >> np.uint64(48)) & np.uint64(SIGN))).astype(np.uint16)
    return codes


def result_from_fp32(values: npt.NDArray[np.float32]) -> Codes:
    """Round FP32 results of arithmetic to codes; NaN and infinities, by zero, become 7FFF."""
    return np.where(np.isfinite(values), from_fp32(values), np.uint16(NINF))


def result_from_fp64(values: npt.NDArray[np.float64]) -> Codes:
    """Round float64 results of arithmetic to codes; NaN becomes 7FFF, infinities keep the sign."""
    return np.where(np.isnan(values), np.uint16(NINF), from_fp64(values))


def largest(codes: Codes) -> np.uint16:
    """Return the largest magnitude of codes: 7FFF says that NINF is among them."""
    return np.uint16((codes & np.uint16(MAGNITUDE)).max(initial=0))


def to_fp32(codes: Codes) -> npt.NDArray[np.float32]:
    """Widen codes to FP32 exactly, as VCLFNH does; NINF is the quiet NaN 7FC00000."""
    wide = np.asarray(codes, np.uint16).astype(np.uint32)
    magnitude = wide & np.uint32(MAGNITUDE)
    bits = (magnitude << np.uint32(14)) + _FP32_OF_ZERO_CODE
    bits = np.where(magnitude == 0, np.uint32(0), bits)
    bits |= (wide & np.uint32(SIGN)) << np.uint32(16)
    return np.where(magnitude == NINF, _FP32_QUIET_NAN, bits).view(np.float32)


def from_fp16(values: npt.NDArray[np.float16]) -> Codes:
    """Round FP16 values to codes: a normal FP16 with odd fraction is a tie, goes away."""
    with np.errstate(invalid="ignore"):
        return from_fp32(np.asarray(values, np.float16).astype(np.float32))


def to_fp16(codes: Codes) -> npt.NDArray[np.float16]:
    """Convert codes to FP16: exact from 2^-15 to 65472, infinity from 65536, ties away below."""
    wide = np.asarray(codes, np.uint16).astype(np.int64)
    magnitude = wide & MAGNITUDE
    significand = (1 << FRACTION_BITS) + (magnitude & 0x1FF)
    shift = np.maximum(16 - (magnitude >> FRACTION_BITS), 0)
    small = (significand + ((1 << shift) >> 1)) >> shift
    normal = (((magnitude >> FRACTION_BITS) - 16) << 10) | ((magnitude & 0x1FF) << 1)
    bits = np.where(magnitude < 0x2200, small, normal)
    bits = np.where(magnitude == 0, 0, bits)
    bits = np.where(magnitude >= FP16_OVERFLOW, _FP16_INFINITY, bits) | (wide & SIGN)
    bits = np.where(magnitude == NINF, _FP16_QUIET_NAN, bits)
    return bits.astype(np.uint16).view(np.float16)


def widen_bfloat(bits: Codes) -> npt.NDArray[np.float32]:
    """Widen BFLOAT bit patterns to FP32 by sixteen zero bits: exact."""
    return (np.asarray(bits, np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_bfloat(codes: Codes) -> npt.NDArray[np.uint16]:
    """Convert codes to BFLOAT bit patterns by truncation: zDNN drops the low half of the FP32."""
    return (to_fp32(codes).view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def saturate_fp32(values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Clamp finite FP32 values to ±8573157376; infinities and NaN stay (zdnn library behaviour)."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    magnitude = bits & _FP32_MAGNITUDE
    clamped = np.minimum(magnitude, _FP32_MAX) | (bits & np.uint32(0x80000000))
    return np.where(magnitude >= _FP32_INFINITY, bits, clamped).view(np.float32)


def text_of(code: int) -> str:
    """Return a code in decimal for messages; NINF with the range that it lies beyond."""
    if code & MAGNITUDE == NINF:
        return f"NINF (beyond {MAX_VALUE:.0f} in magnitude)"
    return str(float(to_fp32(np.array(code, np.uint16))))


def scalar_to_dlfloat(value: float) -> int:
    """Reduce a scalar argument to its code: zero of either sign is 0x0000, else one VCRNF rounding.

    The argument counts as FP32, as the C prototype has it (zDNN library behaviour, scalar
    parameters of zdnn_relu, zdnn_leaky_relu, zdnn_invsqrt and the quantized operations).
    """
    with np.errstate(over="ignore", under="ignore"):
        single = np.float32(value)
    return ZERO if single == 0 else int(from_fp32(single))


def signals_from_fp32(values: npt.ArrayLike) -> npt.NDArray[np.uint8]:
    """Return, element by element, the `Flags` bits that rounding FP32 values raises.

    NaN is I, infinity O, a magnitude below 0x2FFFE000 that is not zero U.
    """
    magnitude = np.asarray(values, np.float32).view(np.uint32) & _FP32_MAGNITUDE
    tiny = (magnitude != 0) & (magnitude < _FP32_UNDERFLOW)
    return _signals(magnitude > _FP32_INFINITY, magnitude == _FP32_INFINITY, tiny)


def signals_to_fp32(codes: Codes) -> npt.NDArray[np.uint8]:
    """Return the bits that widening codes to FP32 or BFLOAT raises: NINF is I, all else exact."""
    ninf = (np.asarray(codes, np.uint16) & MAGNITUDE) == NINF
    return _signals(ninf, np.zeros_like(ninf), np.zeros_like(ninf))


def signals_to_fp16(codes: Codes) -> npt.NDArray[np.uint8]:
    """Return the bits of narrowing codes to FP16: NINF I, from 65536 O, inexact below 2^-15 U."""
    magnitude = np.asarray(codes, np.uint16).astype(np.int64) & MAGNITUDE
    shift = np.maximum(16 - (magnitude >> FRACTION_BITS), 0)
    lost = ((1 << FRACTION_BITS) + (magnitude & 0x1FF)) & ((1 << shift) - 1)
    tiny = (magnitude != 0) & (magnitude < _CODE_FP16_EXACT) & (lost != 0)
    ninf = magnitude == NINF
    return _signals(ninf, (magnitude >= FP16_OVERFLOW) & ~ninf, tiny)


def flags_from_fp32(values: npt.ArrayLike) -> Flags:
    """Return the flags that rounding these FP32 values raises, joined."""
    return Flags(int(np.bitwise_or.reduce(signals_from_fp32(values), axis=None)))


def _signals(
    invalid: npt.NDArray[np.bool_],
    overflow: npt.NDArray[np.bool_],
    underflow: npt.NDArray[np.bool_],
) -> npt.NDArray[np.uint8]:
    """Join the three flags that conversions can raise; inexact is never one of them."""
    bits = Flags.INVALID * invalid + Flags.OVERFLOW * overflow + Flags.UNDERFLOW * underflow
    return np.asarray(bits, np.uint8)
