# SPDX-License-Identifier: Apache-2.0
"""What a trace tells: sessions, calls, operations with their operands, answers and contents."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from nnpa.zdnn.v1 import accelerator_pb2, operation_pb2, tensor_pb2
from nnpa.zdnn.v1.operation_pb2 import OperationResult
from nnpa.zdnn.v1.trace_pb2 import (
    TRACE_END_REASON_ENDED,
    ContentsRole,
    TracedCall,
    TracedContents,
    TraceEndReason,
    TraceRecord,
    TraceStart,
)

from nnpa_client.status import Status, is_warning, status_name
from nnpa_client.trace.format import TracePath, read_records

_COMPUTING = range(20, 90)  # arms of operations; source: nnpa/zdnn/v1/operation.proto, Operation
_ARMS = operation_pb2.Operation.DESCRIPTOR.oneofs_by_name["operation"].fields
COMPUTING = frozenset(arm.name for arm in _ARMS if arm.number in _COMPUTING)
"""Functions that compute on ztensors, by their names without prefix."""
FUNCTIONS = frozenset(one.name for one in _ARMS)
"""All functions that a trace can have, by their names without prefix."""
WRITE, READ = "write sticks", "read sticks"
"""What calls are named that move the contents of a buffer and are no function of zDNN."""
_ENDS = {
    "TRACE_END_REASON_TOO_LARGE": "cut: it would have become larger than it may",
    "TRACE_END_REASON_TOO_SLOW": "cut: it was not written as fast as the program ran",
    "TRACE_END_REASON_FAILED": "cut: the server could not record a call",
    "TRACE_END_REASON_SHUTDOWN": "cut: the server was shut down",
}


@dataclass(frozen=True, slots=True)
class Operand:
    """A ztensor of an operation: its C parameter name, its id in the session or 0, its structure.

    An output's structure is as the operation left it. None where the trace does not know it.
    """

    name: str
    id: int
    structure: tensor_pb2.Ztensor | None
    is_output: bool


@dataclass(frozen=True, slots=True)
class TracedOperation:
    """One operation: `index` in the trace, `call` it belongs to, function's name without prefix.

    `message` is what was called, without contents, `result` what it answered, None if it did not
    get so far: then `failure` is the reason of the call's error, or empty for an operation behind
    the one that failed. Times are nanoseconds, `start_ns` from the trace's begin.
    """

    index: int
    call: int
    session: int
    name: str
    message: operation_pb2.Operation
    result: OperationResult | None
    start_ns: int
    duration_ns: int
    operands: tuple[Operand, ...]
    contents: tuple[TracedContents, ...]
    failure: str = ""

    @property
    def status(self) -> str:
        """The status' name, or the reason for which the call failed, or "did not run"."""
        if self.result is None:
            return self.failure or "did not run"
        return status_name(self.result.zdnn_status)

    @property
    def is_valid(self) -> bool:
        """Whether the answer is ZDNN_OK or a warning."""
        if self.result is None:
            return False
        return self.result.zdnn_status == Status.ZDNN_OK or is_warning(self.result.zdnn_status)

    @property
    def is_housekeeping(self) -> bool:
        """Whether a client made the call for itself: the program did not."""
        return self.message.housekeeping or self.name in (WRITE, READ)

    def having(self, *roles: ContentsRole.ValueType) -> tuple[TracedContents, ...]:
        """Return the contents of these roles."""
        return tuple(content for content in self.contents if content.role in roles)


@dataclass(frozen=True, slots=True)
class Call:
    """One call, from 0: its record, and its operations; a buffer moved counts as one."""

    number: int
    record: TracedCall
    operations: tuple[TracedOperation, ...]


@dataclass(frozen=True)
class Trace:
    """A trace as it was read: `events` are calls, and options of sessions by number, in order.

    `ending` says why it is not complete, empty if it is. `pieces` are contents by digest.
    """

    start: TraceStart
    events: tuple[Call | tuple[int, accelerator_pb2.Session], ...]
    pieces: Mapping[bytes, bytes]
    ending: str

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """The calls, in the order in which they were answered."""
        return tuple(event for event in self.events if isinstance(event, Call))

    @cached_property
    def operations(self) -> tuple[TracedOperation, ...]:
        """All operations, in order."""
        return tuple(operation for call in self.calls for operation in call.operations)

    @cached_property
    def sessions(self) -> Mapping[int, accelerator_pb2.Session]:
        """The options that each session began with, by its number."""
        found: dict[int, accelerator_pb2.Session] = {}
        for event in self.events:
            if not isinstance(event, Call):
                found.setdefault(*event)
        return found

    def bytes_of(self, contents: TracedContents) -> bytes | None:
        """Return contents; None where the trace does not have them."""
        held = self.pieces.get(contents.digest, b"")
        return held if len(held) == contents.size else None


@dataclass(slots=True)
class _Reading:
    """What is known at a point of a trace."""

    results: dict[int, list[OperationResult]] = field(
        default_factory=dict[int, list[OperationResult]]
    )
    tensors: dict[tuple[int, int], tensor_pb2.Ztensor] = field(
        default_factory=dict[tuple[int, int], tensor_pb2.Ztensor]
    )
    calls: int = 0
    operations: int = 0

    def call(self, record: TracedCall) -> Call:
        """Return the next call."""
        results = self.results.setdefault(record.session, [])
        results.extend(record.new_results)
        for info in record.tensors:
            self.tensors[record.session, info.id] = info.ztensor
        number, self.calls = self.calls, self.calls + 1
        answers = [results[one] if one < len(results) else None for one in record.results]
        messages = list(record.operations) or [operation_pb2.Operation()]
        operations: list[TracedOperation] = []
        started = record.start_ns
        for place, message in enumerate(messages):
            result = answers[place] if place < len(answers) else None
            took = record.durations_ns[place] if place < len(record.durations_ns) else 0
            one = self._operation(number, record, place, message, result, started, took)
            operations.append(one)
            started += took
        return Call(number, record, tuple(operations))

    def _operation(
        self,
        call: int,
        record: TracedCall,
        place: int,
        message: operation_pb2.Operation,
        result: OperationResult | None,
        started: int,
        took: int,
    ) -> TracedOperation:
        index, self.operations = self.operations, self.operations + 1
        name = message.WhichOneof("operation") or _stream_name(record)
        failed = record.HasField("error") and place == len(record.results)
        return TracedOperation(
            index,
            call,
            record.session,
            name,
            message,
            result,
            started,
            took,
            tuple(self._operands(record, name, message, result)),
            tuple(content for content in record.contents if content.operation_index == place),
            (record.error.reason or record.error.code) if failed else "",
        )

    def _operands(
        self,
        record: TracedCall,
        name: str,
        message: operation_pb2.Operation,
        result: OperationResult | None,
    ) -> Iterator[Operand]:
        session, outputs = record.session, dict[str, tensor_pb2.ZtensorInfo]()
        if result is not None:
            outputs = {output.operand: output for output in result.outputs}
        for operand, reference in _references(message, name):
            number = reference.id or reference.new_id
            structure = self.tensors.get((session, number))
            if reference.HasField("inline_ztensor"):
                structure = reference.inline_ztensor
            if operand in outputs:
                structure = outputs[operand].ztensor
            yield Operand(operand, number, structure, operand in outputs)
        named = {operand for operand, _ in _references(message, name)}
        for operand, info in outputs.items():
            if operand not in named:
                yield Operand(operand, info.id, info.ztensor, True)
        for info in outputs.values():
            if info.id:
                self.tensors[session, info.id] = info.ztensor


def _stream_name(record: TracedCall) -> str:
    return {"write": WRITE, "read": READ}.get(record.WhichOneof("stream") or "", "no operation")


def _references(
    message: operation_pb2.Operation, name: str
) -> Iterator[tuple[str, tensor_pb2.TensorRef]]:
    """Yield the operands that an operation names, in C's order."""
    if message.WhichOneof("operation") is None:
        return
    fields: Iterable[tuple[Any, Any]] = getattr(message, name).ListFields()
    for one, value in fields:
        if isinstance(value, tensor_pb2.TensorRef):
            yield one.name, value


def read(path: TracePath) -> Trace:
    """Read a trace; one that was cut is read up to there, and says so in `ending`.

    Raises ValueError for a file that is no trace, OSError where there is none.
    """
    start, ending = TraceStart(), "interrupted: it has no end"
    events: list[Call | tuple[int, accelerator_pb2.Session]] = []
    pieces: dict[bytes, bytearray] = {}
    reading = _Reading()
    for record in read_records(path):
        match record.WhichOneof("record"):
            case "start":
                start = record.start
            case "session":
                events.append((record.session.session, record.session.options))
            case "call":
                events.append(reading.call(record.call))
            case "bytes":
                piece = record.bytes
                held = pieces.setdefault(piece.digest, bytearray())
                if piece.offset == len(held):
                    held += piece.piece
            case "end":
                ending = _ending(record)
            case None:
                continue
    return Trace(start, tuple(events), {key: bytes(one) for key, one in pieces.items()}, ending)


def _ending(record: TraceRecord) -> str:
    if record.end.reason == TRACE_END_REASON_ENDED:
        return ""
    known = record.end.reason in TraceEndReason.values()
    name = TraceEndReason.Name(record.end.reason) if known else ""
    return _ENDS.get(name, f"cut, for reason {record.end.reason}")
