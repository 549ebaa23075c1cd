# SPDX-License-Identifier: Apache-2.0
"""Values of a model while a program is made, and the types that nodes give them.

Source: ONNX shape inference, one node at a time, with the values of constants; ONNX Runtime for
operators that it does not know, and for shapes in which the two differ.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

from nnpa_network.building.arrangement import Arrangement, Shape
from nnpa_network.building.runtime_shapes import Attributes, runtime_shapes
from nnpa_network.nodes import in_onnx, unnamed
from nnpa_network.program import ABSENT, Array, DType, ModelRefused
from nnpa_network.running import host
from nnpa_network.running.host_models import WIDER
from nnpa_network.running.runtime_types import MAX_CONSTANT_BYTES, Operand, node_types

_KEPT_TYPES = _KEPT_NODES = 1024
_KEPT_BYTES = 4096  # of a node that is inferred once
_NEGATIVE_AXES = 11  # the opset from which axes may be counted from the end


@dataclass(slots=True, eq=False)
class Value:
    """A value of the model: its type, and every form in which it exists so far.

    `shape` is None when not even the rank is known, -1 in it a dim known only at run time.
    `bounded` tells that no element is beyond DLFLOAT16's range, for it came from there.
    `view` is (source, permutation) of a transposition that is not carried out yet, or
    (source, None) of a change of shape.
    """

    name: str
    dtype: DType | None
    shape: Shape | None
    constant: Array | None = None
    bounded: bool = False
    array: int = ABSENT
    tensors: dict[Arrangement, int] = field(default_factory=dict[Arrangement, int])
    view: "View | None" = None

    @property
    def dims(self) -> Shape:
        """The shape; ValueError where it is not known."""
        if self.shape is None:
            raise ValueError(f"the shape of {self.name} is not known")
        return self.shape

    @property
    def views(self) -> int:
        """The number of views, one behind the other, that lead to the stored value."""
        count, view = 0, self.view
        while view is not None:
            count, view = count + 1, view[0].view
        return count

    @property
    def is_known(self) -> bool:
        """Return whether element type and all dims are known."""
        return self.dtype is not None and self.shape is not None and -1 not in self.shape

    @property
    def is_view_of_sticks(self) -> bool:
        """Return True for a view of sticks; an array's elements are not rounded."""
        source = self
        while source.view is not None and not source.array:
            source = source.view[0]
        return source is not self and not source.array and source.constant is None

    @property
    def nbytes(self) -> int:
        """Bytes of the array; 0 while they are not known."""
        if self.dtype is None or not self.is_known:
            return 0
        return self.dtype.itemsize * math.prod(self.dims)


View: TypeAlias = tuple[Value, tuple[int, ...] | None]
"""A value in another shape or order: its source, and the permutation of a transposition."""
Type: TypeAlias = tuple[DType | None, Shape | None]
UNKNOWN: Type = (None, None)
_Facts: TypeAlias = tuple[DType | None, Shape | None, bytes | None]
ENCLOSING = "sequences, optionals and maps stay on the host, in a node of its own:"
"""How the remark on a node begins that encloses those that such values go between."""


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """A node, its domain's version, and the values it takes and makes, None where left out."""

    index: int
    proto: onnx.NodeProto
    opset: int
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value | None, ...]
    attributes: Attributes

    @property
    def op_type(self) -> str:
        """The operator's name."""
        return self.proto.op_type

    @property
    def title(self) -> str:
        """The node's name, or its operator where it has none."""
        return self.proto.name or f"{self.op_type}_{self.index}"

    def input(self, index: int) -> Value | None:
        """Return an input, None where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def output(self, index: int) -> Value | None:
        """Return an output, None where it is left out."""
        return self.outputs[index] if index < len(self.outputs) else None

    def constant(self, index: int) -> Array | None:
        """Return an input's value where it is known at import, None otherwise."""
        value = self.input(index)
        return None if value is None else value.constant


class NodeAttributes(Mapping[str, Any]):
    """A node's attributes as Python values, strings decoded; each is made when it is read.

    The lists of a forest take gigabytes as Python values, and no rule reads them.
    """

    def __init__(self, node: onnx.NodeProto) -> None:
        self._attributes = {attribute.name: attribute for attribute in node.attribute}

    def __getitem__(self, name: str) -> Any:
        return _decoded(helper.get_attribute_value(self._attributes[name]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._attributes)

    def __len__(self) -> int:
        return len(self._attributes)


def _decoded(value: object) -> object:
    """Return an attribute's value, or the values of its list, with bytes decoded."""
    if isinstance(value, list):
        return [_decoded(element) for element in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def type_of(proto: onnx.TypeProto) -> Type:
    """Return element type and shape of a tensor type; symbolic and negative dims become -1."""
    if not proto.HasField("tensor_type"):
        return UNKNOWN
    tensor = proto.tensor_type
    dtype = host.dtype_of(tensor.elem_type)
    if dtype is None:
        return UNKNOWN
    if not tensor.HasField("shape"):
        return dtype, None
    dims = (dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim)
    return dtype, tuple(max(int(dim), -1) for dim in dims)


def is_enclosing(node: onnx.NodeProto) -> bool:
    """Return True if a node encloses nodes that exchange sequences; ONNX Runtime types it."""
    return node.op_type == "If" and node.doc_string.startswith(ENCLOSING)


def infer(
    node: onnx.NodeProto, opsets: Mapping[str, int], inputs: Sequence[Value | None]
) -> list[Type]:
    """Return the type of every output as far as it follows from the inputs; equal nodes once.

    Nothing follows for an operator that ONNX does not know. Raise `ModelRefused` where the inputs
    contradict the operator.
    """
    has_texts = any(value is not None and value.dtype == object for value in inputs)
    if has_texts or node.ByteSize() > _KEPT_BYTES:
        return _infer(node, opsets, inputs)
    operands = tuple(None if value is None else _facts(value) for value in inputs)
    try:
        plain = _unnamed(node.SerializeToString())
        return list(_infer_equal(plain, tuple(opsets.items()), operands))
    except ModelRefused:  # its text should have the names of the node
        return _infer(node, opsets, inputs)


@lru_cache(maxsize=_KEPT_NODES)
def _unnamed(serialised: bytes) -> bytes:
    plain = unnamed(onnx.NodeProto.FromString(serialised))
    return plain.SerializeToString(deterministic=True)


def _facts(value: Value) -> "_Facts":
    """Return what inference sees of a value: type, shape, and the bytes of a small constant."""
    array = value.constant
    if array is None or array.nbytes > MAX_CONSTANT_BYTES:
        return value.dtype, value.shape, None
    return array.dtype, array.shape, array.tobytes()


@lru_cache(maxsize=_KEPT_NODES)
def _infer_equal(
    serialised: bytes, opsets: tuple[tuple[str, int], ...], operands: tuple["_Facts | None", ...]
) -> tuple[Type, ...]:
    """Return the types of the outputs of a node without names."""
    node = onnx.NodeProto.FromString(serialised)
    values: list[Value | None] = []
    for name, facts in zip(node.input, operands, strict=True):
        dtype, shape, content = facts or (None, None, None)
        constant = None if content is None else np.ndarray(shape or (), dtype, content)
        values.append(facts and Value(name, dtype, shape, constant))
    return tuple(_infer(node, dict(opsets), values))


def _infer(
    node: onnx.NodeProto, opsets: Mapping[str, int], inputs: Sequence[Value | None]
) -> list[Type]:
    unknown = [UNKNOWN] * len(node.output)
    domain = "" if node.domain == "ai.onnx" else node.domain
    present = [operand for operand in inputs if operand is not None and operand.name]
    if is_enclosing(node) or not in_onnx(node.op_type, opsets[domain], domain):
        return unknown
    if any(operand.dtype is None for operand in present):
        return unknown
    protos = {operand.name: type_proto(operand.dtype, operand.shape) for operand in present}
    data = {
        operand.name: numpy_helper.from_array(operand.constant, operand.name)
        for operand in present
        if operand.constant is not None and operand.constant.nbytes <= MAX_CONSTANT_BYTES
    }
    try:
        schema = _schema(node.op_type, opsets[domain], domain)
        inferred = onnx.shape_inference.infer_node_outputs(
            schema, node, protos, data, opset_imports=_imports(tuple(opsets.items()))
        )
    except onnx.checker.ValidationError:  # ONNX Runtime may take it
        return unknown
    except (onnx.shape_inference.InferenceError, onnx.defs.SchemaError) as error:
        raise ModelRefused(str(error).splitlines()[0][:200], node.name or node.op_type) from error
    for name in inferred:
        _require_sizes(node, name, inferred[name])
    types = [type_of(inferred[name]) if name in inferred else UNKNOWN for name in node.output]
    if domain == "" and _has_early_negative_axes(node, opsets[domain]):
        return [(dtype, None) for dtype, _ in types]
    operand_shapes = [None if operand is None else operand.shape for operand in inputs]
    inferred_shapes = [shape for _, shape in types]
    shapes = runtime_shapes(node, NodeAttributes(node), operand_shapes, inferred_shapes)
    return [(dtype, shape) for (dtype, _), shape in zip(types, shapes, strict=True)]


def _require_sizes(node: onnx.NodeProto, name: str, proto: onnx.TypeProto) -> None:
    """Refuse an output of a negative size, such as under a window larger than its image."""
    sizes = [dim.dim_value for dim in proto.tensor_type.shape.dim if dim.HasField("dim_value")]
    if any(size < 0 for size in sizes):
        text = f"[ShapeInferenceError] {node.op_type} would make {name} of shape {sizes}"
        remedy = "larger inputs, or a smaller window or crop, are needed"
        raise ModelRefused(f"{text}: {remedy}", node.name or node.op_type)


def _has_early_negative_axes(node: onnx.NodeProto, opset: int) -> bool:
    """Return True for axes counted from the end before opset 11, which has them first.

    ONNX Runtime may make other sizes of them than ONNX's shape inference computes.
    """
    if opset >= _NEGATIVE_AXES:
        return False
    return any(axis < 0 for axis in NodeAttributes(node).get("axes", ()))


def runtime_types_of(node: onnx.NodeProto, opset: int, operands: Mapping[str, Value]) -> list[Type]:
    """Return the type of every output by ONNX Runtime, UNKNOWN where it has none.

    `operands` are the inputs and the values that subgraphs capture. Raise `ModelRefused` for a
    node that ONNX Runtime does not take.
    """
    typed = [
        Operand(name, value.dtype, value.shape, value.constant)
        for name, value in operands.items()
        if value.dtype is not None and (value.dtype.kind != "V" or value.dtype in WIDER)
    ]
    if len(typed) < len(operands):
        return [UNKNOWN] * len(node.output)
    try:
        types = node_types(node, host.opset_for(node.op_type, node.domain, opset), typed)
    except host.HostError as error:
        raise ModelRefused(f"{node.op_type}: {error}", node.name or node.op_type) from error
    return [types.get(name, UNKNOWN) for name in node.output]


@lru_cache(maxsize=_KEPT_TYPES)
def type_proto(dtype: DType | None, shape: Shape | None) -> onnx.TypeProto:
    """Return the type of a value whose element type is known; callers do not change it."""
    assert dtype is not None
    dims = None if shape is None else [None if dim < 0 else dim for dim in shape]
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(dtype), dims)


_schema = lru_cache(maxsize=256)(onnx.defs.get_schema)


@lru_cache(maxsize=1)
def _imports(opsets: tuple[tuple[str, int], ...]) -> list[onnx.OperatorSetIdProto]:
    return [helper.make_opsetid(domain, version) for domain, version in opsets]
