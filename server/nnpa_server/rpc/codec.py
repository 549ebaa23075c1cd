# SPDX-License-Identifier: Apache-2.0
"""The codec of lists of operations that keeps large arrays out of their protobuf messages.

protobuf copies an array each time its message is built, nested, written, parsed or read: ten times
per call. Out of band, the `data` of a transform is a view of the bytes that gRPC received, and the
contents of results are joined into the bytes that gRPC sends. The wire form is the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import operation_pb2, tensor_pb2
from nnpa_wire.fields import BYTES, delimited, fields, head, read_varint

from nnpa_server.errors import no_message

Array: TypeAlias = npt.NDArray[np.uint8]

OUT_OF_BAND_BYTES = 1 << 16  # smaller arrays stay in their messages
_MAX_FIELDS = 1 << 12  # of a list: protobuf parses more of them faster
_MAX_INNER_FIELDS = 64  # of an operation and its arm, for the same reason
_SESSION_TAG, _OPERATION_TAG = 0x0A, 0x12  # of ExecuteRequest.session and .operations
_CONTINUES = 0x80  # the bit of a byte that a varint's next byte follows
_NO_ARRAYS: Mapping[int, Sequence[memoryview]] = {}
_OPERATIONS = pb.ExecuteRequest.OPERATIONS_FIELD_NUMBER
_RESULTS = pb.ExecuteResponse.RESULTS_FIELD_NUMBER
_DATA = operation_pb2.OperationResult.DATA_FIELD_NUMBER
_OUTPUTS = operation_pb2.OperationResult.OUTPUTS_FIELD_NUMBER
_ZTENSOR = tensor_pb2.ZtensorInfo.ZTENSOR_FIELD_NUMBER
_STICKS = tensor_pb2.Ztensor.STICKS_FIELD_NUMBER
_ARMS = frozenset(
    arm.number for arm in operation_pb2.Operation.DESCRIPTOR.oneofs_by_name["operation"].fields
)
# The field number of `data`, by the field number of each arm that has one.
_DATA_BY_ARM = {
    arm.number: arm.message_type.fields_by_name["data"].number
    for arm in operation_pb2.Operation.DESCRIPTOR.oneofs_by_name["operation"].fields
    if arm.message_type is not None and "data" in arm.message_type.fields_by_name
}


class WireRequest:
    """A list of operations as received: wire form, out-of-band arrays, lazily parsed message.

    `raw` is the wire form of the message without the arrays; `arrays` holds the `data` of
    operations by their index in the list. The message is parsed at its first access if the
    session's name can be read without it; otherwise it is parsed here, which may raise DecodeError.
    """

    __slots__ = ("_message", "arrays", "raw", "session")

    def __init__(self, raw: bytes, arrays: Mapping[int, Sequence[memoryview]] = _NO_ARRAYS) -> None:
        self._message: pb.ExecuteRequest | None = None
        self.raw = raw
        self.arrays = arrays
        session = _session_of(raw)
        if session is None:
            self._message = pb.ExecuteRequest.FromString(raw)
            session = self._message.session
        self.session = session

    @property
    def message(self) -> pb.ExecuteRequest:
        """The list without its out-of-band arrays, parsed at the first access."""
        if self._message is None:
            try:
                self._message = pb.ExecuteRequest.FromString(self.raw)
            except DecodeError as error:
                raise no_message() from error
        return self._message

    @property
    def operations(self) -> Sequence[operation_pb2.Operation]:
        """The operations, without their out-of-band arrays."""
        return self.message.operations


def _session_of(raw: bytes) -> str | None:
    """Return the session's name if the message is one name followed by operations alone.

    Return None for any other form, which protobuf must parse: of two names the last one counts.
    """
    if len(raw) < 2 or raw[0] != _SESSION_TAG or raw[1] >= _CONTINUES:
        return None
    position = name_end = 2 + raw[1]
    last = len(raw) - 1
    while position < last and raw[position] == _OPERATION_TAG:
        size = raw[position + 1]
        position += 2
        if size >= _CONTINUES:
            size, position = read_varint(raw, position - 1)
        position += size
    name = raw[2:name_end]
    return name.decode() if position == len(raw) and name.isascii() else None


@dataclass(frozen=True, slots=True)
class Response:
    """The results of a list, with large contents out of band."""

    results: Sequence[operation_pb2.OperationResult]
    arrays: Mapping[int, Array]  # `data` of results by their index
    sticks: Mapping[int, Mapping[int, Array]] = field(  # of outputs, by result, then by output
        default_factory=dict[int, Mapping[int, Array]]
    )


def parse(raw: bytes | memoryview) -> WireRequest:
    """Parse a list with its large arrays out of band; raise DecodeError.

    If the list is parsed lazily, `WireRequest.message` refuses invalid bytes instead.
    """
    if len(raw) < OUT_OF_BAND_BYTES:
        return WireRequest(bytes(raw))
    parts: list[bytes | memoryview] = []
    arrays: dict[int, Sequence[memoryview]] = {}
    view, index = memoryview(raw), 0
    for count, top in enumerate(fields(view)):
        if count >= _MAX_FIELDS:
            return WireRequest(bytes(raw))
        part: bytes | memoryview = view[top.start : top.end]
        if top.number == _OPERATIONS:
            if top.kind == BYTES and top.end - top.value >= OUT_OF_BAND_BYTES:
                operation, data = _without_arrays(view[top.value : top.end])
                if data:
                    part, arrays[index] = delimited(_OPERATIONS, operation), data
            index += 1
        parts.append(part)
    return WireRequest(b"".join(parts), arrays)


def _without_arrays(view: memoryview) -> tuple[bytes, list[memoryview]]:
    """Split an operation into its wire form without arrays, and its arrays.

    An operation with two arms stays whole: protobuf's rules for a oneof decide what it means.
    """
    parts: list[bytes | memoryview] = []
    arrays: list[memoryview] = []
    members = list(islice(fields(view), _MAX_INNER_FIELDS + 1))
    if len(members) > _MAX_INNER_FIELDS or sum(member.number in _ARMS for member in members) > 1:
        return bytes(view), []
    for member in members:
        data_number = _DATA_BY_ARM.get(member.number) if member.kind == BYTES else None
        if data_number is None:
            parts.append(view[member.start : member.end])
            continue
        arm, rest = view[member.value : member.end], list[memoryview]()
        for count, inner in enumerate(fields(arm)):
            if count >= _MAX_INNER_FIELDS:
                return bytes(view), []
            if inner.number == data_number and inner.kind == BYTES:
                arrays.append(arm[inner.value : inner.end])
            else:
                rest.append(arm[inner.start : inner.end])
        parts.append(delimited(member.number, b"".join(rest)))
    return b"".join(parts), arrays


def serialize(response: Response) -> bytes:
    """Return the wire form of ExecuteResponse."""
    return b"".join(pieces(response))


def pieces(response: Response) -> Sequence[bytes | memoryview]:
    """Return the wire form of ExecuteResponse in pieces; the large contents are not copied."""
    if not response.arrays and not response.sticks:
        return (pb.ExecuteResponse(results=response.results).SerializeToString(),)
    parts: list[bytes | memoryview] = []
    for index, result in enumerate(response.results):
        sticks = response.sticks.get(index)
        contents = _with_sticks(result, sticks or {})
        array = response.arrays.get(index)
        if array is not None:
            contents += head(_DATA, array.nbytes), array.data
        parts += head(_RESULTS, sum(map(len, contents))), *contents
    return parts


def _with_sticks(
    result: operation_pb2.OperationResult, sticks: Mapping[int, Array]
) -> list[bytes | memoryview]:
    """Return the wire form of a result in parts, its outputs last.

    Each output has two ztensor fields, the second with the sticks alone: protobuf merges them.
    """
    if not sticks:
        return [result.SerializeToString()]
    bare = operation_pb2.OperationResult()
    bare.CopyFrom(result)
    bare.ClearField("outputs")
    parts: list[bytes | memoryview] = [bare.SerializeToString()]
    for index, output in enumerate(result.outputs):
        info: list[bytes | memoryview] = [output.SerializeToString()]
        if index in sticks:
            size = sticks[index].nbytes
            tag = head(_STICKS, size)
            info += head(_ZTENSOR, len(tag) + size), tag, sticks[index].data
        parts += head(_OUTPUTS, sum(map(len, info))), *info
    return parts


def content_sizes(
    result: operation_pb2.OperationResult, array: Array | None, sticks: Mapping[int, Array]
) -> list[int]:
    """Return the sizes in bytes of a result's contents: its array, its outputs' sticks."""
    inline = [len(output.ztensor.sticks) for output in result.outputs]
    out_of_band = [stick.nbytes for stick in sticks.values()]
    return [0 if array is None else array.nbytes, *inline, *out_of_band]
