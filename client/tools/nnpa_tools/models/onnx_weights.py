# SPDX-License-Identifier: Apache-2.0
"""The weights of an ONNX file as little-endian bytes, read without the onnx package.

Field numbers and element types: the ONNX specification, onnx.proto3 (ModelProto.graph,
GraphProto.initializer, TensorProto).
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from nnpa.network.v1 import network_pb2 as pb

_FIELD = descriptor_pb2.FieldDescriptorProto
# TensorProto.DataType in int32_data: one element per number, and its NumPy type.
_IN_INT32 = {2: "u1", 3: "i1", 4: "<u2", 5: "<i2", 6: "<i4", 9: "u1", 10: "<u2", 16: "<u2",
             17: "u1", 18: "u1", 19: "u1", 20: "u1"}  # fmt: skip
# TensorProto.DataType in a field of its own: the field, and its NumPy type.
_IN_OWN_FIELD = {1: ("float_data", "<f4"), 7: ("int64_data", "<i8"), 11: ("double_data", "<f8"),
              12: ("uint64_data", "<u4"), 13: ("uint64_data", "<u8")}  # fmt: skip
_STORED = {"float_data": "<f4", "double_data": "<f8", "uint64_data": "u8"}
_TENSOR = {
    "data_type": (2, _FIELD.TYPE_INT32),
    "float_data": (4, _FIELD.TYPE_FLOAT),
    "int32_data": (5, _FIELD.TYPE_INT32),
    "int64_data": (7, _FIELD.TYPE_INT64),
    "name": (8, _FIELD.TYPE_STRING),
    "raw_data": (9, _FIELD.TYPE_BYTES),
    "double_data": (10, _FIELD.TYPE_DOUBLE),
    "uint64_data": (11, _FIELD.TYPE_UINT64),
}


@cache
def _model_class() -> Any:
    """Return a message class with the fields of ModelProto on the path to the weights."""
    file = descriptor_pb2.FileDescriptorProto(
        name="onnx_weights.proto", package="onnx_weights", syntax="proto3"
    )
    tensor = file.message_type.add(name="Tensor")
    for name, (number, kind) in _TENSOR.items():
        many = name.endswith("_data") and name != "raw_data"
        label = _FIELD.LABEL_REPEATED if many else _FIELD.LABEL_OPTIONAL
        tensor.field.add(name=name, number=number, type=kind, label=label)
    for outer, name, number, inner, label in (
        ("Graph", "initializer", 5, "Tensor", _FIELD.LABEL_REPEATED),
        ("Model", "graph", 7, "Graph", _FIELD.LABEL_OPTIONAL),
    ):
        message = file.message_type.add(name=outer)
        kind, full = _FIELD.TYPE_MESSAGE, f".onnx_weights.{inner}"
        message.field.add(name=name, number=number, type=kind, type_name=full, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("onnx_weights.Model"))


def _elements(tensor: Any) -> bytes:
    if tensor.raw_data:
        return bytes(tensor.raw_data)
    if tensor.data_type in _IN_INT32:
        field, kind = "int32_data", _IN_INT32[tensor.data_type]
    elif tensor.data_type in _IN_OWN_FIELD:
        field, kind = _IN_OWN_FIELD[tensor.data_type]
    else:
        raise ValueError(f"weight {tensor.name}: element type {tensor.data_type} is not known")
    stored = _STORED.get(field, "i8")
    return np.array(getattr(tensor, field), stored).astype(kind).tobytes()


def weights_of(model: bytes, report: pb.NetworkReport) -> Iterator[bytes]:
    """Yield the bytes of each weight in a network's report; ValueError if the file differs.

    `model` is the contents of the network's ONNX file.
    """
    tensors = _model_class().FromString(model).graph.initializer
    for tensor, weight in zip(tensors, report.weights, strict=True):
        data = _elements(tensor)
        if tensor.name != weight.name or len(data) != weight.nbytes:
            text = f"{len(data)} bytes of {tensor.name}"
            raise ValueError(f"weight {weight.name}: {text}, expected {weight.nbytes} bytes")
        yield data
