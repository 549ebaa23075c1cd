# SPDX-License-Identifier: Apache-2.0
"""Linear models as scikit-learn's converters write them.

Sources: ONNX operators ai.onnx.ml LinearClassifier and LinearRegressor; zDNN API Reference 1.2.0,
zdnn_matmul_op, zdnn_softmax, zdnn_sigmoid.
"""

import numpy as np

from nnpa_network.building.arrangement import Arrangement, NotMapped, axes_of
from nnpa_network.building.builder import Builder
from nnpa_network.building.type_inference import OnnxNode, Value
from nnpa_network.operators.elementwise import apply
from nnpa_network.operators.matmul import Product, multiply
from nnpa_network.operators.normalization import ACT_NONE
from nnpa_network.operators.table import (
    Graph,
    become,
    operator,
    require_float,
    require_rank,
    required_input,
    required_output,
    reshaped,
)


def _scores(builder: Builder, node: OnnxNode, rows: int, output: Value) -> Value:
    """Emit and return operands (N, features) times coefficients, plus intercepts: (N, rows)."""
    value = required_input(node, 0)
    require_float(value)
    require_rank(value, 2)
    builder.require("matmul_op")
    features = value.dims[1]
    coefficients = np.array(node.attributes.get("coefficients", ()), np.float32)
    intercepts = np.array(node.attributes.get("intercepts") or [0.0] * rows, np.float32)
    if coefficients.size != rows * features or intercepts.size != rows:
        text = f"coefficients has {coefficients.size} numbers and intercepts {intercepts.size}"
        raise NotMapped(f"{text}, must be {rows * features} and {rows}")
    weights = builder.constant(coefficients.reshape(1, rows, features).transpose(0, 2, 1))
    scores = Value(f"{output.name}_part", output.dtype, (value.dims[0], rows))
    left = reshaped(value, (1, *value.dims))
    multiply(builder, Product(left, weights, builder.constant(intercepts)), scores)
    return scores


def _transformed(builder: Builder, node: OnnxNode, scores: Value, output: Value) -> None:
    """Emit the post_transform of scores."""
    transform = node.attributes.get("post_transform", "NONE")
    if transform == "NONE":
        become(builder, output, reshaped(scores, output.dims))
    elif transform == "LOGISTIC":
        apply(builder, "sigmoid", reshaped(scores, output.dims), output)
    elif transform == "SOFTMAX":
        rows, columns = output.dims
        arrangement = Arrangement(axes_of(output.dims), (1, 1, rows, columns))
        source = builder.tensor(reshaped(scores, output.dims), arrangement)
        target = builder.new_tensor(output, arrangement)
        builder.call("softmax", input=source, act_func=ACT_NONE, output=target)
    else:
        raise NotMapped(f"post_transform is {transform}, must be NONE, LOGISTIC or SOFTMAX")


@operator(
    "LinearRegressor",
    functions=("matmul_op", "sigmoid", "softmax"),
    beyond="makes it a product",
    domain="ai.onnx.ml",
)
def linear_regressor(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Of ai.onnx.ml, float operand of rank 2: a product with the intercepts as bias; post_transform
    NONE, or of several targets LOGISTIC by sigmoid, or SOFTMAX.
    """
    output, targets = required_output(node), int(node.attributes.get("targets", 1))
    if targets == 1 and node.attributes.get("post_transform", "NONE") != "NONE":
        raise NotMapped("post_transform is given for one target, must be NONE")
    scores = _scores(builder, node, targets, output)
    _transformed(builder, node, scores, output)


@operator(
    "LinearClassifier",
    functions=("matmul_op", "sigmoid", "softmax"),
    beyond="makes it a product",
    domain="ai.onnx.ml",
)
def linear_classifier(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Of ai.onnx.ml, float operand of rank 2, integer labels, one row of coefficients per label:
    a product with the intercepts as bias; post_transform NONE, LOGISTIC by sigmoid, or SOFTMAX. The
    host looks the labels up by the greatest score before it.
    """
    labels, output = node.attributes.get("classlabels_ints"), required_output(node, 1)
    if not labels:
        raise NotMapped("classlabels_ints is left out, must be there")
    scores = _scores(builder, node, len(labels), output)
    if graph.is_read(node.output(0)):
        best = builder.host("ArgMax", [scores], axis=1, keepdims=0)
        table = builder.constant(np.array(labels, np.int64))
        become(builder, required_output(node, 0), builder.host("Gather", [table, best]))
    _transformed(builder, node, scores, output)
