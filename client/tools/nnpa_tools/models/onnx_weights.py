# SPDX-License-Identifier: Apache-2.0
"""The weights of an ONNX file as little-endian bytes, read without the onnx package.

Source of element types: the ONNX specification, onnx.proto3, TensorProto.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from nnpa.network.v1 import network_pb2 as pb
from nnpa_files.external_data import model_class

# TensorProto.DataType in int32_data: one element per number, and its NumPy type.
_IN_INT32 = {2: "u1", 3: "i1", 4: "<u2", 5: "<i2", 6: "<i4", 9: "u1", 10: "<u2", 16: "<u2",
             17: "u1", 18: "u1", 19: "u1", 20: "u1"}  # fmt: skip
# TensorProto.DataType in a field of its own: the field, and its NumPy type.
_IN_OWN_FIELD = {1: ("float_data", "<f4"), 7: ("int64_data", "<i8"), 11: ("double_data", "<f8"),
              12: ("uint64_data", "<u4"), 13: ("uint64_data", "<u8")}  # fmt: skip
_STORED = {"float_data": "<f4", "double_data": "<f8", "uint64_data": "u8"}


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
    tensors = model_class().FromString(model).graph.initializer
    for tensor, weight in zip(tensors, report.weights, strict=True):
        data = _elements(tensor)
        if tensor.name != weight.name or len(data) != weight.nbytes:
            text = f"{len(data)} bytes of {tensor.name}"
            raise ValueError(f"weight {weight.name}: {text}, expected {weight.nbytes} bytes")
        yield data
