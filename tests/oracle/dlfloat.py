# SPDX-License-Identifier: Apache-2.0
"""DLFLOAT16 by exact arithmetic: the format's definition in integers and fractions.

Source: "DLFloat: A 16-b Floating Point Format" (ARITH 2019) for the encoding and the rounding
(nearest, ties away from zero); IEEE 754 for the other formats.
"""

from collections.abc import Callable
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt

NINF = 0x7FFF
Compiled = TypeVar("Compiled", bound=Callable[..., object])


def value(code: int) -> Fraction | None:
    """Return the exact value of a code, None for NINF."""
    magnitude = code & 0x7FFF
    if magnitude == NINF:
        return None
    if magnitude == 0:
        return Fraction(0)
    significand = Fraction(512 + magnitude % 512, 512)
    exact = significand * Fraction(2) ** (magnitude // 512 - 31)
    return -exact if code & 0x8000 else exact


def rounded(exact: Fraction, negative: bool) -> int:
    """Round an exact value to its code; `negative` is the sign that a zero result keeps."""
    sign = 0x8000 if negative else 0
    size = abs(exact)
    if size == 0:
        return sign
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    units = size / Fraction(2) ** (exponent - 9)
    significand = (2 * units.numerator + units.denominator) // (2 * units.denominator)
    if significand == 1024:
        significand, exponent = 512, exponent + 1
    magnitude = (exponent + 31) * 512 + significand - 512
    return sign | min(max(magnitude, 0), NINF)


def combined(operation: str, a: int, b: int) -> int:
    """Return the code of `a operation b` for two codes: one rounding, NINF 7FFF, x/0 7FFF."""
    x, y = value(a), value(b)
    if x is None or y is None or (operation == "/" and y == 0):
        return NINF
    left, right = bool(a & 0x8000), bool(b & 0x8000)
    if operation in "*/":
        exact = x * y if operation == "*" else x / y
        return rounded(exact, left != right)
    right = right != (operation == "-")
    exact = x + y if operation == "+" else x - y
    return rounded(exact, exact < 0 or (exact == 0 and x == 0 and left and right))


def selected(operation: str, a: int, b: int) -> int:
    """Return the code of min or max of two codes: -0 is less than +0, NINF wins as 7FFF."""
    x, y = value(a), value(b)
    if x is None or y is None:
        return NINF
    order = sorted((a, b), key=lambda code: (value(code), not code & 0x8000))
    return order[0] if operation == "min" else order[1]


def fp16_bits(code: int) -> int:
    """Return the FP16 bits of a code: infinity from 65536, multiples of 2^-24 ties away below."""
    exact = value(code)
    sign = code & 0x8000
    if exact is None:
        return 0x7E00
    size = abs(exact)
    if size >= 65536:
        return sign | 0x7C00
    if size < Fraction(1, 1 << 14):
        units = size * (1 << 24)
        return sign | (2 * units.numerator + units.denominator) // (2 * units.denominator)
    exponent = (code & 0x7FFF) // 512 - 31
    return sign | (exponent + 15) * 1024 + code % 512 * 2


def _compiled(function: Compiled) -> Compiled:
    """Compile a function, or return it as it is without Numba: both compute the same integers."""
    if find_spec("numba") is None:
        return function
    return cast(Compiled, import_module("numba").njit(nogil=True, cache=True)(function))


@_compiled
def codes_of_fp32(first: int, codes: npt.NDArray[np.uint16]) -> int:
    """Fill in the codes of the FP32 bit patterns from `first` on; return all their flags, or-ed.

    Takes the number apart (sign, exponent, 24-bit significand) and works on integers; flags are
    1 invalid, 2 overflow, 4 underflow.
    """
    flags = 0
    for i in range(codes.size):
        bits = first + i
        exponent, fraction = (bits >> 23) & 0xFF, bits & 0x7FFFFF
        magnitude = 0
        if exponent == 255:
            magnitude = 0x7FFF
            flags |= 1 if fraction else 2
        elif exponent > 0:
            significand = ((0x800000 | fraction) + 0x2000) >> 14
            power = exponent - 127 + 31
            if significand == 1024:
                significand, power = 512, power + 1
            magnitude = min(max(power * 512 + significand - 512, 0), 0x7FFF)
            if power < 0:
                flags |= 4
        elif fraction:
            flags |= 4
        codes[i] = (bits >> 31) * 0x8000 + magnitude
    return flags
