# SPDX-License-Identifier: Apache-2.0
"""Multiply-accumulates of a node, counted as X-CUBE-AI counts them.

Convolution: output elements times window elements per group, and one per output channel; dense
layer: in * out + out per row; rectifiers: 1 per element; other functions 1 per element; softmax 15
per element; pooling: elements that windows cover; conversions of integers: 2 per element.
Source: X-CUBE-AI 7.0 reports (analyze); recurrent layers by the dense layers that they consist of.
"""

import math

from nnpa_network.building.type_inference import OnnxNode, Value

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_SOFTMAX = 15
_CONVERSION = 2
_PER_ELEMENT = frozenset(
    ("Abs", "Add", "BatchNormalization", "Clip", "Div", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid",
     "LayerNormalization", "LeakyRelu", "Log", "Max", "Mean", "Min", "Mul", "Neg", "Pow", "PRelu",
     "Reciprocal", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "Relu", "Sigmoid",
     "Softplus", "Sqrt", "Sub", "Sum", "Tanh", "ArgMax", "ArgMin")
)  # fmt: skip


def multiply_accumulates(node: OnnxNode) -> int:
    """Return the count for one run, 0 while shapes are not known or nothing is computed."""
    first, output = node.input(0), node.output(0)
    if first is None or output is None or not first.is_known or not output.is_known:
        return 0
    if node.op_type in ("Conv", "QLinearConv", "ConvInteger", "ConvTranspose"):
        return _convolution(node, first, output)
    if node.op_type in ("Gemm", "MatMul", "MatMulInteger", "QLinearMatMul"):
        return _product(node, first, output)
    if node.op_type in _GATES:
        return _recurrent(node, first)
    return _simple(node, first, output)


def _size(value: Value) -> int:
    return math.prod(value.dims)


def _convolution(node: OnnxNode, value: Value, output: Value) -> int:
    weights = node.input(3) if node.op_type == "QLinearConv" else node.input(1)
    if weights is None or not weights.is_known:
        return 0
    windows = value if node.op_type == "ConvTranspose" else output
    return _size(windows) * math.prod(weights.dims[1:]) + output.dims[1]


def _product(node: OnnxNode, value: Value, output: Value) -> int:
    inner = value.dims[0 if node.attributes.get("transA", 0) else -1] if value.dims else 1
    return _size(output) * inner + (output.dims[-1] if output.dims else 1)


def _recurrent(node: OnnxNode, value: Value) -> int:
    recurrence = node.input(2)
    if recurrence is None or not recurrence.is_known:
        return 0
    timesteps, batch, features = value.dims
    directions, _, hidden = recurrence.dims
    gates = _GATES[node.op_type] * hidden
    return timesteps * batch * directions * gates * (features + hidden + 2)


def _simple(node: OnnxNode, value: Value, output: Value) -> int:
    if node.op_type in ("Softmax", "LogSoftmax"):
        return _SOFTMAX * _size(output)
    if node.op_type in ("AveragePool", "MaxPool"):
        return _size(output) * int(math.prod(node.attributes.get("kernel_shape", (1,))))
    if node.op_type in ("GlobalAveragePool", "GlobalMaxPool"):
        return _size(value)
    if node.op_type in ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"):
        return _CONVERSION * _size(value)
    return _size(output) if node.op_type in _PER_ELEMENT else 0
