# SPDX-License-Identifier: Apache-2.0
"""The elementwise functions, exactly: fractions, and decimals of 40 digits, rounded once.

Codes in, codes out. Ties away from zero; NINF in gives 7FFF out; overflow keeps its sign; log of a
number that is not positive is FFFF; roots of negative numbers are 7FFF. No result of a
transcendental function is a tie, and 40 digits decide every rounding.
"""

from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction

from tests.oracle.dlfloat import NINF, combined, rounded, selected, value

NEGATIVE_NINF = 0xFFFF
# Half a unit above the largest number, 2^33 (1 - 2^-9): what rounds out of the format.
OVERFLOW = Fraction(8573157376 + 4194304)
_DIGITS = Context(prec=40)
_EXP_LIMIT = 40

BINARY: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: combined("+", a, b),
    "sub": lambda a, b: combined("-", a, b),
    "mul": lambda a, b: combined("*", a, b),
    "div": lambda a, b: combined("/", a, b),
    "min": lambda a, b: selected("min", a, b),
    "max": lambda a, b: selected("max", a, b),
}


def log(code: int) -> int:
    """Natural logarithm."""
    exact = value(code)
    if exact is None:
        return NINF
    return NEGATIVE_NINF if exact <= 0 else _rounded(_DIGITS.ln, exact)


def exp(code: int) -> int:
    """Return e to the power; beyond 40 the result is out of the format on either side."""
    exact = value(code)
    if exact is None or exact > _EXP_LIMIT:
        return NINF
    return 0 if exact < -_EXP_LIMIT else _rounded(_DIGITS.exp, exact)


def sqrt(code: int) -> int:
    """Square root; the root of -0 is -0, as in IEEE 754."""
    exact = value(code)
    if exact is None or exact < 0:
        return NINF
    return code if exact == 0 else _rounded(_DIGITS.sqrt, exact)


def invsqrt(code: int, epsilon: int = 0) -> int:
    """1 / sqrt(x + epsilon); a sum that is not positive, or rounds out of the format, is 7FFF."""
    exact, added = value(code), value(epsilon)
    if exact is None or added is None:
        return NINF
    total = exact + added
    if total <= 0 or total >= OVERFLOW:
        return NINF
    return _rounded(lambda first: _DIGITS.divide(1, _DIGITS.sqrt(first)), total)


UNARY: dict[str, Callable[[int], int]] = {"log": log, "exp": exp, "sqrt": sqrt, "invsqrt": invsqrt}


def _rounded(formula: Callable[[Decimal], Decimal], exact: Fraction) -> int:
    number = formula(_DIGITS.divide(Decimal(exact.numerator), Decimal(exact.denominator)))
    return rounded(Fraction(number), number.is_signed())
