# SPDX-License-Identifier: Apache-2.0
"""Lists of operations on the wire, their large arrays kept apart from the messages.

protobuf copies contents each time a message is made, nested, written, parsed or looked at. Here an
array is joined into what gRPC sends, and the `data` of a result is a view of what gRPC received.
The wire form is the contract's (Protocol Buffers, Encoding).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from nnpa.zdnn.v1.accelerator_pb2 import ExecuteRequest, ExecuteResponse
from nnpa.zdnn.v1.operation_pb2 import Operation, OperationResult

Array: TypeAlias = npt.NDArray[np.uint8]

APART = 1 << 16  # bytes from which an array is worth the way around protobuf
_BYTES = 2  # wire type of length-delimited fields
_VARINT = 0
_FIXED = {1: 8, 5: 4}
_OPERATIONS = ExecuteRequest.OPERATIONS_FIELD_NUMBER
_RESULTS = ExecuteResponse.RESULTS_FIELD_NUMBER
_DATA = OperationResult.DATA_FIELD_NUMBER


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of operations; `arrays` belong to operation number so-and-so, which lacks them."""

    message: ExecuteRequest
    arrays: Mapping[int, Sequence[memoryview]] = field(
        default_factory=dict[int, Sequence[memoryview]]
    )


@dataclass(frozen=True, slots=True)
class Answered:
    """Results of a list; `arrays` are the data of result number so-and-so, which lacks it."""

    results: Sequence[OperationResult]
    arrays: Mapping[int, memoryview] = field(default_factory=dict[int, memoryview])

    def data(self, index: int) -> bytes | memoryview | None:
        """Return the array of a result, None if it has none."""
        result = self.results[index]
        return result.data if result.HasField("data") else self.arrays.get(index)

    def whole(self) -> list[OperationResult]:
        """Return the results with their arrays in them, as the contract has them."""
        for index, array in self.arrays.items():
            self.results[index].data = bytes(array)
        return list(self.results)


class _Field(NamedTuple):
    """A field on the wire: where it starts, where its value starts, where it ends."""

    number: int
    kind: int
    start: int
    value: int
    end: int


class Copies:
    """Copies of arrays that wait in a pipeline; their memory serves the next ones.

    Fresh memory for each would cost a page fault every 4 KiB. At most `LARGEST` bytes stay.
    """

    LARGEST = 1 << 24

    def __init__(self) -> None:
        self._free: list[Array] = []
        self._used: list[Array] = []

    def copy(self, array: memoryview) -> memoryview:
        """Return a copy that is valid until `release`."""
        fits = [one for one in self._free if one.size >= array.nbytes]
        memory = min(fits, key=len) if fits else np.empty(array.nbytes, np.uint8)
        self._free = [one for one in self._free if one is not memory]
        self._used.append(memory)
        copied = memory.data[: array.nbytes]
        copied[:] = array
        return copied

    def release(self) -> None:
        """Take back the memory of all copies."""
        self._free, self._used = [*self._used, *self._free], []
        while sum(map(len, self._free)) > self.LARGEST:
            self._free.pop()


def serialize(listed: Listed) -> bytes:
    """Return the wire form of ExecuteRequest."""
    return b"".join(pieces(listed))


def pieces(listed: Listed) -> Sequence[bytes | memoryview]:
    """Return the wire form of ExecuteRequest in pieces, arrays being themselves."""
    if not listed.arrays:
        return (listed.message.SerializeToString(),)
    parts: list[bytes | memoryview] = [
        ExecuteRequest(session=listed.message.session).SerializeToString()
    ]
    for index, operation in enumerate(listed.message.operations):
        contents = _joined(operation, listed.arrays.get(index, ()))
        parts.append(_head(_OPERATIONS, sum(map(len, contents))))
        parts.extend(contents)
    return parts


def _joined(operation: Operation, arrays: Sequence[memoryview]) -> list[bytes | memoryview]:
    """Return the wire form of an operation in parts, arrays in its arm's `data`."""
    if not arrays:
        return [operation.SerializeToString()]
    name = operation.WhichOneof("operation") or ""
    arm = Operation.DESCRIPTOR.fields_by_name[name]
    message = getattr(operation, name)
    data = message.DESCRIPTOR.fields_by_name["data"].number
    contents: list[bytes | memoryview] = [message.SerializeToString()]
    for array in arrays:
        contents += _head(data, array.nbytes), array
    rest = Operation()
    rest.CopyFrom(operation)
    rest.ClearField("operation")
    return [_head(arm.number, sum(map(len, contents))), *contents, rest.SerializeToString()]


def _head(number: int, size: int) -> bytes:
    """Return the tag and length of a field of so many bytes."""
    return varint(number << 3 | _BYTES) + varint(size)


def varint(number: int) -> bytes:
    """Return the wire form of a number."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def parse(raw: bytes | memoryview) -> Answered:
    """Return the results that were received; raises DecodeError as a message would."""
    if len(raw) < APART:
        return Answered(ExecuteResponse.FromString(bytes(raw)).results)
    view = memoryview(raw)
    results: list[OperationResult] = []
    arrays: dict[int, memoryview] = {}
    for one in _fields(view):
        if one.number != _RESULTS or one.kind != _BYTES:
            continue
        contents = view[one.value : one.end]
        if len(contents) >= APART:
            contents, array = _without_data(contents)
            if array is not None:
                arrays[len(results)] = array
        results.append(OperationResult.FromString(bytes(contents)))
    return Answered(results, arrays)


def _without_data(view: memoryview) -> tuple[memoryview, memoryview | None]:
    """Return the wire form of a result without its array, and this."""
    kept: list[memoryview] = []
    array: memoryview | None = None
    for one in _fields(view):
        if one.number == _DATA and one.kind == _BYTES:
            array = view[one.value : one.end]
        else:
            kept.append(view[one.start : one.end])
    return memoryview(b"".join(kept)), array


def _fields(view: memoryview) -> Iterator[_Field]:
    """Yield the fields of a message's wire form; groups, which ours never have, are errors."""
    position, end = 0, len(view)
    while position < end:
        start = position
        tag, position = _varint(view, position)
        kind, value = tag & 7, position
        if kind == _BYTES:
            size, value = _varint(view, position)
            position = value + size
        elif kind == _VARINT:
            _, position = _varint(view, position)
        else:
            position += _FIXED.get(kind, end)
        if position > end:
            raise DecodeError("a field goes beyond its message")
        yield _Field(tag >> 3, kind, start, value, position)


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    """Return a number and where it ends."""
    number = 0
    for shift in range(0, 70, 7):
        if position >= len(view):
            break
        byte = view[position]
        number |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return number, position
    raise DecodeError("a number that does not end")
