# SPDX-License-Identifier: Apache-2.0
"""A fuzzing client's belongings on the server: session, tensors, network, model, trace."""

import itertools
import secrets
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message
from google.protobuf.wrappers_pb2 import BytesValue
from nnpa.network.v1 import network_pb2 as network
from nnpa.oip import open_inference_grpc_pb2 as oip
from nnpa.zdnn.v1 import accelerator_pb2 as zdnn
from nnpa.zdnn.v1 import trace_pb2 as trace

from tests.hostile import instructions, models
from tests.hostile import recorded_calls as recorded
from tests.hostile.calls import ACCELERATOR, HEALTH, INFERENCE, NETWORK, Answer, Caller
from tests.hostile.methods import FRAMES, PLAIN_SOCKET
from tests.hostile.plain_socket import PlainCall

RENEW_EVERY = 500
NETWORKS = 8
TIMEOUT = 5.0
OPEN_TIMEOUT = 0.15
ENDLESS = (
    ACCELERATOR + "HoldSession",
    recorded.TRACING + "RecordTrace",
    NETWORK + "ObserveNetwork",
    HEALTH + "Watch",
)
"""Methods whose answers have no end: a call waits for the first."""
SETUP_TIMEOUT = 20.0
DELETE = ACCELERATOR + "DeleteSession"
UNLOAD = INFERENCE + "RepositoryModelUnload"
REAL_UNLOADS = 16
"""Of so many calls one unloads what inferences run: to load it again takes a worker."""

_loading = threading.Lock()


class Fixture:
    """One client's belongings on a server; `send` puts their names in the place of placeholders."""

    def __init__(self, address: str, socket: Path) -> None:
        self.caller, self.socket = Caller(address), socket
        self.object = Path(f"/dev/shm/{recorded.OBJECT[:10]}{secrets.token_hex(8)}")
        self.object.write_bytes(bytes(recorded.OBJECT_BYTES))
        self.session = self.spare = self.network = self.trace = ""
        self._networks: list[str] = []
        self._tracing: Any = None
        self._calls, self._unloads = itertools.count(1), itertools.count(1)

    def send(self, path: str, messages: tuple[bytes, ...]) -> Answer:
        """Send a case; return how it ended. Afterwards all that it changed is as before.

        Raises `FixtureError` when what belongs to the client cannot be made.
        """
        if not self.session:
            self.renew()
        raws = tuple(self._named(path, message) for message in messages)
        if path == PLAIN_SOCKET:
            answer = self._send_plainly(raws)
        elif path == FRAMES:
            answer = self._send_frames(raws)
        elif path in ENDLESS:
            answer = self._send_to_endless(path, raws)
        else:
            answer = self.caller.call(path, *raws, timeout=TIMEOUT)
        self._restore(path, answer)
        if next(self._calls) % RENEW_EVERY == 0:
            self.renew()
        return answer

    def _named(self, path: str, raw: bytes) -> bytes:
        is_spared = path == UNLOAD and next(self._unloads) % REAL_UNLOADS
        for placeholder, name in (
            (recorded.SESSION, self.spare if path == DELETE else self.session),
            (recorded.NETWORK_NAME, self.network),
            (recorded.TRACE, self.trace),
            (recorded.OBJECT, self.object.name),
            (recorded.MODEL, recorded.UNLOADED if is_spared else recorded.MODEL),
        ):
            raw = raw.replace(placeholder.encode(), name.encode())
        return raw

    def _send_frames(self, raws: tuple[bytes, ...]) -> Answer:
        """Send the contents of the messages as frames; bytes that do not parse go as they are."""
        inner: list[bytes] = []
        for raw in raws:
            try:
                inner.append(BytesValue.FromString(raw).value)
            except DecodeError:
                inner.append(raw)
        lines = instructions.LINES.format(session=self.session)
        return self._send_plainly(tuple(inner), lines, instructions.operand_memory())

    def _send_plainly(
        self, raws: tuple[bytes, ...], lines: str = "", file: int | None = None
    ) -> Answer:
        try:
            with PlainCall(self.socket, timeout=TIMEOUT, lines=lines, file=file) as call:
                for raw in raws:
                    answer = call.ask(raw)
                    if not answer.is_ok:
                        return answer
                return call.finish()
        except OSError as error:
            return Answer("UNAVAILABLE", details=repr(error))

    def _send_to_endless(self, path: str, raws: tuple[bytes, ...]) -> Answer:
        """Wait for the first answer; that none comes in time is no error of these methods."""
        answer = self.caller.call(path, *raws, timeout=OPEN_TIMEOUT, max_answers=1)
        if answer.code == "DEADLINE_EXCEEDED":
            return Answer("OK", seconds=answer.seconds)
        return answer

    def renew(self) -> None:
        """Begin with a new session."""
        try:
            self.drop()
            self._begin()
        except (grpc.RpcError, AssertionError, models.RefusedError) as error:
            raise FixtureError(repr(error)[:300]) from error

    def _begin(self) -> None:
        self.session = self.caller.session()
        operations = [
            operation
            for number in recorded.TENSORS
            for operation in recorded.tensor_operations(number)
        ]
        request = zdnn.ExecuteRequest(session=self.session, operations=operations)
        self._setup(ACCELERATOR + "Execute", request)
        self.host()
        self.open_spare()
        self.load_model()
        self.note_unloaded()
        self.open_trace()
        self.register()

    def host(self) -> None:
        """Host the network that calls are about; several at once, as one worker compiles them."""
        try:
            if not self._networks:
                for _ in range(NETWORKS):
                    name = models.ready(self.caller, self.session, models.harmless())
                    self._networks.append(name)
        except (AssertionError, models.RefusedError) as error:
            raise FixtureError(repr(error)[:300]) from error
        self.network = self._networks.pop()

    def open_spare(self) -> None:
        """Open the session that calls delete: it has no network, which would take a worker."""
        try:
            self.spare = self.caller.session()
        except grpc.RpcError as error:
            raise FixtureError(repr(error)[:300]) from error

    def note_unloaded(self) -> None:
        """Have a name in the index whose model is unloaded."""
        request = oip.RepositoryModelUnloadRequest(model_name=recorded.UNLOADED)
        if not self.caller.call(UNLOAD, request, timeout=SETUP_TIMEOUT).is_ok:
            models.load(self.caller, recorded.UNLOADED, models.harmless(), timeout=SETUP_TIMEOUT)
            self.caller.call(UNLOAD, request, timeout=SETUP_TIMEOUT)

    def drop(self) -> None:
        """Delete the session, and all that belongs to it."""
        for session in filter(None, (self.session, self.spare)):
            request = zdnn.DeleteSessionRequest(name=session)
            self.caller.call(DELETE, request, timeout=SETUP_TIMEOUT)
        if self.session:
            self._unregister()
        if self._tracing is not None:
            self._tracing.cancel()
        self.session = self.spare = ""
        self._networks.clear()
        self._tracing = None

    def close(self) -> None:
        """Leave nothing."""
        self.drop()
        self.caller.close()
        self.object.unlink(missing_ok=True)

    def _setup(self, path: str, request: Message) -> Answer:
        answer = self.caller.call(path, request, timeout=SETUP_TIMEOUT)
        if not answer.is_ok:
            raise FixtureError(f"{path}: {answer.name}: {answer.details}")
        return answer

    def load_model(self) -> None:
        """Load the model that inferences run, if it is not there; one client does at a time."""
        request = oip.ModelReadyRequest(name=recorded.MODEL)
        with _loading:
            answer = self.caller.call(INFERENCE + "ModelReady", request, timeout=SETUP_TIMEOUT)
            if not answer.is_ok or not answer.read(oip.ModelReadyResponse).ready:
                models.load(self.caller, recorded.MODEL, models.harmless(), timeout=SETUP_TIMEOUT)

    def open_trace(self) -> None:
        """Open a trace for a call that ends it."""
        request = trace.RecordTraceRequest().SerializeToString()
        self._tracing = self.caller.open(recorded.TRACING + "RecordTrace", iter([request]))
        with suppress(grpc.RpcError, StopIteration):
            self.trace = trace.RecordTraceResponse.FromString(next(self._tracing)).trace

    def _restore(self, path: str, answer: Answer) -> None:
        """Undo what a call has changed for the calls that follow it, other clients' too."""
        if answer.reason in ("SESSION_NOT_FOUND", "NETWORK_NOT_FOUND"):
            self._renew_if_lost()
        if answer.reason in ("MODEL_UNAVAILABLE", "MODEL_NOT_FOUND"):
            self.load_model()
        restore = _RESTORE.get(path)
        if restore is not None and answer.is_ok:
            with suppress(DecodeError, AssertionError):
                restore(self, answer)

    def _renew_if_lost(self) -> None:
        request = network.GetNetworkInfoRequest(session=self.session, network=self.network)
        if not self.caller.call(NETWORK + "GetNetworkInfo", request, timeout=TIMEOUT).is_ok:
            self.renew()

    def delete_created(self, answer: Answer) -> None:
        """Delete the session that an answer names."""
        request = zdnn.DeleteSessionRequest(name=answer.read(zdnn.Session).name)
        self.caller.call(DELETE, request, timeout=SETUP_TIMEOUT)

    def destroy_created(self, answer: Answer) -> None:
        """Destroy the network that an answer names."""
        created = answer.read(network.CreateNetworkResponse).network.name
        request = network.DestroyNetworkRequest(session=self.session, network=created)
        if created:
            self.caller.call(NETWORK + "DestroyNetwork", request, timeout=SETUP_TIMEOUT)

    def unload_others(self, answer: Answer) -> None:
        """Unload the model that an answer names, unless inferences run it."""
        name = answer.read(oip.RepositoryModelLoadResponse).model_name
        if name != recorded.MODEL:
            request = oip.RepositoryModelUnloadRequest(model_name=name)
            self.caller.call(UNLOAD, request, timeout=SETUP_TIMEOUT)

    def register(self) -> None:
        """Have one region, which inferences read."""
        self._unregister()
        request = oip.SystemSharedMemoryRegisterRequest(
            name=recorded.REGION, key=self.object.name, byte_size=recorded.OBJECT_BYTES
        )
        self.caller.call(INFERENCE + "SystemSharedMemoryRegister", request, timeout=TIMEOUT)

    def _unregister(self) -> None:
        request = oip.SystemSharedMemoryUnregisterRequest()
        self.caller.call(INFERENCE + "SystemSharedMemoryUnregister", request, timeout=TIMEOUT)


class FixtureError(Exception):
    """A valid call failed; the text says which."""


_RESTORE: Mapping[str, Callable[[Fixture, Answer], None]] = {
    ACCELERATOR + "CreateSession": Fixture.delete_created,
    DELETE: lambda fixture, _: fixture.open_spare(),
    NETWORK + "CreateNetwork": Fixture.destroy_created,
    NETWORK + "DestroyNetwork": lambda fixture, _: fixture.host(),
    INFERENCE + "RepositoryModelLoad": Fixture.unload_others,
    UNLOAD: lambda fixture, _: fixture.load_model(),
    INFERENCE + "SystemSharedMemoryRegister": lambda fixture, _: fixture.register(),
    INFERENCE + "SystemSharedMemoryUnregister": lambda fixture, _: fixture.register(),
    recorded.TRACING + "EndTrace": lambda fixture, _: fixture.open_trace(),
}
