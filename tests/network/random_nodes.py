# SPDX-License-Identifier: Apache-2.0
"""Random nodes of every operator that has a rule for the accelerator, and of some for the host."""

from typing import Any

import numpy as np
from onnx import NodeProto

from tests.network.hosting import Array
from tests.network.random_sketch import ANY_RANK, ML, Sketch, draw


@draw("Add", "Sub", "Mul", "Div")
def arithmetic(sketch: Sketch, op_type: str) -> NodeProto:
    """Operands that are broadcast either way."""
    first = sketch.any_of(0, *ANY_RANK)
    pair = [first, sketch.broadcast(first)]
    return sketch.node(op_type, pair[::-1] if sketch.flag() else pair)


@draw("Min", "Max", "Sum", "Mean")
def variadic(sketch: Sketch, op_type: str) -> NodeProto:
    """One to four operands."""
    first = sketch.any_of(*ANY_RANK)
    return sketch.node(
        op_type, [first, *(sketch.broadcast(first) for _ in range(sketch.number(0, 3)))]
    )


@draw("Log", "Exp", "Tanh", "Sigmoid", "Sqrt", "Relu", "Softplus", "HardSwish", "Identity",
      "Neg", "Abs", "Floor", "Reciprocal", "Erf", "Shape", "Size")  # fmt: skip
def unary(sketch: Sketch, op_type: str) -> NodeProto:
    """One operand."""
    return sketch.node(op_type, [sketch.any_of(0, *ANY_RANK)])


@draw("Gelu", "HardSigmoid", "LeakyRelu", "Elu")
def shaped_unary(sketch: Sketch, op_type: str) -> NodeProto:
    """One operand, and what shapes the function."""
    attributes: dict[str, Any] = {
        "Gelu": {"approximate": sketch.pick("none", "tanh", None)},
        "HardSigmoid": {"alpha": sketch.pick(None, 0.1), "beta": sketch.pick(None, 0.6)},
        "LeakyRelu": {"alpha": sketch.pick(None, 0.3, 0.0, 1.0, 2.0, -0.5)},
        "Elu": {"alpha": sketch.pick(None, 0.5)},
    }[op_type]
    return sketch.node(op_type, [sketch.any_of(*ANY_RANK)], **attributes)


@draw("Clip")
def clip(sketch: Sketch, op_type: str) -> NodeProto:
    """Bounds that are attributes before opset 11, then inputs, either of which may be absent."""
    value = sketch.any_of(*ANY_RANK)
    low, high = sketch.pick(None, 0.0, -0.5), sketch.pick(None, 0.75, 2.0)
    if sketch.opset < 11:
        return sketch.node(op_type, [value], min=low, max=high)
    ends = ["" if end is None else sketch.new(np.array(end, sketch.dtype)) for end in (low, high)]
    return sketch.node(op_type, [value, *ends])


@draw("Pow")
def power(sketch: Sketch, op_type: str) -> NodeProto:
    """Constant and other exponents."""
    value = sketch.any_of(*ANY_RANK)
    exponent = np.array(sketch.pick(1, 2, 3, 4, 0.5, -1), sketch.dtype)
    return sketch.node(op_type, [value, sketch.new(exponent, constant=sketch.flag(0.8))])


@draw("MatMul")
def matmul(sketch: Sketch, op_type: str) -> NodeProto:
    """Ranks 1 to 4, stacks that are broadcast."""
    first = sketch.any_of(1, 2, 3, 4)
    shape = sketch.shape(first)
    lead = [1 if sketch.flag(0.2) else size for size in shape[:-2]]
    lead = lead[sketch.number(0, len(lead)) if sketch.flag(0.3) else 0 :]
    columns = [sketch.size()] if sketch.flag(0.9) else []
    second = [*(lead if columns else []), shape[-1], *columns]
    return sketch.node(op_type, [first, sketch.operand(*second)])


@draw("Gemm")
def gemm(sketch: Sketch, op_type: str) -> NodeProto:
    """Turned operands, factors, and a C of every shape."""
    turn_a, turn_b = sketch.flag(0.3), sketch.flag(0.5)
    first = sketch.any_of(2)
    rows, inner = sketch.shape(first)[:: -1 if turn_a else 1]
    columns = sketch.size()
    second = sketch.operand(*((columns, inner) if turn_b else (inner, columns)))
    c = sketch.pick(None, (columns,), (1, columns), (rows, columns), (rows, 1), (1,), ())
    has_c = c is not None or sketch.opset < 11
    operands = [first, second, *([sketch.operand(*(c or (columns,)))] if has_c else [])]
    return sketch.node(
        op_type,
        operands,
        transA=int(turn_a),
        transB=int(turn_b),
        alpha=sketch.pick(None, 0.5),
        beta=sketch.pick(None, 2.0, 0.0),
    )


@draw("Softmax", "LogSoftmax", "Flatten", "ArgMax", "ArgMin")
def along_axis(sketch: Sketch, op_type: str) -> NodeProto:
    """Any axis, counted from either end."""
    value = sketch.any_of(*ANY_RANK)
    rank = len(sketch.shape(value))
    negative = -rank if sketch.opset >= 11 else 0
    attributes: dict[str, Any] = {"axis": sketch.pick(None, sketch.number(negative, rank - 1))}
    if op_type.startswith("Arg"):
        attributes["keepdims"] = sketch.pick(None, 0, 1)
        attributes["select_last_index"] = sketch.pick(None, 1) if sketch.opset >= 12 else None
    return sketch.node(op_type, [value], **attributes)


@draw("ReduceMean", "ReduceMin", "ReduceMax", "ReduceSum")
def reduction(sketch: Sketch, op_type: str) -> NodeProto:
    """Axes as an attribute or as an input, none, or none on purpose."""
    value = sketch.any_of(*ANY_RANK)
    rank = len(sketch.shape(value))
    axes = [axis for axis in range(rank) if sketch.flag(0.4)]
    if rank == 4 and sketch.flag():
        axes = [2, 3]
    keepdims = sketch.pick(None, 0, 1)
    if sketch.opset < (13 if op_type == "ReduceSum" else 18):
        return sketch.node(op_type, [value], axes=axes or None, keepdims=keepdims)
    named = [sketch.integers(*axes)] if axes or sketch.flag() else []
    noop = sketch.pick(None, 1)
    return sketch.node(op_type, [value, *named], keepdims=keepdims, noop_with_empty_axes=noop)


@draw("BatchNormalization", "InstanceNormalization")
def channel_normalization(sketch: Sketch, op_type: str) -> NodeProto:
    """Ranks 2 to 5, statistics given or computed."""
    value = sketch.any_of(3, 4, 5) if op_type[0] == "I" else sketch.any_of(2, 3, 4, 5)
    if 0 in sketch.shape(value) and op_type[0] == "I":  # which ends the process in ONNX Runtime
        value = sketch.new(sketch.floats(2, 3, 4))
    channels = sketch.shape(value)[1]
    coefficients = [sketch.operand(channels) for _ in range(2)]
    if op_type == "BatchNormalization":
        coefficients.append(sketch.operand(channels))
        variances = np.abs(sketch.floats(channels)) + np.array(0.5, sketch.dtype)
        coefficients.append(sketch.new(variances.astype(sketch.dtype)))
    return sketch.node(op_type, [value, *coefficients], epsilon=sketch.pick(None, 1e-3))


@draw("LayerNormalization")
def layer_normalization(sketch: Sketch, op_type: str) -> NodeProto:
    """Any axis, with or without a bias, one to three outputs."""
    value = sketch.any_of(*ANY_RANK)
    shape = sketch.shape(value)
    axis = sketch.number(-len(shape), len(shape) - 1) if sketch.flag(0.3) else -1
    tail = shape[axis % len(shape) :]
    coefficients = [sketch.operand(*tail) for _ in range(sketch.number(1, 2))]
    outputs = sketch.pick(1, 1, 2, 3)
    return sketch.node(op_type, [value, *coefficients], outputs, axis=axis)


@draw("Transpose")
def transpose(sketch: Sketch, op_type: str) -> NodeProto:
    """Any permutation, or none."""
    value = sketch.any_of(*ANY_RANK)
    order = [int(axis) for axis in sketch.rng.permutation(len(sketch.shape(value)))]
    return sketch.node(op_type, [value], perm=order if sketch.flag(0.8) else None)


@draw("Reshape")
def reshape(sketch: Sketch, op_type: str) -> NodeProto:
    """Sizes joined, one left to infer, one taken over by 0."""
    value = sketch.any_of(*ANY_RANK)
    shape = list(sketch.shape(value))
    kind = sketch.number(0, 3)
    sizes = [[-1], [*shape, 1], [0, -1], [-1, *shape[1:]]][kind]
    return sketch.node(op_type, [value, sketch.integers(*sizes)])


@draw("Squeeze", "Unsqueeze")
def squeeze(sketch: Sketch, op_type: str) -> NodeProto:
    """Axes as an attribute or as an input."""
    value = sketch.any_of(1, 2, 3, 4)
    axes = [at for at, size in enumerate(sketch.shape(value)) if size == 1][:1]
    if op_type == "Unsqueeze":
        axes = [sketch.number(0, len(sketch.shape(value)))]
    if sketch.opset < 13:
        return sketch.node(op_type, [value], axes=axes or None)
    return sketch.node(op_type, [value, *([sketch.integers(*axes)] if axes else [])])


@draw("Dropout")
def dropout(sketch: Sketch, op_type: str) -> NodeProto:
    """Outside of training, with or without its mask."""
    value, outputs = sketch.any_of(*ANY_RANK), sketch.pick(1, 1, 2)
    return sketch.node(op_type, [value], outputs)


@draw("LSTM", "GRU", "RNN")
def recurrent(sketch: Sketch, op_type: str) -> NodeProto:
    """Directions, biases, states and any of the outputs."""
    direction = sketch.pick("forward", "reverse", "bidirectional")
    directions, hidden = 1 + (direction == "bidirectional"), sketch.number(1, 5)
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op_type]
    value = sketch.any_of(3)
    if 0 in sketch.shape(value):  # which ends the process in ONNX Runtime
        value = sketch.new(sketch.floats(2, 3, 4))
    _, batch, width = sketch.shape(value)
    inputs = [value, sketch.operand(directions, gates * hidden, width)]
    inputs.append(sketch.operand(directions, gates * hidden, hidden))
    inputs.append(sketch.operand(directions, 2 * gates * hidden) if sketch.flag() else "")
    if sketch.flag(0.3):
        inputs += ["", sketch.operand(directions, batch, hidden)]
    node = sketch.node(
        op_type,
        inputs,
        3 if op_type == "LSTM" else 2,
        hidden_size=hidden,
        direction=direction,
        linear_before_reset=sketch.pick(None, 1) if op_type == "GRU" else None,
        clip=sketch.pick(None, None, None, 0.5),
    )
    for at in range(len(node.output)):
        if sketch.flag(0.3) and any(node.output[:at]):
            node.output[at] = ""
    return node


def _codes(sketch: Sketch, *shape: int) -> Array:
    kind: Any = sketch.pick(np.int8, np.uint8)
    info = np.iinfo(kind)
    return sketch.rng.integers(info.min, info.max + 1, shape).astype(kind)


@draw("MatMulInteger", "QLinearMatMul")
def integer_product(sketch: Sketch, op_type: str) -> NodeProto:
    """INT8 and UINT8, zero points or none."""
    rows, inner, columns = sketch.number(1, 5), sketch.number(1, 5), sketch.number(1, 5)
    a, b = _codes(sketch, rows, inner), _codes(sketch, inner, columns)
    points = [np.array(sketch.pick(0, 3), array.dtype) for array in (a, b)]
    names = [sketch.new(array) for array in (a, b, *points)]
    if op_type == "MatMulInteger":
        return sketch.node(op_type, names[: sketch.pick(2, 3, 4)])
    scales = [sketch.new(np.array(scale, np.float32)) for scale in (0.02, 0.03, 0.1)]
    end = sketch.new(np.array(1, a.dtype))
    a_name, b_name, a_point, b_point = names
    ends = [scales[2], end]
    return sketch.node(op_type, [a_name, scales[0], a_point, b_name, scales[1], b_point, *ends])


@draw("DynamicQuantizeLinear")
def dynamic_quantize(sketch: Sketch, op_type: str) -> NodeProto:
    """A least and a greatest element that the run decides."""
    return sketch.node(op_type, [sketch.any_of(1, 2, 3)], 3)


@draw("QuantizeLinear")
def quantize(sketch: Sketch, op_type: str) -> NodeProto:
    """One scale, or one for each place along an axis."""
    value = sketch.any_of(1, 2, 3)
    shape, axis = sketch.shape(value), 0
    count = shape[axis] if sketch.opset >= 13 and sketch.flag() else None
    scale = np.full(() if count is None else (count,), 0.05, sketch.dtype)
    point = np.full(scale.shape, sketch.pick(0, 5), sketch.pick(np.int8, np.uint8))
    names = [value, sketch.new(scale), sketch.new(point, constant=True)]
    return sketch.node(op_type, names, axis=None if count is None else axis)


@draw("LinearRegressor", "LinearClassifier")
def linear(sketch: Sketch, op_type: str) -> NodeProto:
    """Coefficients for some rows, and what becomes of the scores."""
    value, rows = sketch.any_of(2), sketch.number(1, 4)
    features = sketch.shape(value)[1]
    return sketch.node(
        op_type,
        [value],
        2 if op_type == "LinearClassifier" else 1,
        domain=ML,
        coefficients=[float(number) for number in sketch.rng.normal(0, 1, rows * features)],
        intercepts=[0.5] * rows if sketch.flag(0.8) else None,
        post_transform=sketch.pick(None, "NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"),
        targets=rows if op_type == "LinearRegressor" else None,
        classlabels_ints=list(range(rows)) if op_type == "LinearClassifier" else None,
    )


@draw("Concat")
def concat(sketch: Sketch, op_type: str) -> NodeProto:
    """Operands that are equal but along an axis."""
    first = sketch.any_of(1, 2, 3, 4)
    axis = sketch.number(0, len(sketch.shape(first)) - 1)
    shape = list(sketch.shape(first))
    shape[axis] = sketch.size()
    return sketch.node(op_type, [first, sketch.operand(*shape)], axis=axis)
