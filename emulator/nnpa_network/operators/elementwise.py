# SPDX-License-Identifier: Apache-2.0
"""Element by element: arithmetic, comparison, functions of one value.

Sources: ONNX operators of the names given; zDNN API Reference 1.2.0, the functions of the names
given.
"""

import numpy as np

from nnpa_network.building.arrangement import NotMapped
from nnpa_network.building.builder import Builder
from nnpa_network.building.type_inference import OnnxNode, Value
from nnpa_network.operators.table import (
    Graph,
    become,
    ends_of,
    expanded,
    operator,
    optional_constant,
    preferred,
    require_float,
    required_input,
    required_output,
    reshaped,
    scalar,
)

# Source: zDNN API Reference 1.2.0 has no power; as the compiler for the machine, up to 64.
MAX_POWER = 64


def combine(builder: Builder, verb: str, a: Value, b: Value, output: Value) -> None:
    """Emit output = a (verb) b, all of one shape, where most of them already are."""
    arrangement = preferred(builder, a, b)
    first, second = builder.tensor(a, arrangement), builder.tensor(b, arrangement)
    result = builder.new_tensor(output, arrangement)
    builder.call(verb, input_a=first, input_b=second, output=result)


def apply(builder: Builder, verb: str, value: Value, output: Value, **scalars: object) -> None:
    """Emit output = verb(value)."""
    arrangement = preferred(builder, value)
    source = builder.tensor(value, arrangement)
    builder.call(verb, input=source, **scalars, output=builder.new_tensor(output, arrangement))


def _like(output: Value) -> Value:
    return Value(f"{output.name}_part", output.dtype, output.shape)


def _combined(builder: Builder, verb: str, a: Value, b: Value) -> Value:
    """Emit a (verb) b, both of one shape, and return the result."""
    result = _like(a)
    combine(builder, verb, a, b, result)
    return result


@operator("Add", "Sub", "Mul", "Div", functions=("add", "sub", "mul", "div"))
def arithmetic(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operands. Operands that are broadcast are expanded: constants at import, others by the
    host. Div of 1 by the result of a Sqrt that nothing else reads is part of that Sqrt (invsqrt).
    """
    verb, output = node.op_type.lower(), required_output(node)
    require_float(output)
    builder.require(verb)
    a, b = (expanded(builder, required_input(node, index), output.dims) for index in (0, 1))
    combine(builder, verb, a, b, output)


def _chain(builder: Builder, verb: str, node: OnnxNode, output: Value) -> Value:
    """Emit the combinations of a variadic operator's operands; return the last result."""
    values = [operand for operand in node.inputs if operand is not None]
    total = expanded(builder, values[0], output.dims)
    for value in values[1:]:
        total = _combined(builder, verb, total, expanded(builder, value, output.dims))
    return total


@operator("Min", "Max", "Sum", functions=("min", "max", "add"))
def variadic(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operands, any number of them (Min and Max with `compiler`: at most two): a chain of
    two-operand calls, each of which rounds; one operand is handed through. Operands that are
    broadcast are expanded. NaN becomes a range violation.
    """
    verb = {"Min": "min", "Max": "max", "Sum": "add"}[node.op_type]
    output = required_output(node)
    require_float(output)
    builder.require(verb)
    if node.op_type != "Sum" and len(node.inputs) > 2:
        graph.beyond(f"{len(node.inputs)} operands, must be 2", "chains them")
    become(builder, output, _chain(builder, verb, node, output))


@operator("Mean", functions=("add", "div"))
def mean(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operands: a chain of additions, then a division by their number; every step rounds.
    Operands that are broadcast are expanded.
    """
    output, count = required_output(node), len(node.inputs)
    require_float(output)
    builder.require("div")
    total = _chain(builder, "add", node, output)
    number = builder.constant(np.full(output.dims, count, output.dtype))
    combine(builder, "div", total, number, output)


@operator("Log", "Exp", "Tanh", "Sigmoid", functions=("log", "exp", "tanh", "sigmoid"))
def unary(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operand. Log of what is not positive is a range violation."""
    _unary(builder, node.op_type.lower(), node)


def _unary(builder: Builder, verb: str, node: OnnxNode, **scalars: object) -> None:
    """Emit a function of a node's float operand."""
    value, output = ends_of(builder, node, verb)
    apply(builder, verb, value, output, **scalars)


@operator("Gelu", functions=("gelu",))
def gelu(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operand, any `approximate`: the machine computes the tanh form, within 5e-4 of the Erf
    form, which the report says at the node.
    """
    if node.attributes.get("approximate", "none") == "none":
        graph.remark("gelu is the tanh form, within 5e-4 of the Erf form")
    _unary(builder, "gelu", node)


@operator("Sqrt", functions=("sqrt", "invsqrt"))
def sqrt(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operand. With a Reciprocal, or a Div of 1 by it, that alone reads the result: one
    invsqrt.
    """
    value, output = ends_of(builder, node, "sqrt")
    follower = graph.follower(output)
    if follower is not None and _is_reciprocal(follower, output):
        builder.require("invsqrt")
        apply(builder, "invsqrt", value, required_output(follower), epsilon=0.0)
        graph.absorb(follower)
        return
    apply(builder, "sqrt", value, output)


def _is_reciprocal(node: OnnxNode, value: Value) -> bool:
    if node.op_type == "Reciprocal":
        return True
    numerator = node.constant(0)
    is_reciprocal = numerator is not None and bool(np.all(numerator == 1))
    same = required_output(node).dims == value.dims
    return node.op_type == "Div" and is_reciprocal and same and node.input(1) is value


def clipping(node: OnnxNode) -> float | None:
    """Return the clipping value of a Relu or of a Clip from 0; None for none. `NotMapped` else."""
    if node.op_type == "Relu":
        return None
    lowest, highest = node.attributes.get("min"), node.attributes.get("max")
    if node.opset >= 11:
        lowest, highest = optional_constant(node, 1, "min"), optional_constant(node, 2, "max")
    least = -np.inf if lowest is None else scalar(np.asarray(lowest), 0)
    if least != 0:
        raise NotMapped(f"min is {least}, must be 0")
    limit = np.inf if highest is None else scalar(np.asarray(highest), 0)
    if limit <= 0 or np.isnan(limit):
        raise NotMapped(f"max is {limit}, must be positive")
    return None if limit > 8.5e9 else limit  # DLFLOAT16 ends at 8.57e9: nothing to clip


@operator("Relu", "Clip", functions=("relu",))
def relu(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operand; Clip only with the constants min 0 and a positive max, or none. Behind a Conv
    whose result nothing else reads it is part of conv2d.
    """
    _unary(builder, "relu", node, clipping_value=clipping(node))


@operator("HardSigmoid", functions=("mul", "add", "relu"), beyond="makes it of mul, add and relu")
def hard_sigmoid(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operand: alpha times it, plus beta, limited to 0 and 1 by relu; every step rounds."""
    attributes = node.attributes
    coefficients = float(attributes.get("alpha", 0.2)), float(attributes.get("beta", 0.5))
    _hard_sigmoid(builder, required_input(node, 0), required_output(node), coefficients)


def _hard_sigmoid(
    builder: Builder, value: Value, output: Value, coefficients: tuple[float, float]
) -> None:
    """Emit output = max(0, min(1, alpha * value + beta))."""
    require_float(value)
    builder.require("relu")
    alpha, beta = (
        builder.constant(np.full(output.dims, number, output.dtype)) for number in coefficients
    )
    total = _combined(builder, "add", _combined(builder, "mul", value, alpha), beta)
    apply(builder, "relu", total, output, clipping_value=1.0)


@operator("HardSwish", functions=("mul", "add", "relu"), beyond="makes it of mul, add and relu")
def hard_swish(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operand: a HardSigmoid with alpha 1/6 and beta 1/2, times the operand."""
    value, output = required_input(node, 0), required_output(node)
    gate = _like(output)
    _hard_sigmoid(builder, value, gate, (1 / 6, 0.5))
    combine(builder, "mul", value, gate, output)


@operator("LeakyRelu", functions=("leaky_relu",))
def leaky_relu(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operand, alpha 0 to 1."""
    alpha = float(node.attributes.get("alpha", 0.01))
    if not 0 <= alpha <= 1:
        raise NotMapped(f"alpha is {alpha}, must be 0 to 1")
    _unary(builder, "leaky_relu", node, clipping_value=None, adjustment_factor=alpha)


@operator("Softplus", functions=("exp", "add", "log"))
def softplus(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operand: log(exp(x) + 1). From x = 22.9 on exp leaves DLFLOAT16: a range violation."""
    value, output = ends_of(builder, node, "exp")
    powers, unit = _like(output), builder.constant(np.ones(output.dims, output.dtype))
    apply(builder, "exp", value, powers)
    apply(builder, "log", _combined(builder, "add", powers, unit), output)


@operator("Pow", functions=("mul",))
def power(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float base, the exponent one constant integer from 1 to 64: repeated squaring."""
    value, output = required_input(node, 0), required_output(node)
    require_float(value)
    exponent = optional_constant(node, 1, "the exponent")
    if exponent is None or np.unique(exponent).size != 1:
        raise NotMapped("the exponent has several values, must be one number")
    number = scalar(exponent, 0)
    if number != int(number) or not 1 <= number <= MAX_POWER:
        raise NotMapped(f"the exponent is {number}, must be an integer from 1 to {MAX_POWER}")
    builder.require("mul")
    square, total = expanded(builder, value, output.dims), None
    for bit in range(int(number).bit_length()):
        if bit:
            square = _combined(builder, "mul", square, square)
        if int(number) >> bit & 1:
            total = square if total is None else _combined(builder, "mul", total, square)
    if total is not None:
        become(builder, output, reshaped(total, output.dims))
