# SPDX-License-Identifier: Apache-2.0
"""Work and weights inside of If, Loop and Scan, for the figures of a report.

An If counts as its branch with the most work. A Loop counts its constant trip count times, and once
without a constant one. A Scan counts once for each step.
"""

import math
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from nnpa_network.building.type_inference import (
    NodeAttributes,
    OnnxNode,
    Value,
    type_of,
    type_proto,
)
from nnpa_network.containment import subgraphs, tensors
from nnpa_network.lowering.macc import multiply_accumulates
from nnpa_network.running.runtime_types import MAX_CONSTANT_BYTES

_IR_VERSION = 10


def inner_weights(node: onnx.NodeProto) -> int:
    """Return the bytes of the tensors in a node's subgraphs."""
    sizes = (
        math.prod(tensor.dims)
        * np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type)).itemsize
        for graph in subgraphs(node)
        for _, tensor in tensors(graph)
        if isinstance(tensor, onnx.TensorProto)
    )
    return sum(sizes)


def inner_macc(node: OnnxNode, opsets: Mapping[str, int]) -> int:
    """Return the multiply-accumulates of a node with subgraphs, as far as shapes are known."""
    values = {
        value.name: value for value in node.inputs if value is not None and value.dtype is not None
    }
    inputs = [
        helper.make_value_info(name, type_proto(value.dtype, value.shape))
        for name, value in values.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.proto.output if name]
    constants = [
        numpy_helper.from_array(value.constant, value.name)
        for value in values.values()
        if value.constant is not None and value.constant.nbytes <= MAX_CONSTANT_BYTES
    ]
    graph = helper.make_graph([_opened(node.proto, values)], "node", inputs, outputs, constants)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    model = helper.make_model(graph, opset_imports=imports, ir_version=_IR_VERSION)
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except (onnx.shape_inference.InferenceError, RuntimeError):  # a branch that is not taken
        inferred = model
    return _macc(inferred.graph.node[0], values)


def _opened(node: onnx.NodeProto, values: Mapping[str, Value]) -> onnx.NodeProto:
    """Return a node whose bodies declare no shapes; a Loop's body takes its inputs' shapes."""
    bare = onnx.NodeProto.FromString(node.SerializeToString())
    for graph in subgraphs(bare):
        del graph.value_info[:]
        for info in graph.output:
            info.type.tensor_type.ClearField("shape")
        if node.op_type == "Loop":
            for info, name in zip(graph.input[2:], node.input[2:], strict=False):
                if name in values:
                    value = values[name]
                    info.type.CopyFrom(type_proto(value.dtype, value.shape))
    return bare


def _macc(node: onnx.NodeProto, outside: Mapping[str, Value]) -> int:
    """Return the count of a node whose values are among those outside, with its subgraphs."""
    graphs = list(subgraphs(node))
    if graphs:
        return _times(node, outside) * max(_graph_macc(graph, outside) for graph in graphs)
    inputs, outputs = ([outside.get(name) for name in ends] for ends in (node.input, node.output))
    opened = OnnxNode(0, node, 0, tuple(inputs), tuple(outputs), NodeAttributes(node))
    return multiply_accumulates(opened)


def _graph_macc(graph: onnx.GraphProto, outside: Mapping[str, Value]) -> int:
    values = dict(outside)
    for info in (*graph.input, *graph.value_info, *graph.output):
        values[info.name] = Value(info.name, *type_of(info.type))
    for tensor in graph.initializer:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
        values[tensor.name] = Value(tensor.name, dtype, tuple(tensor.dims))
    return sum(_macc(node, values) for node in graph.node)


def _times(node: onnx.NodeProto, outside: Mapping[str, Value]) -> int:
    """Return how often the body of a node runs."""
    if node.op_type == "Loop":
        trips = outside.get(node.input[0])
        constant = None if trips is None else trips.constant
        return 1 if constant is None else int(constant.reshape(-1)[0])
    if node.op_type == "Scan":
        scanned = outside.get(node.input[-1])
        return scanned.dims[0] if scanned is not None and scanned.is_known and scanned.dims else 1
    return 1
