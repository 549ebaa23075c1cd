# SPDX-License-Identifier: Apache-2.0
"""Arithmetic of the data conversion group: the manual's formula, and the two libraries.

x_dst = Sat(Round((x_src - z_src) * s_src / 2^n_src * 2^n_dst / s_dst) + z_dst)

Source: embARC MLI documentation 2.0, "Data Conversion Group". The zero point is added after
rounding, as the library does; with ties to even and an odd z_dst the printed order differs.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from mli_emulator.fixedpoint import (
    IntArray,
    Rounding,
    saturate,
    scale_rounded,
    shift_left_saturated,
)

Float32Array = npt.NDArray[np.float32]


class Conversion(Enum):
    """Whose arithmetic converts integers to integers.

    EXACT: the formula, rational, rounded once. LIBRARY_2_0_2: a 15-bit scale ratio, and 32-bit
    high products where a side is SA_32. LIBRARY_2_0_EA: the early-access library, which rounds
    the zero point apart and saturates twice (convergent rounding only).
    """

    EXACT = "exact"
    LIBRARY_2_0_2 = "2.0.2"
    LIBRARY_2_0_EA = "2.0 EA"


@dataclass(frozen=True, slots=True)
class Quantisation:
    """zero, scale and fractional bits, each broadcast over the tensor; container bits."""

    zero: IntArray
    scale: IntArray
    frac_bits: IntArray
    bits: int


def requantise(
    x: IntArray, src: Quantisation, dst: Quantisation, conversion: Conversion, rounding: Rounding
) -> IntArray:
    """Integers of one quantisation as integers of another, in dst's container."""
    if conversion is Conversion.EXACT:
        return _exact(x, src, dst, rounding)
    scale, shift = _scale_pair(src, dst, rounding)
    if conversion is Conversion.LIBRARY_2_0_EA:
        return _early_access(x, src, dst, scale, shift, rounding)
    if 32 in (src.bits, dst.bits):
        return _wide(x, src, dst, scale, shift, rounding)
    count = np.minimum(shift, 31)
    product = saturate(x - src.zero, 16) * scale
    rounded = scale_rounded(product, count, 32, rounding)
    return saturate(saturate(rounded + dst.zero, 32), dst.bits)


def _exact(x: IntArray, src: Quantisation, dst: Quantisation, rounding: Rounding) -> IntArray:
    """Round (x - z) * s_src * 2^left / (|s_dst| * 2^right) once.

    Numerators stay under 2^48; a left shift may saturate them at 2^62, which is beyond any
    container still after the division. The remainder of the division decides ties.
    """
    divisor = np.abs(dst.scale)
    left = dst.frac_bits - src.frac_bits
    numerator = (x - src.zero) * src.scale * np.sign(dst.scale)
    numerator = shift_left_saturated(numerator, np.maximum(left, 0), 63)
    right = np.minimum(np.maximum(-left, 0), 61)
    quotient, rest = np.divmod(numerator, divisor)
    floor = quotient >> right
    dropped = quotient - (
        floor << right
    )  # the value is floor + (dropped + rest / divisor) / 2^right
    half = np.where(right == 0, 0, np.int64(1) << np.maximum(right - 1, 0))
    twice_rest = np.where(right == 0, 2 * rest - divisor, rest)
    above = (dropped > half) | ((dropped == half) & (twice_rest > 0))
    tie = (dropped == half) & (twice_rest == 0)
    upward = tie if rounding is Rounding.UP else tie & ((floor & 1) == 1)
    return saturate(floor + (above | upward) + dst.zero, dst.bits)


def _scale_pair(
    src: Quantisation, dst: Quantisation, rounding: Rounding
) -> tuple[IntArray, IntArray]:
    """Compute the library's 16-bit ratio of scales and the shift that belongs to it."""
    k = _norm(src.scale, 32) - _norm(dst.scale, 16)
    numerator = src.scale << k
    ratio = (np.abs(numerator) // np.abs(dst.scale)) * np.sign(dst.scale)
    excess = 16 - _norm(ratio, 32)
    shift = k + src.frac_bits - dst.frac_bits - excess
    return scale_rounded(ratio, excess, 16, rounding), shift


def _norm(y: IntArray, bits: int) -> IntArray:
    """Left shifts that normalise y in ``bits`` bits; bits - 1 for 0 and -1."""
    magnitude = np.where(y < 0, ~y, y).astype(np.float64)
    return bits - 1 - np.frexp(magnitude)[1].astype(np.int64)


def _early_access(
    x: IntArray,
    src: Quantisation,
    dst: Quantisation,
    scale: IntArray,
    shift: IntArray,
    rounding: Rounding,
) -> IntArray:
    """MLI 2.0 EA: sat(sat(x * scale) + offset), the offset kept in the container's width."""
    zero = scale_rounded(scale * src.zero, shift, 16, rounding)
    offset = saturate(dst.zero - zero, 16)
    if dst.bits == 8:
        offset = ((offset + 128) & 255) - 128
    return saturate(scale_rounded(x * scale, shift, dst.bits, rounding) + offset, dst.bits)


def _wide(
    x: IntArray,
    src: Quantisation,
    dst: Quantisation,
    scale: IntArray,
    shift: IntArray,
    rounding: Rounding,
) -> IntArray:
    """MLI 2.0.2 with SA_32 on a side: normalised operands, the high 32 bits of the product."""
    count = np.minimum(shift, 63)
    d = saturate(x - src.zero, 32)
    d_norm, scale_norm = _norm(d, 32), _norm(scale, 32)
    high = ((d << d_norm) * (scale << scale_norm)) >> 32
    right = count + scale_norm + d_norm - 32
    rounded = np.where(right > 31, 0, scale_rounded(high, np.minimum(right, 31), 32, rounding))
    return saturate(saturate(rounded + dst.zero, 32), dst.bits)


def from_float(x: Float32Array, dst: Quantisation) -> IntArray:
    """FP_32 to integers in single precision: nearest, ties away from zero in either rounding mode.

    NaN becomes the zero point; values beyond the container, infinities too, saturate by sign.
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        inverse = np.float32(1) / dst.scale.astype(np.float32)
        factor = (np.exp2(dst.frac_bits.astype(np.float64)) * inverse).astype(np.float32)
        scaled = (x * factor).astype(np.float32)
        moved = scaled + np.where(x > 0, np.float32(0.5), np.float32(-0.5))
        whole = np.nan_to_num(np.trunc(moved).astype(np.float64), nan=0.0)
    far = float(1 << 40)  # no zero point brings that back into a container
    return saturate(np.clip(whole, -far, far).astype(np.int64) + dst.zero, dst.bits)


def to_float(x: IntArray, src: Quantisation) -> Float32Array:
    """Integers to FP_32: one single-precision product of the difference and the scale."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        factor = np.ldexp(src.scale.astype(np.float64), -src.frac_bits).astype(np.float32)
        return (saturate(x - src.zero, 32).astype(np.float32) * factor).astype(np.float32)
