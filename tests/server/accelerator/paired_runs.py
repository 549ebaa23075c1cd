# SPDX-License-Identifier: Apache-2.0
"""Run one program on two servers, find the first difference, and shrink the program.

The first server gets its lists in every way that exists, the second one by unary calls only.
"""

import base64
import queue
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Protocol, TypeAlias
from urllib.parse import unquote

import grpc
from google.protobuf import json_format
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa_client.status import status_name

from tests.server.accelerator.random_operands import Step
from tests.server.accelerator.random_programs import Program
from tests.server.conftest import OPTIONS
from tests.server.plain import METADATA, Plain
from tests.server.wire import Client

Met: TypeAlias = Counter[tuple[str, str]]
"""Counts by operation and by status or reason of the error; an empty operation stands for lists."""

DEADLINE = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a call: a message, or the code, text and details of an error."""

    message: bytes = b""
    code: int = 0
    text: str = ""
    details: bytes = b""

    def __str__(self) -> str:
        """Write it for people."""
        if not self.code:
            return f"message of {len(self.message)} bytes"
        reason, metadata = reason_of(self)
        return f"{grpc_code(self.code)} {self.text!r} {reason} {metadata}"


def grpc_code(number: int) -> str:
    """Return the name of a code."""
    names = {code.value[0]: code.name for code in grpc.StatusCode}
    return names.get(number, str(number))


def reason_of(outcome: Outcome) -> tuple[str, dict[str, str]]:
    """Return reason and metadata of an error's ErrorInfo, empty if it has none."""
    info = error_details_pb2.ErrorInfo()
    for detail in status_pb2.Status.FromString(outcome.details).details:
        if detail.Unpack(info):
            break
    return info.reason, dict(info.metadata)


class Lists(Protocol):
    """A way to send lists."""

    def send(self, request: pb.ExecuteRequest) -> Outcome:
        """Send a list and wait for its answer."""
        ...

    def close(self) -> None:
        """End it."""
        ...


def outcome_of(call: Callable[[], Message]) -> Outcome:
    """Make a call over gRPC; return its message or error."""
    try:
        message = call()
    except grpc.RpcError as error:
        trailing: Any = error.trailing_metadata() or ()
        details: bytes = dict(trailing).get("grpc-status-details-bin", b"")
        return Outcome(b"", error.code().value[0], error.details() or "", details)
    return Outcome(message.SerializeToString(deterministic=True))


class Unary:
    """Each list is a call."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def send(self, request: pb.ExecuteRequest) -> Outcome:
        """Send a list and wait for its answer."""
        return outcome_of(lambda: self._client.stub.Execute(request, timeout=DEADLINE))

    def close(self) -> None:
        """Do nothing: nothing is open."""


class Stream:
    """Each list is a message of a stream; after an error the next list opens a new stream."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._queue: queue.SimpleQueue[pb.ExecuteRequest | None] | None = None

    def send(self, request: pb.ExecuteRequest) -> Outcome:
        """Send a list and wait for its answer."""
        if self._queue is None:
            self._queue = queue.SimpleQueue()
            requests = iter(self._queue.get, None)
            self._answers = self._client.stub.ExecuteStream(requests)
        self._queue.put(request)
        outcome = outcome_of(lambda: next(self._answers))
        if outcome.code:
            self.close()
        return outcome

    def close(self) -> None:
        """End the stream."""
        if self._queue is not None:
            self._queue.put(None)
        self._queue = None


class Sockets:
    """Each list is a frame on a plain socket; after an error the next list opens a new socket."""

    def __init__(self, client: Client, path: Path) -> None:
        self._path = path.with_name(path.name + client.state().plain_socket.suffix)
        self._socket: Plain | None = None

    def send(self, request: pb.ExecuteRequest) -> Outcome:
        """Send a list and wait for its answer."""
        if self._socket is None:
            self._socket = Plain(self._path)
        self._socket.send(request)
        flag, payload = self._socket.receive()
        if flag != METADATA:
            message = pb.ExecuteResponse.FromString(payload)
            return Outcome(message.SerializeToString(deterministic=True))
        lines = (line.partition(":") for line in payload.decode().split("\r\n"))
        trailers = {name: value.strip() for name, _, value in lines}
        self.close()
        details = base64.b64decode(trailers.get("grpc-status-details-bin", ""))
        text = unquote(trailers.get("grpc-message", ""))
        return Outcome(b"", int(trailers["grpc-status"]), text, details)

    def close(self) -> None:
        """Hang up."""
        if self._socket is not None:
            self._socket.socket.close()
        self._socket = None


class Side:
    """A server, and a channel to it."""

    def __init__(self, address: str) -> None:
        self._path = Path(address.removeprefix("unix:"))
        self._channel = grpc.insecure_channel(address, OPTIONS)

    def __enter__(self) -> "Side":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._channel.close()

    def run(self, program: Program, *, unary: bool) -> list[Outcome]:
        """Run a program in a session of its own; return the outcome of each step, then the tensors.

        Names of sessions, which are chosen by chance, are blotted out.
        """
        client = Client(self._channel, program.options)
        lists: Lists = Unary(client)
        if not unary:
            ways: tuple[Callable[[], Lists], ...] = (
                lambda: Unary(client),
                lambda: Stream(client),
                lambda: Sockets(client, self._path),
            )
            lists = Random(program.seed).choice(ways)()
        try:
            outcomes = [_step(client, lists, step) for step in program.steps]
            lists.close()
            outcomes += _tensors(client)
        finally:
            client.delete()
        return [_comparable(outcome, client.session) for outcome in outcomes]


def _step(client: Client, lists: Lists, step: Step) -> Outcome:
    match step:
        case pb.ExecuteRequest():
            return lists.send(client.request(*step.operations))
        case pb.UpdateSessionRequest():
            request = pb.UpdateSessionRequest()
            request.CopyFrom(step)
            request.session.name = client.session
            outcome = outcome_of(lambda: client.stub.UpdateSession(request, timeout=DEADLINE))
            return Outcome(code=outcome.code, text=outcome.text, details=outcome.details)
        case _:
            header = pb.WriteTensorHeader()
            header.CopyFrom(step)
            header.session = client.session
            message = pb.WriteTensorRequest(header=header)
            return outcome_of(lambda: client.stub.WriteTensor(iter([message]), timeout=DEADLINE))


def _tensors(client: Client) -> Iterator[Outcome]:
    """Return the session's tensors: their descriptions, then the contents of each."""
    request = pb.ListTensorsRequest(session=client.session, page_size=1000)
    listed: pb.ListTensorsResponse = client.stub.ListTensors(request)
    yield Outcome(listed.SerializeToString(deterministic=True))
    for info in listed.tensors:
        read = pb.ReadTensorRequest(session=client.session, sticks=pb.ReadSticks(id=info.id))
        parts = client.stub.ReadTensor(read)
        yield Outcome(b"".join(part.SerializeToString(deterministic=True) for part in parts))


def _comparable(outcome: Outcome, name: str) -> Outcome:
    """Blot out a session's name, and put the metadata of errors in order."""
    if not outcome.code:
        return outcome
    status, info, blot = (
        status_pb2.Status.FromString(outcome.details),
        error_details_pb2.ErrorInfo(),
        "*" * len(name),
    )
    for detail in status.details:
        if detail.Unpack(info):
            detail.value = info.SerializeToString(deterministic=True)
    details = status.SerializeToString(deterministic=True).replace(name.encode(), blot.encode())
    return Outcome(b"", outcome.code, outcome.text.replace(name, blot), details)


@dataclass(frozen=True, slots=True)
class Pair:
    """A server with shortcuts and a plain one."""

    shortcuts: Side
    plain: Side

    def difference(self, program: Program, met: Met) -> str | None:
        """Run a program on both; return the first difference, and count the plain answers."""
        with ThreadPoolExecutor(1) as beside:
            running = beside.submit(self.plain.run, program, unary=True)
            fast = self.shortcuts.run(program, unary=False)
            plain = running.result()
        for step, outcome in zip(program.steps, plain, strict=False):
            if isinstance(step, pb.ExecuteRequest):
                _count(step, outcome, met)
        pairs = zip_longest(fast, plain, fillvalue=Outcome())
        for index, (got, expected) in enumerate(pairs):
            if got != expected:
                within = index < len(program.steps)
                where = f"step {index}" if within else f"tensor {index - len(program.steps)}"
                return f"{where}: {_describe(got, expected, within)}"
        return None


def _describe(got: Outcome, expected: Outcome, is_list: bool) -> str:
    """Say how two outcomes differ; compare lists operation by operation."""
    if got.code or expected.code or not is_list:
        return f"{got}, plain: {expected}"
    answers = [
        pb.ExecuteResponse.FromString(outcome.message).results for outcome in (got, expected)
    ]
    for index, (result, plain) in enumerate(zip_longest(*answers)):
        if result != plain:
            texts = [
                "no result" if message is None else json_format.MessageToJson(message)
                for message in (result, plain)
            ]
            return f"operation {index}: {texts[0]}\nplain: {texts[1]}"
    return f"{got}, plain: {expected}"


def _count(step: pb.ExecuteRequest, outcome: Outcome, met: Met) -> None:
    """Count statuses by operation; an error counts for the operation that it names."""
    names = [operation.WhichOneof("operation") or "" for operation in step.operations]
    if outcome.code:
        reason, metadata = reason_of(outcome)
        met[metadata.get("operation", ""), reason or grpc_code(outcome.code)] += 1
        return
    results = pb.ExecuteResponse.FromString(outcome.message).results
    for name, result in zip(names, results, strict=False):
        met[name, status_name(result.zdnn_status)] += 1
    met["", "OK" if len(results) == len(names) else "STOPPED"] += 1


def shrink(program: Program, differs: Callable[[Program], bool]) -> Program:
    """Leave out steps, then operations of lists, while the program still differs."""
    size = max(1, len(program.steps) // 2)
    while size:
        start = 0
        while start < len(program.steps):
            smaller = program.without(range(start, start + size))
            if differs(smaller):
                program = smaller
            else:
                start += size
        size //= 2
    for index, step in enumerate(program.steps):
        if isinstance(step, pb.ExecuteRequest):
            program = _shrink_list(program, index, differs)
    return program


def _shrink_list(program: Program, index: int, differs: Callable[[Program], bool]) -> Program:
    """Leave out operations of one list."""
    position = 0
    while True:
        step = program.steps[index]
        assert isinstance(step, pb.ExecuteRequest)
        if position >= len(step.operations):
            return program
        shorter = pb.ExecuteRequest()
        shorter.CopyFrom(step)
        del shorter.operations[position]
        steps = [*program.steps[:index], shorter, *program.steps[index + 1 :]]
        smaller = Program(program.seed, program.options, steps)
        if differs(smaller):
            program = smaller
        else:
            position += 1
