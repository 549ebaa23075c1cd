# SPDX-License-Identifier: Apache-2.0
"""Large arrays beside their messages, because protobuf copies an array with each message.

An array is joined into the bytes that gRPC sends, and the `data` of a result is a view of the bytes
that gRPC received. The wire form is the contract's.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import cast

from nnpa.zdnn.v1.accelerator_pb2 import ExecuteRequest, ExecuteResponse, ReadTensorResponse
from nnpa.zdnn.v1.operation_pb2 import Operation, OperationResult
from nnpa_wire.chunks import parse_chunk, serialize_chunk
from nnpa_wire.fields import BYTES, fields, head

from nnpa_client._server.methods import READ_TENSOR, WRITE_TENSOR, Download, Upload
from nnpa_client._server.shortcuts.wrapper import TransportWrapper
from nnpa_client._server.transport import (
    EXECUTE,
    OUT_OF_BAND_BYTES,
    Method,
    Received,
    Request,
    Response,
    Sent,
)

__tracebackhide__ = True  # pytest shows the line that called, not these

_OPERATIONS = ExecuteRequest.OPERATIONS_FIELD_NUMBER
_RESULTS = ExecuteResponse.RESULTS_FIELD_NUMBER
_DATA = OperationResult.DATA_FIELD_NUMBER


def serialize(request: Request) -> bytes:
    """Return the wire form of ExecuteRequest."""
    return b"".join(pieces(request))


def pieces(request: Request) -> Sequence[bytes | memoryview]:
    """Return the wire form of ExecuteRequest in pieces; arrays are pieces of their own."""
    if not request.arrays:
        return (request.message.SerializeToString(),)
    parts: list[bytes | memoryview] = [
        ExecuteRequest(session=request.message.session).SerializeToString()
    ]
    for index, operation in enumerate(request.message.operations):
        contents = _operation_pieces(operation, request.arrays.get(index, ()))
        parts.append(head(_OPERATIONS, sum(map(len, contents))))
        parts.extend(contents)
    return parts


def _operation_pieces(
    operation: Operation, arrays: Sequence[memoryview]
) -> list[bytes | memoryview]:
    """Return the wire form of an operation in pieces, with arrays in the `data` of its arm."""
    if not arrays:
        return [operation.SerializeToString()]
    name = operation.WhichOneof("operation") or ""
    arm = Operation.DESCRIPTOR.fields_by_name[name]
    message = getattr(operation, name)
    data = message.DESCRIPTOR.fields_by_name["data"].number
    contents: list[bytes | memoryview] = [message.SerializeToString()]
    for array in arrays:
        contents += head(data, array.nbytes), array
    rest = Operation()
    rest.CopyFrom(operation)
    rest.ClearField("operation")
    return [head(arm.number, sum(map(len, contents))), *contents, rest.SerializeToString()]


def parse(raw: bytes | memoryview) -> Response:
    """Parse ExecuteResponse; raise DecodeError as its message does."""
    if len(raw) < OUT_OF_BAND_BYTES:
        return Response(ExecuteResponse.FromString(bytes(raw)).results)
    view = memoryview(raw)
    results: list[OperationResult] = []
    arrays: dict[int, memoryview] = {}
    for field in fields(view):
        if field.number != _RESULTS or field.kind != BYTES:
            continue
        contents = view[field.value : field.end]
        if len(contents) >= OUT_OF_BAND_BYTES:
            contents, array = _without_data(contents)
            if array is not None:
                arrays[len(results)] = array
        results.append(OperationResult.FromString(bytes(contents)))
    return Response(results, arrays)


def _without_data(view: memoryview) -> tuple[memoryview, memoryview | None]:
    """Return the wire form of a result without its array, and the array."""
    kept: list[memoryview] = []
    array: memoryview | None = None
    for field in fields(view):
        if field.number == _DATA and field.kind == BYTES:
            array = view[field.value : field.end]
        else:
            kept.append(view[field.start : field.end])
    return memoryview(b"".join(kept)), array


def serialize_upload(part: Upload) -> bytes:
    """Return the wire form of a header message, or of a chunk."""
    return serialize_chunk(part) if isinstance(part, memoryview) else part.SerializeToString()


def parse_download(raw: bytes) -> Download:
    """Return the bytes of a chunk, or the message that is no chunk."""
    chunk = parse_chunk(raw)
    return ReadTensorResponse.FromString(raw) if chunk is None else chunk


# By method: the same method with the codec of this module.
_METHODS: Mapping[object, object] = MappingProxyType(
    {
        EXECUTE: Method(EXECUTE.path, serialize, parse, pieces=pieces),
        WRITE_TENSOR: Method(WRITE_TENSOR.path, serialize_upload, WRITE_TENSOR.parse),
        READ_TENSOR: Method(READ_TENSOR.path, READ_TENSOR.serialize, parse_download),
    }
)


def _with_codec(method: Method[Sent, Received]) -> Method[Sent, Received]:
    return cast("Method[Sent, Received]", _METHODS.get(method, method))


class OutOfBandArrays(TransportWrapper):
    """A transport whose messages leave large arrays beside them."""

    def unary(self, method: Method[Sent, Received], request: Sent) -> Received:
        """Send one message, and return the answer."""
        return self.inner.unary(_with_codec(method), request)

    def send_stream(self, method: Method[Sent, Received], requests: Iterable[Sent]) -> Received:
        """Send messages, and return the answer to all of them."""
        return self.inner.send_stream(_with_codec(method), requests)

    def receive_stream(self, method: Method[Sent, Received], request: Sent) -> Iterator[Received]:
        """Send one message, and return its answers."""
        return self.inner.receive_stream(_with_codec(method), request)
