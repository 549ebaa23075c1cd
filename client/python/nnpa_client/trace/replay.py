# SPDX-License-Identifier: Apache-2.0
"""A trace run again, call by call, and compared with what it was.

Sessions are opened as they were, on another machine or with another library version where that is
wanted, and what they do is recorded anew: `diff` has the rest. Inputs whose contents the trace does
not have are ones (zeros where the digest is that of zeros), and values are then not compared.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nnpa.zdnn.v1 import accelerator_pb2, operation_pb2, tensor_pb2
from nnpa.zdnn.v1.accelerator_pb2 import (
    CreateSessionRequest,
    DeleteSessionRequest,
    GetMachineRequest,
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

from nnpa_client._methods import (
    CREATE_SESSION,
    DELETE_SESSION,
    GET_MACHINE,
    READ_TENSOR,
    UPDATE_SESSION,
    WRITE_TENSOR,
    Upload,
)
from nnpa_client._transfer import CHUNK_BYTES
from nnpa_client._transport import EXECUTE, Request, Transport
from nnpa_client.errors import NnpaError, TransportError
from nnpa_client.trace.diff import Comparison, diff
from nnpa_client.trace.format import TracePath
from nnpa_client.trace.history import Call, Trace, TracedOperation
from nnpa_client.trace.record import Recording
from nnpa_client.trace.values import is_zeros, neutral_array, neutral_sticks

_CHANGEABLE = ("machine_spec", "precheck", "status_diag", "program_check_action", "log_level",
               "log_module", "numerics", "jitter_seed", "accumulate")  # fmt: skip
_FIRST_OWN_ID = 1 << 62  # of tensors that stand for inline ones: no client counts so far
_RETRIED = "CACHE_MISS"  # a client's own affair: it made the call again
# Codes of errors after which nothing can follow, rather than answers to one call.
_LOST = frozenset(("UNAVAILABLE", "UNAUTHENTICATED", "DEADLINE_EXCEEDED"))


@dataclass(slots=True)
class _Player:
    """A session of the trace, played again."""

    transport: Transport
    trace: Trace
    session: accelerator_pb2.Session
    next_id: int = _FIRST_OWN_ID

    def play(self, call: Call) -> None:
        """Make a call as it was made; what it answers is in the new trace."""
        for info in call.record.tensors:
            self._put(info, call)
        operation = call.operations[0]
        match call.record.WhichOneof("stream"):
            case "write":
                self._write(operation, call.record.write)
            case "read":
                self._read(accelerator_pb2.ReadTensorRequest(sticks=call.record.read))
            case "operation":
                self._stream(operation, self._filled(operation, None))
            case _:
                self._execute(call)

    def _execute(self, call: Call) -> None:
        """Run a list; operations with contents beyond a message's go one by one."""
        waiting: list[operation_pb2.Operation] = []
        for operation in call.operations:
            places = _Places(self, operation)
            message = self._filled(operation, places)
            if not places.is_needed:
                waiting.append(message)
                continue
            self.run(waiting)
            waiting = []
            places.make()
            self._run_large(operation, message)
            places.free()
        self.run(waiting)

    def _run_large(self, one: TracedOperation, message: operation_pb2.Operation) -> None:
        limit = self.session.limits.max_inline_bytes
        roles = (CONTENTS_ROLE_ARRAY_IN, CONTENTS_ROLE_ARRAY_OUT)
        if any(array.size > limit for array in one.having(*roles)):
            self._stream(one, message)
        else:
            self.run([message])

    def run(self, operations: Sequence[operation_pb2.Operation]) -> None:
        """Run a list, unless it is empty."""
        if operations:
            request = accelerator_pb2.ExecuteRequest(
                session=self.session.name, operations=operations
            )
            self.transport.unary(EXECUTE, Request(request))

    def _stream(self, one: TracedOperation, message: operation_pb2.Operation) -> None:
        if one.name == "transform_origtensor":
            self._read(accelerator_pb2.ReadTensorRequest(operation=message))
            return
        arrays = [self.array(one, array) for array in one.having(CONTENTS_ROLE_ARRAY_IN)]
        getattr(message, one.name).ClearField("data")
        target = accelerator_pb2.WriteArrays(
            operation=message, array_bytes=[len(array) for array in arrays]
        )
        self._send(accelerator_pb2.WriteTensorHeader(arrays=target), arrays)

    def _write(self, one: TracedOperation, write: accelerator_pb2.WriteSticks) -> None:
        brought = one.having(CONTENTS_ROLE_STICKS_IN)
        structure = write.new_ztensor if write.HasField("new_ztensor") else None
        if structure is None and one.operands:
            structure = one.operands[0].structure
        sticks = [self.sticks(contents, structure) for contents in brought]
        target = accelerator_pb2.WriteSticks()
        target.CopyFrom(write)
        target.total_bytes = sum(map(len, sticks))
        self._send(accelerator_pb2.WriteTensorHeader(sticks=target), sticks)

    def _put(self, info: tensor_pb2.ZtensorInfo, call: Call) -> None:
        """Make a tensor that the session had before the trace knew it."""
        held = [
            self.sticks(content, info.ztensor)
            for content in call.record.contents
            if content.role == CONTENTS_ROLE_STICKS_HELD and content.id == info.id
        ]
        self.make(info.id, info.ztensor, held[0] if held else b"")

    def make(self, number: int, structure: tensor_pb2.Ztensor, sticks: bytes) -> None:
        """Make a tensor of the session; without sticks they are zeros."""
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

    def _filled(self, one: TracedOperation, places: "_Places | None") -> operation_pb2.Operation:
        """Return an operation with its contents, or with ids in the place of large ones."""
        message = operation_pb2.Operation()
        message.CopyFrom(one.message)
        arrays = one.having(CONTENTS_ROLE_ARRAY_IN)
        limit = self.session.limits.max_inline_bytes
        if arrays and max(array.size for array in arrays) <= limit:
            getattr(message, one.name).data.extend(self.array(one, array) for array in arrays)
        if places is not None:
            places.fill(message)
        return message

    def array(self, one: TracedOperation, contents: TracedContents) -> bytes:
        """Return a user array, or what stands for it."""
        structure = one.operands[0].structure if one.operands else None
        held = self.trace.bytes_of(contents)
        if held is None:
            held = bytes(contents.size) if is_zeros(contents) else None
        return neutral_array(contents.size, structure) if held is None else held

    def sticks(self, contents: TracedContents, structure: tensor_pb2.Ztensor | None) -> bytes:
        """Return sticks, or what stands for them."""
        held = self.trace.bytes_of(contents)
        if held is None:
            held = bytes(contents.size) if is_zeros(contents) else None
        return neutral_sticks(contents.size, structure) if held is None else held


@dataclass(slots=True)
class _Places:
    """Inline tensors of one operation: contents go with it, or large ones into the session first.

    Only a program that shared memory with the server, or had it remember contents, has any that
    are too large.
    """

    player: _Player
    one: TracedOperation
    is_needed: bool = False
    _made: list[tuple[int, tensor_pb2.Ztensor, bytes]] = field(
        default_factory=list[tuple[int, tensor_pb2.Ztensor, bytes]]
    )

    def fill(self, message: operation_pb2.Operation) -> None:
        """Put contents into the references of a message, or ids in their place."""
        one, limit = self.one, self.player.session.limits.max_inline_bytes
        brought = {each.operand: each for each in one.having(CONTENTS_ROLE_STICKS_IN)}
        whole = sum(each.size for each in one.contents)
        self.is_needed = whole > 2 * limit or any(each.size > limit for each in one.contents)
        for operand in one.operands:
            arm = getattr(message, one.name) if message.WhichOneof("operation") else None
            reference = getattr(arm, operand.name, None)
            if not isinstance(reference, tensor_pb2.TensorRef):
                continue
            if not reference.HasField("inline_ztensor"):
                continue
            inline, contents = reference.inline_ztensor, brought.get(operand.name)
            sticks = b"" if contents is None else self.player.sticks(contents, inline)
            if not self.is_needed:
                if contents is not None:
                    inline.sticks = sticks
                continue
            number, self.player.next_id = self.player.next_id, self.player.next_id + 1
            structure = tensor_pb2.Ztensor()
            structure.CopyFrom(inline)
            self._made.append((number, structure, sticks))
            reference.id = number

    def make(self) -> None:
        """Make the tensors that stand for inline ones."""
        for number, structure, sticks in self._made:
            self.player.make(number, structure, sticks)

    def free(self) -> None:
        """Free them."""
        for number, structure, _ in self._made:
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
    """Run a trace again and compare; return the comparison and the new trace.

    `machine` and `library` are in the place of those of every session. `output` is the file of the
    new trace, none if it is not to stay. Raises TransportError where the server is lost, or does
    not take a session.
    """
    spec = None
    if machine is not None:
        spec = MachineSpec(
            model=transport.unary(GET_MACHINE, GetMachineRequest(name=f"machines/{machine}")).model
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace" if output is None else output
        recording = Recording(transport, path, trace.start.contents)
        try:
            _play(trace, transport, recording.name, spec, library)
        finally:
            recording.stop()
        if recording.problem is not None:
            raise recording.problem
        again = recording.read()
    return diff(trace, again, ulp, trace.start.contents), again


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
                _play_call(players, event)
                continue
            number, recorded = event
            options = _options(recorded, name, spec, library)
            if number in players:
                _update(transport, players[number], options)
            else:
                session = transport.unary(CREATE_SESSION, CreateSessionRequest(session=options))
                players[number] = _Player(transport, trace, session)
    finally:
        for player in players.values():
            transport.unary(DELETE_SESSION, DeleteSessionRequest(name=player.session.name))


def _play_call(players: dict[int, _Player], call: Call) -> None:
    player = players.get(call.record.session)
    if player is None or call.record.error.reason == _RETRIED:
        return
    try:
        player.play(call)
    except TransportError as error:
        if error.code in _LOST:
            raise
    except NnpaError:
        return  # a program check: the new trace has it


def _options(
    recorded: accelerator_pb2.Session, name: str, spec: MachineSpec | None, library: str | None
) -> accelerator_pb2.Session:
    """Return the options of a session that is played again; its faults are not.

    Nor does it share memory, whose name in a file would be a stranger's choice.
    """
    options = accelerator_pb2.Session()
    options.CopyFrom(recorded)
    for left_out in ("name", "machine", "limits", "fault_rules", "shared_memory"):
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
