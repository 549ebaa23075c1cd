# SPDX-License-Identifier: Apache-2.0
"""Shared parts of the builders: typed ends, several outputs, domains, pieces of exports."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ValueInfoProto, helper

from tests.network.real_models import Net

ML = "ai.onnx.ml"


def end(name: str, dtype: Any, *shape: int | str) -> ValueInfoProto:
    """Return an input or output; a name in the shape is a free dim."""
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_value_info(name, code, list(shape))


def floats(name: str, *shape: int | str) -> ValueInfoProto:
    """Return an input or output of FP32."""
    return end(name, np.float32, *shape)


def words(name: str, *shape: int | str) -> ValueInfoProto:
    """Return an input or output of INT64."""
    return end(name, np.int64, *shape)


def export(
    net: Net,
    inputs: Sequence[ValueInfoProto],
    outputs: Mapping[str, ValueInfoProto],
    opset: int = 17,
    domains: Mapping[str, int] | None = None,
) -> bytes:
    """Return the file of a net; `outputs` are ends by the value that each has in the net."""
    names = {value: info.name for value, info in outputs.items()}
    for node in net.nodes:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    versions = {"": opset, **(domains or {})}
    opsets = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
    graph = helper.make_graph(
        net.nodes, "main_graph", list(inputs), list(outputs.values()), net.initializers
    )
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return model.SerializeToString()


def nodes(
    net: Net, op_type: str, inputs: Sequence[str], count: int, **attributes: Any
) -> list[str]:
    """Append a node with several outputs and return their names."""
    names = [f"v{len(net.nodes)}_{index}" for index in range(count)]
    net.nodes.append(helper.make_node(op_type, list(inputs), names, **attributes))
    return names


def number(net: Net, value: float) -> str:
    """Add an FP32 scalar."""
    return net.constant(np.array(value, np.float32))


def dim(net: Net, value: str, axis: int) -> str:
    """Return a dim as torch's tracer does: Shape, Gather, and Unsqueeze to a vector."""
    index = net.constant(np.array(axis, np.int64))
    gathered = net.node("Gather", net.node("Shape", value), index, axis=0)
    return net.node("Unsqueeze", gathered, net.integers(0))


def conv(net: Net, value: str, inputs: int, outputs: int, kernel: int = 3, **options: Any) -> str:
    """Convolution with bias: torch folds the normalisation into it; options: stride, group."""
    stride, group = options.get("stride", 1), options.get("group", 1)
    weights = net.weights(
        outputs, inputs // group, kernel, kernel, fan=inputs // group * kernel * kernel // 2 or 1
    )
    bias = net.weights(outputs, fan=100)
    return net.node(
        "Conv",
        value,
        weights,
        bias,
        dilations=[1, 1],
        group=group,
        kernel_shape=[kernel, kernel],
        pads=[kernel // 2] * 4,
        strides=[stride, stride],
    )


def linear(net: Net, value: str, inputs: int, outputs: int) -> str:
    """MatMul and Add, as torch exports a linear layer of more than two dims."""
    product = net.node("MatMul", value, net.weights(inputs, outputs, fan=inputs))
    return net.node("Add", net.weights(outputs, fan=100), product)


def gemm(net: Net, value: str, inputs: int, outputs: int) -> str:
    """Gemm with the weights transposed, as torch exports a linear layer of two dims."""
    weights, bias = net.weights(outputs, inputs, fan=inputs), net.weights(outputs, fan=100)
    return net.node("Gemm", value, weights, bias, alpha=1.0, beta=1.0, transB=1)


def silu(net: Net, value: str) -> str:
    """Return x * sigmoid(x)."""
    return net.node("Mul", value, net.node("Sigmoid", value))


def layer_norm(net: Net, value: str, size: int, axis: int = -1) -> str:
    """LayerNormalization of opset 17 with scale and bias."""
    scale = net.constant(net.rng.uniform(0.9, 1.1, size).astype(np.float32))
    return net.node(
        "LayerNormalization", value, scale, net.weights(size, fan=100), axis=axis, epsilon=1e-6
    )


def erf_gelu(net: Net, value: str) -> str:
    """Gelu as torch exported it before opset 20: Div, Erf, Add, Mul, Mul."""
    half = net.node("Erf", net.node("Div", value, number(net, 2**0.5)))
    return net.node(
        "Mul",
        net.node("Mul", value, net.node("Add", half, number(net, 1))),
        number(net, 0.5),
    )
