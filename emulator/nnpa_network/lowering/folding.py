# SPDX-License-Identifier: Apache-2.0
"""Nodes that are computed at import: their outputs follow from constants and shapes alone."""

import numpy as np

from nnpa_network.building.constants import evaluate
from nnpa_network.building.type_inference import OnnxNode
from nnpa_network.nodes import DRAWING, has_subgraph
from nnpa_network.program import Array, ModelRefused
from nnpa_network.running import host

_RANDOM = DRAWING - {"Dropout"}


def fold(node: OnnxNode, held: Array | None = None) -> bool:
    """Compute a node whose outputs follow from constants and shapes alone; `held` is an output."""
    if node.op_type in ("Shape", "Size") and node.proto.domain in ("", "ai.onnx"):
        return _fold_shape(node)
    ready = all(operand is None or operand.constant is not None for operand in node.inputs)
    if not ready or node.op_type in _RANDOM or has_subgraph(node.proto):
        return False
    try:
        opset = host.opset_for(node.op_type, node.proto.domain, node.opset)
        arrays = evaluate(node.proto, opset, node.inputs) if held is None else [held]
    except host.HostError as error:
        raise ModelRefused(f"{node.op_type}: {error}", node.title) from error
    for value, array in zip((output for output in node.outputs if output), arrays, strict=True):
        value.constant, value.dtype, value.shape = array, array.dtype, array.shape
    return True


def _fold_shape(node: OnnxNode) -> bool:
    value, output = node.inputs[0], node.outputs[0]
    if value is None or output is None or not value.is_known:
        return False
    dims = list(value.dims)
    if node.op_type == "Size":
        array = np.array(np.prod(dims, dtype=np.int64), np.int64)
    else:
        start, end = node.attributes.get("start", 0), node.attributes.get("end", len(dims))
        array = np.array(dims[slice(*slice(start, end).indices(len(dims)))], np.int64)
    output.constant, output.dtype, output.shape = array, array.dtype, array.shape
    return True
