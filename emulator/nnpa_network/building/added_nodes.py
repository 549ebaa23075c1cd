# SPDX-License-Identifier: Apache-2.0
"""Nodes that an import adds to a model's own: their types, and which of them compute the same."""

from collections.abc import Hashable, Mapping, Sequence

from onnx import NodeProto, helper

from nnpa_network.building.type_inference import Value, infer

HELPER_OPSET = 21
"""The opset of nodes that an import adds: transpositions, pads, slices."""
_MOVES = frozenset(("Concat", "Expand", "Pad", "Reshape", "Slice", "Transpose"))
_COMPARED_BYTES = 1024


def added_node(
    op_type: str, inputs: Sequence[Value | None], attributes: Mapping[str, object]
) -> NodeProto:
    """Return a node of one output, with inputs named by their places."""
    names = ["" if value is None else f"i{at}" for at, value in enumerate(inputs)]
    proto = helper.make_node(op_type, names, ["o"])
    proto.attribute.extend(map(helper.make_attribute, attributes, attributes.values()))
    return proto


def output_of(proto: NodeProto, inputs: Sequence[Value | None], name: str) -> Value:
    """Return the output of an added node, which no step makes yet; raise `ModelRefused`."""
    renamed = [
        value and Value(operand, value.dtype, value.shape, constant=value.constant)
        for operand, value in zip(proto.input, inputs, strict=True)
    ]
    ((dtype, shape),) = infer(proto, {"": HELPER_OPSET}, renamed)
    variable = (value for value in inputs if value is not None and value.constant is None)
    bounded = proto.op_type in _MOVES and all(value.bounded for value in variable)
    return Value(name, dtype, shape, bounded=bounded)


def work_of(proto: NodeProto, inputs: Sequence[Value | None]) -> Hashable:
    """Return a key that is equal for added nodes with the same attributes and the same inputs.

    Constants of 1 KiB at most are the same where their elements are.
    """
    return proto.SerializeToString(deterministic=True), tuple(map(_identity, inputs))


def _identity(value: Value | None) -> Hashable:
    array = None if value is None else value.constant
    if array is None or array.nbytes > _COMPARED_BYTES:
        return value
    return array.dtype, array.shape, array.tobytes()
