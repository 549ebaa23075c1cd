# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: A001, A002 - names and places of C functions and their parameters
"""Element by element operations: 10 verbs of zDNN."""

from nnpa.zdnn.v1.operation_pb2 import (
    Add,
    Div,
    Exp,
    Invsqrt,
    Log,
    Max,
    Min,
    Mul,
    Operation,
    Sqrt,
    Sub,
)

from nnpa_client.zdnn._verb import Verb
from nnpa_client.ztensor import Ztensor

__all__ = [
    "add",
    "div",
    "exp",
    "invsqrt",
    "log",
    "max",
    "min",
    "mul",
    "sqrt",
    "sub",
]


def add(input_a: Ztensor, input_b: Ztensor, output: Ztensor | None = None) -> Ztensor:
    """Return input_a + input_b, element by element.

    All of one shape; nothing is broadcast.
    Source: zDNN API Reference 1.2.0, zdnn_add.
    """
    verb = Verb("add", {"output": output}, input_a=input_a, input_b=input_b)
    return verb.result(Operation(add=Add(**verb.refs)))


def sub(input_a: Ztensor, input_b: Ztensor, output: Ztensor | None = None) -> Ztensor:
    """Return input_a - input_b, element by element.

    All of one shape; nothing is broadcast.
    Source: zDNN API Reference 1.2.0, zdnn_sub.
    """
    verb = Verb("sub", {"output": output}, input_a=input_a, input_b=input_b)
    return verb.result(Operation(sub=Sub(**verb.refs)))


def mul(input_a: Ztensor, input_b: Ztensor, output: Ztensor | None = None) -> Ztensor:
    """Return input_a * input_b, element by element.

    All of one shape; nothing is broadcast.
    Source: zDNN API Reference 1.2.0, zdnn_mul.
    """
    verb = Verb("mul", {"output": output}, input_a=input_a, input_b=input_b)
    return verb.result(Operation(mul=Mul(**verb.refs)))


def div(input_a: Ztensor, input_b: Ztensor, output: Ztensor | None = None) -> Ztensor:
    """Return input_a / input_b, element by element.

    All of one shape; nothing is broadcast. Division by zero warns: ZDNN_ELEMENT_RANGE_VIOLATION.
    Source: zDNN API Reference 1.2.0, zdnn_div.
    """
    verb = Verb("div", {"output": output}, input_a=input_a, input_b=input_b)
    return verb.result(Operation(div=Div(**verb.refs)))


def min(input_a: Ztensor, input_b: Ztensor, output: Ztensor | None = None) -> Ztensor:
    """Return the lesser of input_a and input_b, element by element.

    All of one shape; nothing is broadcast.
    Source: zDNN API Reference 1.2.0, zdnn_min.
    """
    verb = Verb("min", {"output": output}, input_a=input_a, input_b=input_b)
    return verb.result(Operation(min=Min(**verb.refs)))


def max(input_a: Ztensor, input_b: Ztensor, output: Ztensor | None = None) -> Ztensor:
    """Return the greater of input_a and input_b, element by element.

    All of one shape; nothing is broadcast.
    Source: zDNN API Reference 1.2.0, zdnn_max.
    """
    verb = Verb("max", {"output": output}, input_a=input_a, input_b=input_b)
    return verb.result(Operation(max=Max(**verb.refs)))


def log(input: Ztensor, output: Ztensor | None = None) -> Ztensor:
    """Return the natural logarithm of each element.

    An element that is not positive warns: ZDNN_ELEMENT_RANGE_VIOLATION.
    Source: zDNN API Reference 1.2.0, zdnn_log.
    """
    verb = Verb("log", {"output": output}, input=input)
    return verb.result(Operation(log=Log(**verb.refs)))


def exp(input: Ztensor, output: Ztensor | None = None) -> Ztensor:
    """Return e to the power of each element. Source: zDNN API Reference 1.2.0, zdnn_exp."""
    verb = Verb("exp", {"output": output}, input=input)
    return verb.result(Operation(exp=Exp(**verb.refs)))


def sqrt(input: Ztensor, output: Ztensor | None = None) -> Ztensor:
    """Return the square root of each element. Telum II.

    A negative element warns: ZDNN_ELEMENT_RANGE_VIOLATION.
    Source: zDNN API Reference 1.2.0, zdnn_sqrt.
    """
    verb = Verb("sqrt", {"output": output}, input=input)
    return verb.result(Operation(sqrt=Sqrt(**verb.refs)))


def invsqrt(input: Ztensor, epsilon: float, output: Ztensor | None = None) -> Ztensor:
    """Return 1 / sqrt(input + epsilon), element by element. Telum II.

    `epsilon` is rounded to DLFLOAT16.
    Source: zDNN API Reference 1.2.0, zdnn_invsqrt.
    """
    verb = Verb("invsqrt", {"output": output}, input=input)
    return verb.result(Operation(invsqrt=Invsqrt(**verb.refs, epsilon=epsilon)))
