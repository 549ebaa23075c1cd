# SPDX-License-Identifier: Apache-2.0
"""Models of a server through the Open Inference Protocol: load, infer, unload, with NumPy arrays.

Any client of the protocol can do this; this one needs no further package. Its message classes live
in a descriptor pool of their own, because every client of the protocol registers the package
`inference`, and the default pool of a process takes it once.
Source: Open Inference Protocol, version 2, in Triton's dialect.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Self, Unpack

import grpc
import ml_dtypes
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from nnpa_client._server.transport import error_from_rpc, open_channel
from nnpa_client._values.user_arrays import TEXT, Array, join_texts, split_texts
from nnpa_client.config import Credentials, endpoint

__tracebackhide__ = True  # pytest shows the line that called, not these
__all__ = ["Inferred", "ModelClient"]

_SERVICE = "inference.GRPCInferenceService"
_DESCRIPTOR = "open_inference_grpc.binpb"
_DTYPES: Mapping[str, np.dtype[np.generic]] = MappingProxyType(
    {
        name: np.dtype(kind)
        for name, kind in (
            ("BOOL", "?"), ("UINT8", "u1"), ("UINT16", "<u2"), ("UINT32", "<u4"),
            ("UINT64", "<u8"), ("INT8", "i1"), ("INT16", "<i2"), ("INT32", "<i4"),
            ("INT64", "<i8"), ("FP16", "<f2"), ("BF16", ml_dtypes.bfloat16), ("FP32", "<f4"),
            ("FP64", "<f8"), ("BYTES", TEXT),
        )
    }
)  # fmt: skip
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    """Return a pool with the protocol's messages, private to this module."""
    pool = descriptor_pool.DescriptorPool()
    data = (files("nnpa.oip") / _DESCRIPTOR).read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.Add(file)
    return pool


@cache
def _message(name: str) -> Any:
    """Return the class of a message of the protocol."""
    descriptor = _pool().FindMessageTypeByName(f"inference.{name}")
    return message_factory.GetMessageClass(descriptor)


@dataclass(frozen=True, slots=True)
class Inferred:
    """A model's outputs by name, and the number of operations with a range violation."""

    outputs: Mapping[str, Array]
    range_violations: int


class ModelClient:
    """The models of a server; close it, or use it in a `with` statement.

    `target` is host:port or unix:/path; `credentials` are `token`, `tls_ca`, `tls_cert` and
    `tls_key`, as of `nnpa_client.connect`. Every method raises `TransportError`.
    """

    def __init__(
        self, target: str, timeout: float | None = None, **credentials: Unpack[Credentials]
    ) -> None:
        place = endpoint(target, **credentials)
        self.target = place.target
        self._timeout = timeout
        self._metadata = (("authorization", f"Bearer {place.token}"),) if place.token else None
        self._channel = open_channel(place)

    def _call(self, method: str, request: Any) -> Any:
        described = _pool().FindServiceByName(_SERVICE).methods_by_name[method]
        answer = _message(described.output_type.name)
        call = self._channel.unary_unary(
            f"/{_SERVICE}/{method}", type(request).SerializeToString, answer.FromString
        )
        try:
            return call(request, timeout=self._timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise error_from_rpc(error, self.target) from None

    def load(self, name: str, model: bytes, machine: str = "telum2") -> None:
        """Load an ONNX file for a machine, and publish it under a name."""
        request = _message("RepositoryModelLoadRequest")(model_name=name)
        config = {"parameters": {"machine": {"string_value": machine}}}
        request.parameters["config"].string_param = json.dumps(config)
        request.parameters["file:1/model.onnx"].bytes_param = model
        self._call("RepositoryModelLoad", request)

    def unload(self, name: str) -> None:
        """Unload a model."""
        request = _message("RepositoryModelUnloadRequest")(model_name=name)
        self._call("RepositoryModelUnload", request)

    def properties(self, name: str) -> dict[str, str]:
        """Return the parameters of a model's configuration, such as its machine and placement."""
        request = _message("ModelConfigRequest")(name=name)
        parameters = self._call("ModelConfig", request).config.parameters
        return {key: parameter.string_value for key, parameter in parameters.items()}

    def infer(self, name: str, inputs: Mapping[str, Array]) -> Inferred:
        """Run a model on arrays of its element types and shapes; text is `str`."""
        request = _message("ModelInferRequest")(model_name=name)
        request.parameters["nnpa_max_response_bytes"].int64_param = 0
        for key, array in inputs.items():
            datatype, data = _raw(key, array)
            request.inputs.add(name=key, datatype=datatype, shape=array.shape)
            request.raw_input_contents.append(data)
        response = self._call("ModelInfer", request)
        outputs = {
            tensor.name: _array(tensor.datatype, raw).reshape(tensor.shape)
            for tensor, raw in zip(response.outputs, response.raw_output_contents, strict=True)
        }
        return Inferred(outputs, response.parameters["nnpa_range_violations"].int64_param)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def _raw(name: str, array: Array) -> tuple[str, bytes]:
    """Return an input's element type and raw contents."""
    if array.dtype.kind in "UT":
        array = array.astype(TEXT)
    dense = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    if dense.dtype not in _NAMES:
        raise ValueError(f"input {name}: {array.dtype} array, expected one of {', '.join(_DTYPES)}")
    data = join_texts(dense) if dense.dtype == TEXT else dense.tobytes()
    return _NAMES[dense.dtype], data


def _array(datatype: str, raw: bytes) -> Array:
    """Return an output from its raw contents."""
    return split_texts(raw) if datatype == "BYTES" else np.frombuffer(raw, _DTYPES[datatype])
