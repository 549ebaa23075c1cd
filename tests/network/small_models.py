# SPDX-License-Identifier: Apache-2.0
"""Small ONNX models with fixed weights, for tests of what hosts them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

OPSET = 17
WEIGHT = (np.arange(12, dtype=np.float32).reshape(4, 3) - 5) / 8
BIAS = np.array([0.5, -0.25, 0.125], np.float32)
Value = tuple[str, Any, Sequence[int | str]]


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    constants: Mapping[str, Any] | None = None,
) -> ModelProto:
    """Return a model of nodes; values are (name, type, shape)."""

    def infos(values: Sequence[Value]) -> list[Any]:
        return [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), list(shape)
            )
            for name, dtype, shape in values
        ]

    weights = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "small", infos(inputs), infos(outputs), weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


def dense(batch: int | str = "N") -> ModelProto:
    """Return y = relu(x @ WEIGHT + BIAS), x of 4 and y of 3 elements per batch."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], "product"),
        helper.make_node("Add", ["product", "b"], ["sum"], "sum"),
        helper.make_node("Relu", ["sum"], ["y"], "act"),
    ]
    constants = {"w": WEIGHT, "b": BIAS}
    return model(nodes, [("x", np.float32, [batch, 4])], [("y", np.float32, [batch, 3])], constants)


def dense_reference(x: Any) -> Any:
    """Return what `dense` computes, in FP32."""
    return np.maximum(np.asarray(x, np.float32) @ WEIGHT + BIAS, 0)


def two_ends() -> ModelProto:
    """Return total = a + b, most = max(a, b), a and b of 2 x 3 elements per batch."""
    nodes = [
        helper.make_node("Add", ["a", "b"], ["total"], "total"),
        helper.make_node("Max", ["a", "b"], ["most"], "most"),
    ]
    shape: Sequence[int | str] = ("N", 2, 3)
    ends = [("a", np.float32, shape), ("b", np.float32, shape)]
    outs = [("total", np.float32, shape), ("most", np.float32, shape)]
    return model(nodes, ends, outs)


def image() -> ModelProto:
    """Return y = relu(x) over images of 2 channels, 3 rows, 4 columns."""
    node = helper.make_node("Relu", ["x"], ["y"], "act")
    shape: Sequence[int | str] = ("N", 2, 3, 4)
    return model([node], [("x", np.float32, shape)], [("y", np.float32, shape)])


def quantised() -> ModelProto:
    """Return an int8 model: q in, dequantised with (0.5, 3), relu, quantised with (0.25, -7)."""
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "si", "zi"], ["x"], "in"),
        helper.make_node("Relu", ["x"], ["h"], "act"),
        helper.make_node("QuantizeLinear", ["h", "so", "zo"], ["r"], "out"),
    ]
    constants = {
        "si": np.float32(0.5),
        "zi": np.int8(3),
        "so": np.float32(0.25),
        "zo": np.int8(-7),
    }
    arrays = {name: np.array(array) for name, array in constants.items()}
    return model(nodes, [("q", np.int8, ["N", 5])], [("r", np.int8, ["N", 5])], arrays)


def depthwise() -> ModelProto:
    """Return a block of a network for telephones over images of 3 channels, 9 rows, 8 columns.

    Conv, HardSwish, depthwise Conv, HardSwish, squeeze and excitation, Conv.
    """
    rng = np.random.default_rng(1)
    window: dict[str, Any] = {"pads": [1] * 4, "strides": [2, 2], "kernel_shape": [3, 3]}
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["wide"], "wide", pads=[1] * 4),
        helper.make_node("HardSwish", ["wide"], ["acted"], "acted"),
        helper.make_node("Conv", ["acted", "w1", "b1"], ["deep"], "deep", group=70, **window),
        helper.make_node("HardSwish", ["deep"], ["again"], "again"),
        helper.make_node("GlobalAveragePool", ["again"], ["mean"], "mean"),
        helper.make_node("Conv", ["mean", "w2"], ["shared"], "shared"),
        helper.make_node("HardSigmoid", ["shared"], ["share"], "share", alpha=1 / 6),
        helper.make_node("Mul", ["again", "share"], ["weighed"], "weighed"),
        helper.make_node("Conv", ["weighed", "w3"], ["y"], "narrow"),
    ]
    shapes = {
        "w0": (70, 3, 3, 3), "b0": (70,), "w1": (70, 1, 3, 3), "b1": (70,),
        "w2": (70, 70, 1, 1), "w3": (4, 70, 1, 1),
    }  # fmt: skip
    constants = {
        name: (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        for name, shape in shapes.items()
    }
    ends = [("x", np.float32, (2, 3, 9, 8))], [("y", np.float32, (2, 4, 5, 4))]
    return model(nodes, *ends, constants)


def recurrent() -> ModelProto:
    """Return a layer of two LSTMs, one from behind, of 5 steps, 2 rows, 3 features and 4 units."""
    rng = np.random.default_rng(17)
    shapes = {"w": (2, 16, 3), "r": (2, 16, 4), "b": (2, 32)}
    weights = {
        name: (rng.standard_normal(shape) / 2).astype(np.float32) for name, shape in shapes.items()
    }
    layer = helper.make_node(
        "LSTM", ["x", *weights], ["y"], "layer", hidden_size=4, direction="bidirectional"
    )
    return model(
        [layer], [("x", np.float32, (5, 2, 3))], [("y", np.float32, (5, 2, 2, 4))], weights
    )


def normalised() -> ModelProto:
    """Return y = normalise(x @ WEIGHT) @ WEIGHT'; each row of 3 elements is normalised."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], "product"),
        helper.make_node("LayerNormalization", ["product", "scale", "bias"], ["row"], "normalise"),
        helper.make_node("MatMul", ["row", "v"], ["y"], "again"),
    ]
    constants = {"w": WEIGHT, "v": WEIGHT.T.copy(), "scale": 1 + BIAS, "bias": BIAS}
    ends = [("x", np.float32, (2, 5, 4))], [("y", np.float32, (2, 5, 4))]
    return model(nodes, *ends, constants)


def lowered(locale: str) -> bytes:
    """Return a model that makes words lower case as a locale does."""
    node = helper.make_node(
        "StringNormalizer", ["x"], ["y"], "lower", case_change_action="LOWER", locale=locale
    )
    text = np.dtype(object)
    return model([node], [("x", text, ("N",))], [("y", text, ("M",))]).SerializeToString()
