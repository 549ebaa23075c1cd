# SPDX-License-Identifier: Apache-2.0
"""Replay a trace call by call, record the replay, and compare both traces.

Sessions are opened with their recorded options, or with another machine or library version. Inputs
whose contents the trace lacks become ones, or zeros if the digest says zeros; values are then not
compared. On another machine or library the operations of a list run one by one, so that a refused
operation does not end the rest.
"""

import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from nnpa.zdnn.v1 import accelerator_pb2, operation_pb2, tensor_pb2
from nnpa.zdnn.v1.accelerator_pb2 import (
    CreateSessionRequest,
    DeleteSessionRequest,
    MachineSpec,
    UpdateSessionRequest,
)
from nnpa.zdnn.v1.trace_pb2 import (
    CONTENTS_ROLE_ARRAY_IN,
    CONTENTS_ROLE_ARRAY_OUT,
    CONTENTS_ROLE_STICKS_HELD,
    CONTENTS_ROLE_STICKS_IN,
    TracedContents,
)
from nnpa_client._guest.custom_machine import machine_spec
from nnpa_client._server.methods import (
    CREATE_SESSION,
    DELETE_SESSION,
    READ_TENSOR,
    UPDATE_SESSION,
    WRITE_TENSOR,
    Upload,
)
from nnpa_client._server.transport import EXECUTE, Request, Transport
from nnpa_client.errors import NnpaError, TransportError
from nnpa_client.trace.format import TracePath
from nnpa_client.trace.history import Call, Trace, TracedOperation
from nnpa_client.trace.record import Recording
from nnpa_client.ztensor._transfer import CHUNK_BYTES

from nnpa_tools.traces.diff import Comparison, diff
from nnpa_tools.traces.values import is_zeros, neutral_array, neutral_sticks

_CHANGEABLE = ("machine_spec", "precheck", "status_diag", "program_check_action", "log_level",
               "log_module", "numerics", "jitter_seed", "accumulate")  # fmt: skip
_FIRST_OWN_ID = 1 << 62  # of tensors that replace inline ones: above the ids of any client
_RETRIED = "CACHE_MISS"  # the client repeated such a call by itself
# Codes of errors that end the connection or the session, not only one call.
_FATAL_CODES = frozenset(("UNAVAILABLE", "UNAUTHENTICATED", "DEADLINE_EXCEEDED"))


@dataclass(slots=True)
class _Player:
    """A replayed session of the trace; `is_changed` is whether machine or library differ."""

    transport: Transport
    trace: Trace
    session: accelerator_pb2.Session
    is_changed: bool
    next_id: int = _FIRST_OWN_ID

    def play(self, call: Call) -> None:
        """Repeat a recorded call; its answer is in the new trace."""
        for info in call.record.tensors:
            with _going_on():
                self._put(info, call)
        operation = call.operations[0]
        match call.record.WhichOneof("stream"):
            case "write":
                self._write(operation, call.record.write)
            case "read":
                self._read(accelerator_pb2.ReadTensorRequest(sticks=call.record.read))
            case "operation":
                self._stream(operation, self._filled(operation, None))
            case _ if self.is_changed and not call.record.HasField("error"):
                for each in call.operations:
                    with _going_on():
                        self._execute((each,))
            case _:
                self._execute(call.operations)

    def _execute(self, operations: Sequence[TracedOperation]) -> None:
        """Run a list; operations with contents too large for a message run one by one."""
        waiting: list[operation_pb2.Operation] = []
        for operation in operations:
            tensors = _InlineTensors(self, operation)
            message = self._filled(operation, tensors)
            if not tensors.are_too_large:
                waiting.append(message)
                continue
            self.run(waiting)
            waiting = []
            with _going_on():
                tensors.create()
            self._run_large(operation, message)
            tensors.free()
        self.run(waiting)

    def _run_large(self, operation: TracedOperation, message: operation_pb2.Operation) -> None:
        limit = self.session.limits.max_inline_bytes
        roles = (CONTENTS_ROLE_ARRAY_IN, CONTENTS_ROLE_ARRAY_OUT)
        if any(array.size > limit for array in operation.having(*roles)):
            self._stream(operation, message)
        else:
            self.run([message])

    def run(self, operations: Sequence[operation_pb2.Operation]) -> None:
        """Run a list, unless it is empty."""
        if operations:
            request = accelerator_pb2.ExecuteRequest(
                session=self.session.name, operations=operations
            )
            self.transport.unary(EXECUTE, Request(request))

    def _stream(self, operation: TracedOperation, message: operation_pb2.Operation) -> None:
        if operation.name == "transform_origtensor":
            self._read(accelerator_pb2.ReadTensorRequest(operation=message))
            return
        arrays = [
            self.array(operation, array) for array in operation.having(CONTENTS_ROLE_ARRAY_IN)
        ]
        getattr(message, operation.name).ClearField("data")
        target = accelerator_pb2.WriteArrays(
            operation=message, array_bytes=[len(array) for array in arrays]
        )
        self._send(accelerator_pb2.WriteTensorHeader(arrays=target), arrays)

    def _write(self, operation: TracedOperation, write: accelerator_pb2.WriteSticks) -> None:
        recorded = operation.having(CONTENTS_ROLE_STICKS_IN)
        structure = write.new_ztensor if write.HasField("new_ztensor") else None
        if structure is None and operation.operands:
            structure = operation.operands[0].structure
        sticks = [self.sticks(contents, structure) for contents in recorded]
        target = accelerator_pb2.WriteSticks()
        target.CopyFrom(write)
        target.total_bytes = sum(map(len, sticks))
        self._send(accelerator_pb2.WriteTensorHeader(sticks=target), sticks)

    def _put(self, info: tensor_pb2.ZtensorInfo, call: Call) -> None:
        """Create a tensor that the session had before its recording began."""
        recorded = [
            self.sticks(content, info.ztensor)
            for content in call.record.contents
            if content.role == CONTENTS_ROLE_STICKS_HELD and content.id == info.id
        ]
        self.create(info.id, info.ztensor, recorded[0] if recorded else b"")

    def create(self, number: int, structure: tensor_pb2.Ztensor, sticks: bytes) -> None:
        """Create a tensor of the session; without sticks it holds zeros."""
        target = accelerator_pb2.WriteSticks(
            id=number, new_ztensor=structure, total_bytes=len(sticks)
        )
        target.byte_order = structure.byte_order
        self._send(accelerator_pb2.WriteTensorHeader(sticks=target), [sticks] if sticks else [])

    def _send(self, header: accelerator_pb2.WriteTensorHeader, contents: Sequence[bytes]) -> None:
        header.session = self.session.name

        def parts() -> Iterator[Upload]:
            yield accelerator_pb2.WriteTensorRequest(header=header)
            for content in contents:
                for start in range(0, len(content), CHUNK_BYTES):
                    yield memoryview(content)[start : start + CHUNK_BYTES]

        self.transport.send_stream(WRITE_TENSOR, parts())

    def _read(self, request: accelerator_pb2.ReadTensorRequest) -> None:
        request.session = self.session.name
        for _ in self.transport.receive_stream(READ_TENSOR, request):
            pass

    def _filled(
        self, operation: TracedOperation, tensors: "_InlineTensors | None"
    ) -> operation_pb2.Operation:
        """Return an operation's message with its contents, or with ids for large contents."""
        message = operation_pb2.Operation()
        message.CopyFrom(operation.message)
        arrays = operation.having(CONTENTS_ROLE_ARRAY_IN)
        limit = self.session.limits.max_inline_bytes
        if arrays and max(array.size for array in arrays) <= limit:
            contents = (self.array(operation, array) for array in arrays)
            getattr(message, operation.name).data.extend(contents)
        if tensors is not None:
            tensors.fill(message)
        return message

    def array(self, operation: TracedOperation, contents: TracedContents) -> bytes:
        """Return a user array, or ones or zeros if the trace lacks it."""
        structure = operation.operands[0].structure if operation.operands else None
        return self._recorded(contents) or neutral_array(contents.size, structure)

    def sticks(self, contents: TracedContents, structure: tensor_pb2.Ztensor | None) -> bytes:
        """Return sticks, or ones or zeros if the trace lacks them."""
        return self._recorded(contents) or neutral_sticks(contents.size, structure)

    def _recorded(self, contents: TracedContents) -> bytes:
        """Return contents from the trace, or zeros by their digest; empty if unknown."""
        recorded = self.trace.bytes_of(contents)
        if recorded is None and is_zeros(contents):
            return bytes(contents.size)
        return recorded or b""


@contextmanager
def _going_on() -> Generator[None]:
    """Continue after a refusal, which the new trace records; raise errors that end the session."""
    try:
        yield
    except TransportError as error:
        if error.code in _FATAL_CODES:
            raise
    except NnpaError:  # a program check
        return


@dataclass(slots=True)
class _InlineTensors:
    """The inline tensors of an operation: sent with it, or created in the session if too large.

    Only programs that shared memory with the server, or used its content cache, have large ones.
    """

    player: _Player
    operation: TracedOperation
    are_too_large: bool = False
    _tensors: list[tuple[int, tensor_pb2.Ztensor, bytes]] = field(
        default_factory=list[tuple[int, tensor_pb2.Ztensor, bytes]]
    )

    def fill(self, message: operation_pb2.Operation) -> None:
        """Put contents, or ids for large contents, into the references of a message."""
        operation, limit = self.operation, self.player.session.limits.max_inline_bytes
        recorded = {sticks.operand: sticks for sticks in operation.having(CONTENTS_ROLE_STICKS_IN)}
        sizes = [content.size for content in operation.contents]
        self.are_too_large = sum(sizes) > 2 * limit or any(size > limit for size in sizes)
        for operand in operation.operands:
            arm = getattr(message, operation.name) if message.WhichOneof("operation") else None
            reference = getattr(arm, operand.name, None)
            if not isinstance(reference, tensor_pb2.TensorRef):
                continue
            if not reference.HasField("inline_ztensor"):
                continue
            inline, contents = reference.inline_ztensor, recorded.get(operand.name)
            sticks = b"" if contents is None else self.player.sticks(contents, inline)
            if not self.are_too_large:
                if contents is not None:
                    inline.sticks = sticks
                continue
            number, self.player.next_id = self.player.next_id, self.player.next_id + 1
            structure = tensor_pb2.Ztensor()
            structure.CopyFrom(inline)
            self._tensors.append((number, structure, sticks))
            reference.id = number

    def create(self) -> None:
        """Create the tensors that replace inline ones."""
        for number, structure, sticks in self._tensors:
            self.player.create(number, structure, sticks)

    def free(self) -> None:
        """Free the tensors that replaced inline ones."""
        for number, structure, _ in self._tensors:
            if not structure.null_buffer:
                free = operation_pb2.FreeZtensorBuffer(ztensor=tensor_pb2.TensorRef(id=number))
                operation = operation_pb2.Operation(free_ztensor_buffer=free, housekeeping=True)
                self.player.run([operation])


def replay(
    trace: Trace,
    transport: Transport,
    output: TracePath | None = None,
    machine: str | None = None,
    library: str | None = None,
    ulp: int = 0,
) -> tuple[Comparison, Trace]:
    """Replay a trace and compare; return the comparison and the new trace.

    `machine` and `library` replace every session's. `output` is the file of the new trace, None for
    a temporary file. Raises TransportError if the connection is lost, or the server refuses a
    session.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace" if output is None else output
        replayed = play(trace, transport, path, machine, library)
    return diff(trace, replayed, ulp, trace.start.contents), replayed


def play(
    trace: Trace,
    transport: Transport,
    output: TracePath,
    machine: str | None = None,
    library: str | None = None,
) -> Trace:
    """Replay a trace, and return the new one, whose file is `output`; raise as `replay`."""
    spec = None if machine is None else machine_spec(transport, machine)
    recording = Recording(transport, output, trace.start.contents)
    try:
        _play(trace, transport, recording.name, spec, library)
    finally:
        recording.stop()
    if recording.problem is not None:
        raise recording.problem
    return recording.read()


def _play(
    trace: Trace,
    transport: Transport,
    name: str,
    spec: MachineSpec | None,
    library: str | None,
) -> None:
    players: dict[int, _Player] = {}
    try:
        for event in trace.events:
            if isinstance(event, Call):
                if event.record.session in players and event.record.error.reason != _RETRIED:
                    with _going_on():
                        players[event.record.session].play(event)
                continue
            number, recorded = event
            options = _options(recorded, name, spec, library)
            if number in players:
                _update(transport, players[number], options)
            else:
                session = transport.unary(CREATE_SESSION, CreateSessionRequest(session=options))
                is_changed = spec is not None or library is not None
                players[number] = _Player(transport, trace, session, is_changed)
    finally:
        for player in players.values():
            transport.unary(DELETE_SESSION, DeleteSessionRequest(name=player.session.name))


def _options(
    recorded: accelerator_pb2.Session, name: str, spec: MachineSpec | None, library: str | None
) -> accelerator_pb2.Session:
    """Return the options of a replayed session: the recorded ones without fault rules and lease.

    Shared memory is left out too: its name comes from a file that is not trusted.
    """
    options = accelerator_pb2.Session()
    options.CopyFrom(recorded)
    for left_out in ("name", "machine", "limits", "fault_rules", "shared_memory", "lease"):
        options.ClearField(left_out)
    options.trace = name
    if spec is not None:
        options.machine_spec.CopyFrom(spec)
    if library is not None:
        options.library_version = library
    return options


def _update(transport: Transport, player: _Player, options: accelerator_pb2.Session) -> None:
    options.name = player.session.name
    request = UpdateSessionRequest(session=options)
    request.update_mask.paths.extend(_CHANGEABLE)
    transport.unary(UPDATE_SESSION, request)
