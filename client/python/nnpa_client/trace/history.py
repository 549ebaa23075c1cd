# SPDX-License-Identifier: Apache-2.0
"""A trace in memory: sessions, calls, operations with their operands, answers and contents."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from google.protobuf.descriptor import FieldDescriptor
from nnpa.zdnn.v1 import accelerator_pb2, operation_pb2, tensor_pb2
from nnpa.zdnn.v1.operation_pb2 import OperationResult
from nnpa.zdnn.v1.trace_pb2 import (
    TRACE_END_REASON_ENDED,
    ContentsRole,
    TracedCall,
    TracedContents,
    TracedInstruction,
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
FUNCTIONS = frozenset(arm.name for arm in _ARMS)
"""All functions that a trace can have, by their names without prefix."""
WRITE, READ = "write sticks", "read sticks"
"""Names of calls that move the contents of a buffer and are no function of zDNN."""
_ENDS = {
    "TRACE_END_REASON_TOO_LARGE": "cut: it would have become larger than it may",
    "TRACE_END_REASON_TOO_SLOW": "cut: it was not written as fast as the program ran",
    "TRACE_END_REASON_FAILED": "cut: the server could not record a call",
    "TRACE_END_REASON_SHUTDOWN": "cut: the server was shut down",
}


@dataclass(frozen=True, slots=True)
class Operand:
    """A ztensor of an operation: its C parameter name, its id in the session or 0, its structure.

    An output's structure is its structure after the operation, None if the trace lacks it.
    """

    name: str
    id: int
    structure: tensor_pb2.Ztensor | None
    is_output: bool


@dataclass(frozen=True, slots=True)
class TracedOperation:
    """One operation: `index` in the trace, `call` it belongs to, function's name without prefix.

    `message` is the operation without contents, `result` its answer. `result` is None if the
    operation did not run: then `failure` is the reason of the call's error, or empty for the
    operations after the failed one. Times are nanoseconds, `start_ns` since the trace began.
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
        """The status' name, the reason of the call's failure, or "did not run"."""
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
        """Whether the client made the call on its own, not for the program."""
        return self.message.housekeeping or self.name in (WRITE, READ)

    def having(self, *roles: ContentsRole.ValueType) -> tuple[TracedContents, ...]:
        """Return the contents of these roles."""
        return tuple(content for content in self.contents if content.role in roles)


@dataclass(frozen=True, slots=True)
class Call:
    """One call, numbered from 0: its record, and its operations; a transfer counts as one."""

    number: int
    record: TracedCall
    operations: tuple[TracedOperation, ...]


@dataclass(frozen=True)
class Trace:
    """A trace as it was read: `events` are calls, and options of sessions by number, in order.

    `ending` says why the trace is not complete, "" if it is. `pieces` are contents by digest.
    """

    start: TraceStart
    events: tuple[Call | tuple[int, accelerator_pb2.Session], ...]
    pieces: Mapping[bytes, bytes]
    ending: str
    instructions: tuple[TracedInstruction, ...] = ()
    """The instructions of programs with a zDNN library of their own, by the time they ended."""

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
        options: dict[int, accelerator_pb2.Session] = {}
        for event in self.events:
            if not isinstance(event, Call):
                options.setdefault(*event)
        return options

    def bytes_of(self, contents: TracedContents) -> bytes | None:
        """Return contents; None where the trace does not have them."""
        recorded = self.pieces.get(contents.digest, b"")
        return recorded if len(recorded) == contents.size else None


@dataclass(slots=True)
class _Reader:
    """The state of sessions at a point of a trace, while it is read."""

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
        answers = [results[index] if index < len(results) else None for index in record.results]
        messages = list(record.operations) or [operation_pb2.Operation()]
        contents: dict[int, list[TracedContents]] = {}
        for content in record.contents:
            contents.setdefault(content.operation_index, []).append(content)
        error = record.error.reason or record.error.code if record.HasField("error") else ""
        operations: list[TracedOperation] = []
        start = record.start_ns
        for position, message in enumerate(messages):
            result = answers[position] if position < len(answers) else None
            duration = record.durations_ns[position] if position < len(record.durations_ns) else 0
            name = message.WhichOneof("operation") or _stream_name(record)
            operation = TracedOperation(
                index=self.operations,
                call=number,
                session=record.session,
                name=name,
                message=message,
                result=result,
                start_ns=start,
                duration_ns=duration,
                operands=tuple(self._operands(record.session, name, message, result)),
                contents=tuple(contents.get(position, ())),
                failure=error if position == len(record.results) else "",
            )
            operations.append(operation)
            self.operations += 1
            start += duration
        return Call(number, record, tuple(operations))

    def _operands(
        self,
        session: int,
        name: str,
        message: operation_pb2.Operation,
        result: OperationResult | None,
    ) -> Iterator[Operand]:
        outputs = dict[str, tensor_pb2.ZtensorInfo]()
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
    fields: Iterable[tuple[FieldDescriptor, object]] = getattr(message, name).ListFields()
    for descriptor, reference in fields:
        if isinstance(reference, tensor_pb2.TensorRef):
            yield descriptor.name, reference


def read(path: TracePath) -> Trace:
    """Read a trace; the `ending` of a truncated trace says why it is not complete.

    Raises ValueError for a file that is no trace, OSError for a file that cannot be opened.
    """
    start, ending = TraceStart(), "interrupted: it has no end"
    events: list[Call | tuple[int, accelerator_pb2.Session]] = []
    instructions: list[TracedInstruction] = []
    pieces: dict[bytes, bytearray] = {}
    reader = _Reader()
    for record in read_records(path):
        match record.WhichOneof("record"):
            case "start":
                start = record.start
            case "session":
                events.append((record.session.session, record.session.options))
            case "call":
                events.append(reader.call(record.call))
            case "instruction":
                instructions.append(record.instruction)
            case "bytes":
                piece = record.bytes
                received = pieces.setdefault(piece.digest, bytearray())
                if piece.offset == len(received):
                    received += piece.piece
            case "end":
                ending = _ending(record)
            case None:
                continue
    contents = {digest: bytes(received) for digest, received in pieces.items()}
    return Trace(start, tuple(events), contents, ending, tuple(instructions))


def _ending(record: TraceRecord) -> str:
    if record.end.reason == TRACE_END_REASON_ENDED:
        return ""
    is_defined = record.end.reason in TraceEndReason.values()
    name = TraceEndReason.Name(record.end.reason) if is_defined else ""
    return _ENDS.get(name, f"cut, for reason {record.end.reason}")
