# SPDX-License-Identifier: Apache-2.0
"""Operators that move nothing as long as their readers can take the elements as they lie.

Source: ONNX operators of the names given.
"""

from nnpa_network.building.arrangement import NotMapped
from nnpa_network.building.builder import Builder
from nnpa_network.building.type_inference import OnnxNode
from nnpa_network.maps import CUT
from nnpa_network.operators.table import Graph, become, operator, required_input, required_output


@operator("Transpose", functions=())
def transpose(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Carried by the layout where the reader can take it; else the host moves the elements."""
    value = required_input(node, 0)
    reverse = list(range(len(value.dims)))[::-1]
    permutation = tuple(int(axis) for axis in node.attributes.get("perm", reverse))
    become(builder, required_output(node), value, permutation)


@operator("Reshape", "Flatten", "Squeeze", "Unsqueeze", functions=())
def reshape(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Carried by the layout where elements stay in order; else the host copies."""
    become(builder, required_output(node), required_input(node, 0))


@operator("Identity", "Dropout", functions=())
def identity(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Nothing to do; Dropout only outside of training and without a mask. A ZipMap that makes an
    output is one: the output is the tensor of its operand.
    """
    if node.proto.doc_string.startswith(CUT):
        graph.remark(node.proto.doc_string)
    if node.op_type == "Dropout" and (
        graph.is_read(node.output(1)) or _training(node) or node.opset < 7
    ):
        raise NotMapped("training_mode may be true or mask is read, must be neither")
    become(builder, required_output(node), required_input(node, 0))


def _training(node: OnnxNode) -> bool:
    """Tell whether the third input may be true."""
    ratio = node.input(2)
    return ratio is not None and (ratio.constant is None or bool(ratio.constant))
