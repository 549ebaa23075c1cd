# SPDX-License-Identifier: Apache-2.0
"""Lists of operations on the wire, their large arrays kept apart from the messages.

protobuf copies contents each time a message is made, nested, written, parsed or looked at: ten
times for an array that comes and goes. Here the bytes of `data` of transforms, and of results, are
views of what gRPC received, or are joined into what it sends. The wire form is the contract's.
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
from nnpa_wire.fields import BYTES, delimited, fields, head

from nnpa_server.errors import invalid, no_message

Array: TypeAlias = npt.NDArray[np.uint8]

APART = 1 << 16  # bytes from which an array is worth the way around protobuf
_FIELDS = 1 << 12  # of a list: more are left to protobuf, which is quicker with many
_INNER = 64  # of an operation and its arm, for the same reason
_SESSION = b"\x0a"  # tag of ExecuteRequest.session
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
# By field number of an arm that takes arrays: the field number of its `data`.
_ARRAYS = {
    arm.number: arm.message_type.fields_by_name["data"].number
    for arm in operation_pb2.Operation.DESCRIPTOR.oneofs_by_name["operation"].fields
    if arm.message_type is not None and "data" in arm.message_type.fields_by_name
}


class Listed:
    """A list of operations; `arrays` are those of operation number so-and-so, which lacks them.

    `raw` is the wire form of the message, empty where there is none. A list that came before in
    another call need not be parsed again: the message is made when somebody asks for it.
    """

    __slots__ = ("_message", "arrays", "raw", "session")

    def __init__(
        self,
        message: pb.ExecuteRequest | None,
        arrays: Mapping[int, Sequence[memoryview]] = _NO_ARRAYS,
        raw: bytes = b"",
    ) -> None:
        self._message = message
        self.arrays = arrays
        self.raw = raw
        self.session = _session_of(raw) if message is None else message.session

    @property
    def message(self) -> pb.ExecuteRequest:
        """The list without its arrays."""
        if self._message is None:
            try:
                message = pb.ExecuteRequest.FromString(self.raw)
            except DecodeError as error:
                raise no_message() from error
            if message.session != self.session:
                raise invalid("session", "there twice", "there once")
            self._message = message
        return self._message

    @property
    def operations(self) -> Sequence[operation_pb2.Operation]:
        """The operations of the list without their arrays."""
        return self.message.operations


def _session_of(raw: bytes) -> str:
    """Return the name of the session, which is the first field."""
    return raw[2 : 2 + raw[1]].decode()


def _is_plain(raw: bytes) -> bool:
    """Tell whether a message begins with a short name of a session, as ours do."""
    return raw[:1] == _SESSION and raw[1:2] < b"\x80" and raw[2 : 2 + raw[1]].isascii()


@dataclass(frozen=True, slots=True)
class Answered:
    """Results of a list, large contents apart from them.

    `arrays` are the data of result number so-and-so, `sticks` those of the outputs of result number
    so-and-so, by the number of the output; the results lack them.
    """

    results: Sequence[operation_pb2.OperationResult]
    arrays: Mapping[int, Array]
    sticks: Mapping[int, Mapping[int, Array]] = field(
        default_factory=dict[int, Mapping[int, Array]]
    )


def parse(raw: bytes | memoryview) -> Listed:
    """Return the list that was received; raises DecodeError unless that is left to its message."""
    if len(raw) < APART:
        return parse_whole(bytes(raw))
    kept: list[bytes | memoryview] = []
    arrays: dict[int, Sequence[memoryview]] = {}
    view, index = memoryview(raw), 0
    for count, one in enumerate(fields(view)):
        if count >= _FIELDS:
            return Listed(pb.ExecuteRequest.FromString(bytes(raw)))
        part: bytes | memoryview = view[one.start : one.end]
        if one.number == _OPERATIONS:
            if one.kind == BYTES and one.end - one.value >= APART:
                operation, found = _without_arrays(view[one.value : one.end])
                if found:
                    part, arrays[index] = delimited(_OPERATIONS, operation), found
            index += 1
        kept.append(part)
    return parse_whole(b"".join(kept), arrays)


def parse_whole(raw: bytes, arrays: Mapping[int, Sequence[memoryview]] = _NO_ARRAYS) -> Listed:
    """Return a list whose message is parsed when somebody asks for it."""
    message = None if _is_plain(raw) else pb.ExecuteRequest.FromString(raw)
    return Listed(message, arrays, raw)


def _without_arrays(view: memoryview) -> tuple[bytes, list[memoryview]]:
    """Return the wire form of an operation without its arrays, and these.

    An operation whose arm is there twice, of which only protobuf's rules say what it is, stays.
    """
    kept: list[bytes | memoryview] = []
    arrays: list[memoryview] = []
    parts = list(islice(fields(view), _INNER + 1))
    if len(parts) > _INNER or sum(one.number in _ARMS for one in parts) > 1:
        return bytes(view), []
    for one in parts:
        data = _ARRAYS.get(one.number) if one.kind == BYTES else None
        if data is None:
            kept.append(view[one.start : one.end])
            continue
        arm, rest = view[one.value : one.end], list[memoryview]()
        for count, inner in enumerate(fields(arm)):
            if count >= _INNER:
                return bytes(view), []
            if inner.number == data and inner.kind == BYTES:
                arrays.append(arm[inner.value : inner.end])
            else:
                rest.append(arm[inner.start : inner.end])
        kept.append(delimited(one.number, b"".join(rest)))
    return b"".join(kept), arrays


def serialize(answered: Answered) -> bytes:
    """Return the wire form of ExecuteResponse."""
    return b"".join(pieces(answered))


def pieces(answered: Answered) -> Sequence[bytes | memoryview]:
    """Return the wire form of ExecuteResponse in pieces, large contents being views of them."""
    if not answered.arrays and not answered.sticks:
        return (pb.ExecuteResponse(results=answered.results).SerializeToString(),)
    parts: list[bytes | memoryview] = []
    for index, result in enumerate(answered.results):
        sticks = answered.sticks.get(index)
        contents = _with_sticks(result, sticks or {})
        array = answered.arrays.get(index)
        if array is not None:
            contents += head(_DATA, array.nbytes), array.data
        parts += head(_RESULTS, sum(map(len, contents))), *contents
    return parts


def _with_sticks(
    result: operation_pb2.OperationResult, sticks: Mapping[int, Array]
) -> list[bytes | memoryview]:
    """Return the wire form of a result in parts, its outputs last.

    An output's ztensor is there twice, the second time with its sticks alone: as protobuf has it, a
    message that comes in two parts is both of them.
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


def carried(
    result: operation_pb2.OperationResult, array: Array | None, sticks: Mapping[int, Array]
) -> list[int]:
    """Return the sizes in bytes of what a result carries: its array, its outputs' sticks."""
    small = [len(one.ztensor.sticks) for one in result.outputs]
    large = [one.nbytes for one in sticks.values()]
    return [0 if array is None else array.nbytes, *small, *large]


def message_of(answered: Answered) -> pb.ExecuteResponse:
    """Return the answer as a message, for callers that are not on the wire."""
    response = pb.ExecuteResponse(results=answered.results)
    for index, array in answered.arrays.items():
        response.results[index].data = array.tobytes()
    for index, outputs in answered.sticks.items():
        for output, array in outputs.items():
            response.results[index].outputs[output].ztensor.sticks = array.tobytes()
    return response
