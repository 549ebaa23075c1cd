# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: A002 - names of the standard's parameters
"""Functions of the namespace by element."""

from nnpa_client import zdnn
from nnpa_client.array_api._conformance import Difference, entered
from nnpa_client.array_api._operands import operand, require_ztensor
from nnpa_client.dlfloat16 import finfo
from nnpa_client.ztensor import Ztensor, _operators

__tracebackhide__ = True  # pytest shows the line that called, not these

_PRECISION, _RANGE = Difference.PRECISION, Difference.RANGE
_INFINITIES, _BROADCASTING = Difference.INFINITIES, Difference.BROADCASTING


@entered("add", _PRECISION, _RANGE, _BROADCASTING)
def add(x1: Ztensor, x2: Ztensor, /) -> Ztensor:
    """Return x1 + x2, of equal shapes, rounded once: zdnn_add."""
    return _pair("add", "add", x1, x2)


@entered("sub", _PRECISION, _RANGE, _BROADCASTING)
def subtract(x1: Ztensor, x2: Ztensor, /) -> Ztensor:
    """Return x1 - x2, of equal shapes, rounded once: zdnn_sub."""
    return _pair("subtract", "sub", x1, x2)


@entered("mul", _PRECISION, _RANGE, _BROADCASTING)
def multiply(x1: Ztensor, x2: Ztensor, /) -> Ztensor:
    """Return x1 * x2, of equal shapes, rounded once: zdnn_mul."""
    return _pair("multiply", "mul", x1, x2)


@entered("div", _PRECISION, _RANGE, _INFINITIES, _BROADCASTING)
def divide(x1: Ztensor, x2: Ztensor, /) -> Ztensor:
    """Return x1 / x2, of equal shapes, rounded once: zdnn_div."""
    return _pair("divide", "div", x1, x2)


@entered("min", _BROADCASTING)
def minimum(x1: Ztensor, x2: Ztensor, /) -> Ztensor:
    """Return the lesser of each pair of elements, of equal shapes: zdnn_min."""
    return _pair("minimum", "min", x1, x2)


@entered("max", _BROADCASTING)
def maximum(x1: Ztensor, x2: Ztensor, /) -> Ztensor:
    """Return the greater of each pair of elements, of equal shapes: zdnn_max."""
    return _pair("maximum", "max", x1, x2)


@entered("mul", _PRECISION, _RANGE)
def square(x: Ztensor, /) -> Ztensor:
    """Return x * x, rounded once: zdnn_mul."""
    x = _lazy("square", x)
    return zdnn.mul(x, x)


@entered("exp", _PRECISION, _RANGE, _INFINITIES)
def exp(x: Ztensor, /) -> Ztensor:
    """Return e to the power of each element: zdnn_exp."""
    return zdnn.exp(_lazy("exp", x))


@entered("log", _PRECISION, _INFINITIES)
def log(x: Ztensor, /) -> Ztensor:
    """Return the natural logarithm of each element: zdnn_log."""
    return zdnn.log(_lazy("log", x))


@entered("sqrt", _PRECISION)
def sqrt(x: Ztensor, /) -> Ztensor:
    """Return the square root of each element: zdnn_sqrt, which needs Telum II."""
    return zdnn.sqrt(_lazy("sqrt", x))


@entered("tanh", _PRECISION)
def tanh(x: Ztensor, /) -> Ztensor:
    """Return the hyperbolic tangent of each element: zdnn_tanh."""
    return zdnn.tanh(_lazy("tanh", x))


@entered("relu", _PRECISION, Difference.ARGUMENTS)
def clip(
    x: Ztensor, /, min: float | Ztensor | None = None, max: float | Ztensor | None = None
) -> Ztensor:
    """Return each element, 0 where it is negative, and at most `max`: zdnn_relu.

    `max` is rounded to DLFLOAT16. Raises NotImplementedError for a `min` that is not 0, and for a
    `max` that is neither None nor a number that DLFLOAT16 has, above 0.
    """
    if isinstance(min, Ztensor) or min != 0:
        raise NotImplementedError(f"clip: min {min!r}, expected 0: zdnn_relu has no other")
    low, high = finfo.smallest_normal, finfo.max
    if isinstance(max, Ztensor) or (max is not None and not low <= max <= high):
        raise NotImplementedError(f"clip: max {max!r}, expected {low:g} to {high:.0f}, or None")
    return zdnn.relu(_lazy("clip", x), max)


def _pair(function: str, verb: str, x1: Ztensor, x2: Ztensor) -> Ztensor:
    first, second = _lazy(function, x1, "x1"), _lazy(function, x2, "x2")
    return _operators.elementwise(verb, first, second)


def _lazy(function: str, x: Ztensor, name: str = "x") -> Ztensor:
    """Return `operand`, or as it is a ztensor that an open pipeline is to make."""
    require_ztensor(function, x, name)
    return x if x.held is None else operand(function, x, name)
