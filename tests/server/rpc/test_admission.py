# SPDX-License-Identifier: Apache-2.0
"""A caller takes almost nothing before the server has seen its token or its message."""

import hashlib
import logging
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1.accelerator_pb2_grpc import AcceleratorServiceStub
from nnpa_server.rpc.listening import FIRST_WINDOW, server_options
from nnpa_server.rpc.public_calls import MAX_MESSAGE, MAX_WATCHES

from tests.server.conftest import CONFIG, OPTIONS, Running
from tests.server.plain import Plain, frame
from tests.server.process import PATIENCE, serving, wait_until
from tests.server.wire import Client, load

CODE = grpc.StatusCode
OWN_CONNECTION = (*OPTIONS, ("grpc.use_local_subchannel_pool", 1))
GET_SESSION = "/nnpa.zdnn.v1.AcceleratorService/GetSession"
EXECUTE = "/nnpa.zdnn.v1.AcceleratorService/Execute"
EXECUTE_STREAM = "/nnpa.zdnn.v1.AcceleratorService/ExecuteStream"
WRITE_TENSOR = "/nnpa.zdnn.v1.AcceleratorService/WriteTensor"
CHECK = "/grpc.health.v1.Health/Check"
REFLECT = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
PROMPT = 2.0  # seconds that a bystander's call may take
ALICE = (("authorization", "Bearer secret"),)
Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A function that starts a server of four threads, with a token for Alice if asked."""
    servers: list[Running] = []

    def run(*, tokens: bool = False, **settings: Any) -> Running:
        if tokens:
            settings["tokens"] = tmp_path / "tokens.toml"
            digest = hashlib.sha256(b"secret").hexdigest()
            settings["tokens"].write_text(f'[tokens.alice]\nsha256 = "{digest}"\n')
        servers.append(Running(replace(CONFIG, workers=4, **settings)))
        return servers[-1]

    yield run
    for server in servers:
        server.stop()


@contextmanager
def connected(address: str) -> Generator[Any]:  # bytes travel as they are, unlike in the stubs
    """Open a connection of its own."""
    with grpc.insecure_channel(address, OWN_CONNECTION) as channel:
        yield channel


@contextmanager
def nothing_sent() -> Generator[Callable[[], Iterator[bytes]]]:
    """Give streams that send no message while the context lasts."""
    ended = threading.Event()

    def messages() -> Generator[bytes]:
        ended.wait(PATIENCE)
        yield from ()

    try:
        yield messages
    finally:
        ended.set()


def code_of(call: Any) -> grpc.StatusCode:
    """Return how a call ended."""
    with suppress(grpc.RpcError):
        call.result(PATIENCE)
    code: grpc.StatusCode = call.code()
    return code


def seconds_of(call: Callable[[], object]) -> float:
    """Return how long a call takes."""
    started = time.monotonic()
    call()
    return time.monotonic() - started


def is_healthy(channel: grpc.Channel) -> bool:
    """Ask a server for its health."""
    stub: Any = health_pb2_grpc.HealthStub(channel)
    answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE)
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def list_machines(channel: grpc.Channel, metadata: Any = ()) -> None:
    """Make a user's call."""
    stub: Any = AcceleratorServiceStub(channel)
    stub.ListMachines(pb.ListMachinesRequest(), metadata=metadata, timeout=PATIENCE)


def test_without_a_token_no_message_is_awaited(start: Start) -> None:
    """Calls of which only headers come are refused by their token, and keep no thread."""
    server = start(tokens=True)
    with nothing_sent() as nothing, connected(server.address) as hostile:
        calls = [hostile.stream_unary(GET_SESSION).future(nothing()) for _ in range(130)]
        assert seconds_of(lambda: list_machines(server.channel, ALICE)) < PROMPT
        assert seconds_of(lambda: is_healthy(server.channel)) < PROMPT
        assert Counter(map(code_of, calls)) == {CODE.UNAUTHENTICATED: 130}


@pytest.mark.heavy
def test_messages_that_do_not_come_leave_room(start: Start) -> None:
    """Where no token is asked for, calls without messages are cut off, the oldest first."""
    server = start(message_timeout=4.0)
    with nothing_sent() as nothing, connected(server.address) as hostile:
        most = 4 + server.server.config.max_conversations  # threads, but for those that wait
        calls = [hostile.stream_unary(GET_SESSION).future(nothing()) for _ in range(most)]
        time.sleep(0.5)
        assert seconds_of(lambda: list_machines(server.channel)) < PROMPT
        assert seconds_of(lambda: is_healthy(server.channel)) < PROMPT
        assert Counter(map(code_of, calls)) == {CODE.CANCELLED: most}
    assert seconds_of(lambda: list_machines(server.channel)) < PROMPT


def test_an_upload_that_does_not_begin(start: Start) -> None:
    """The first message of a stream must come as soon as the message of a call."""
    server = start(message_timeout=0.5)
    with nothing_sent() as nothing, connected(server.address) as client:
        call = client.stream_unary(WRITE_TENSOR).future(nothing())
        assert seconds_of(lambda: code_of(call)) < PROMPT
        assert call.code() is CODE.CANCELLED


def test_streams_without_a_token_are_bounded(start: Start) -> None:
    """Streams of reflection and health that stay open take no thread of anybody's call."""
    server = start(tokens=True, reflection="on")
    with nothing_sent() as nothing, connected(server.address) as hostile, ExitStack() as opened:
        streams: list[Any] = [hostile.stream_stream(REFLECT)(nothing()) for _ in range(130)]
        streams += [hostile.unary_stream("/grpc.health.v1.Health/Watch")(b"") for _ in range(130)]
        for stream in streams:
            opened.callback(stream.cancel)
        assert seconds_of(lambda: list_machines(server.channel, ALICE)) < PROMPT
        assert seconds_of(lambda: is_healthy(server.channel)) < PROMPT
        watches = streams[130:]
        wait_until(lambda: sum(stream.done() for stream in watches) >= 130 - MAX_WATCHES)
        ended = [stream for stream in watches if stream.done()]
        assert {stream.code() for stream in ended} == {CODE.RESOURCE_EXHAUSTED}


def test_health_has_a_listener_of_its_own(start: Start) -> None:
    """The listener for health answers while the server accepts no other connection."""
    server = start(max_connections=2, health_listen="127.0.0.1:0")
    with ExitStack() as opened:
        for _ in range(4):  # of which two are for a moment, were they not let in
            list_machines(opened.enter_context(connected(server.address)))
        late = opened.enter_context(connected(server.address))
        with pytest.raises(grpc.RpcError, match="UNAVAILABLE"):
            list_machines(late)
        with connected(dict(server.server.listening)["health"]) as channel:
            assert is_healthy(channel)
            unknown = channel.unary_unary(GET_SESSION)
            with pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"):
                unknown(b"")


@pytest.mark.parametrize(
    ("settings", "is_offered"),
    [
        ({}, True),
        ({"reflection": "off"}, False),
        ({"tokens": True}, False),
        ({"tokens": True, "reflection": "on"}, True),
    ],
)
def test_reflection_is_a_choice(start: Start, settings: dict[str, Any], is_offered: bool) -> None:
    """Reflection is on, except where tokens are asked for."""
    with connected(start(**settings).address) as channel:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        if is_offered:
            (answer,) = stub.ServerReflectionInfo(iter([request]))
            assert answer.list_services_response.service
        else:
            with pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"):
                next(stub.ServerReflectionInfo(iter([request])))


@pytest.mark.parametrize("garbage", [b"\x0a", b"\xff", b"\xff" * (MAX_MESSAGE + 1)])
def test_garbage_has_a_code_and_no_traceback(
    start: Start, caplog: pytest.LogCaptureFixture, garbage: bytes
) -> None:
    """Bytes that are no message are refused by every service, and logged as no failure."""
    server = start()
    is_long = len(garbage) > MAX_MESSAGE
    with caplog.at_level(logging.DEBUG), connected(server.address) as client:
        for method in (GET_SESSION, EXECUTE, CHECK):
            with pytest.raises(grpc.RpcError) as caught:
                client.unary_unary(method)(garbage)
            error: Any = caught.value
            too_long = is_long and method == CHECK
            expected = CODE.RESOURCE_EXHAUSTED if too_long else CODE.INVALID_ARGUMENT
            assert error.code() is expected, method
        for method in (EXECUTE_STREAM, REFLECT):
            with pytest.raises(grpc.RpcError) as caught:
                list(client.stream_stream(method)(iter([garbage])))
            error = caught.value
            too_long = is_long and method == REFLECT
            expected = CODE.RESOURCE_EXHAUSTED if too_long else CODE.INVALID_ARGUMENT
            assert error.code() is expected, method
    assert not [record for record in caplog.records if record.exc_info or record.levelno > 30]


def test_half_a_field_on_a_plain_socket(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A plain socket, too, refuses the byte 0a, which begins a field without its rest."""
    server = Running(replace(CONFIG, listen=(f"unix:{tmp_path}/s",)))
    try:
        with Plain(tmp_path / "s.plain", "") as plain:
            plain.socket.sendall(frame(0, b"\x0a"))
            assert plain.end()["grpc-status"] == str(CODE.INVALID_ARGUMENT.value[0])
    finally:
        server.stop()
    assert not [record for record in caplog.records if record.exc_info]


class Endless:
    """A call over HTTP/2 that begins a message and counts the bytes of the server's window.

    Sources: RFC 9113, 4.1 (frames) and 6.9 (windows); RFC 7541, 6.2.2 (literal fields).
    """

    SIZE = 63 << 20

    def __init__(self, address: str, path: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), PATIENCE)
        self._received = self._socket.makefile("rb")
        pairs = (
            (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost"),
            ("content-type", "application/grpc"), ("te", "trailers"),
        )  # fmt: skip
        headers = b"".join(
            b"\0" + bytes([len(name)]) + name.encode() + bytes([len(text)]) + text.encode()
            for name, text in pairs
        )
        self._socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self._frame(4, 0, 0, b""))
        self._socket.sendall(self._frame(1, 0x4, 1, headers))
        self._socket.sendall(self._frame(0, 0, 1, struct.pack(">BI", 0, self.SIZE)))
        self._windows = {0: 65535 - 5, 1: 65535 - 5}
        self.sent, self.is_over = 0, False

    @staticmethod
    def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        head = struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream)
        return head + payload

    def send_all(self) -> int:
        """Send as the windows allow until the server ends the call; return the bytes sent."""
        while not self.is_over and self.sent < self.SIZE:
            size = min(16384, self.SIZE - self.sent, *self._windows.values())
            if size > 0:
                self._socket.sendall(self._frame(0, 0, 1, bytes(size)))
                self.sent += size
                self._windows = {key: left - size for key, left in self._windows.items()}
            else:
                self._read()
        return self.sent

    def _read(self) -> None:
        """Take a frame of the server's: windows grow, and trailers or a reset end the call."""
        head = self._received.read(9)
        kind, flags, stream = struct.unpack(">BBI", head[3:])
        payload = self._received.read(int.from_bytes(head[:3], "big"))
        if kind == 8:
            self._windows[stream] += int.from_bytes(payload, "big")
        elif kind == 4 and not flags & 1:
            for key, setting in struct.iter_unpack(">HI", payload):
                if key == 4:
                    self._windows[1] += setting - 65535
            self._socket.sendall(self._frame(4, 1, 0, b""))
        elif kind == 6 and not flags & 1:
            self._socket.sendall(self._frame(6, 1, 0, payload))
        self.is_over = kind in (3, 7) or (kind == 1 and stream == 1 and bool(flags & 1))

    def close(self) -> None:
        """Hang up."""
        self._received.close()
        self._socket.close()


def test_messages_that_never_end_are_not_taken(start: Start) -> None:
    """The server takes only its first window of a message of 63 MiB without a token."""
    server = start(tokens=True)
    for _ in range(3):
        call = Endless(server.address, EXECUTE)
        try:
            assert call.send_all() <= FIRST_WINDOW
        finally:
            call.close()


def test_no_window_grows_while_a_token_is_checked() -> None:
    """A call that is refused late has gRPC take no more of its message."""

    def refuse_late(_requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        time.sleep(0.5)
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "late")

    service, method = EXECUTE.strip("/").split("/")
    handlers = {method: grpc.stream_unary_rpc_method_handler(refuse_late)}
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool, options=server_options(CONFIG))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        call = Endless(address, EXECUTE)
        try:
            assert call.send_all() <= FIRST_WINDOW
        finally:
            call.close()
            server.stop(0).wait()


def test_a_connection_is_told_how_many_calls_it_may_have(start: Start) -> None:
    """The first SETTINGS allow 100 calls and two a session. Source: RFC 9113, 6.5.2."""
    limits = replace(CONFIG.limits, max_sessions=7)
    host, _, port = start(limits=limits).address.rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE) as client:
        client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
        with client.makefile("rb") as received:
            head = received.read(9)
            settings = received.read(int.from_bytes(head[:3], "big"))
    assert head[3] == 4
    assert dict(struct.iter_unpack(">HI", settings))[3] == 114


def test_a_client_that_begins_with_more_calls_than_its_connection_may_have_loses_none(
    start: Start,
) -> None:
    """A client keeps calls above the bound until others have ended, also on a new connection."""
    server = start(limits=replace(CONFIG.limits, max_sessions=1))
    for _ in range(3):
        with grpc.insecure_channel(server.address, OWN_CONNECTION) as channel:
            check = health_pb2_grpc.HealthStub(channel).Check
            calls = [check.future(health_pb2.HealthCheckRequest()) for _ in range(900)]
            assert Counter(call.code() for call in calls) == {CODE.OK: 900}


def test_first_calls_of_a_process_with_few_descriptors(tmp_path: Path) -> None:
    """With 64 descriptors and many silent connections a connected client gets every answer."""
    data = np.ones((1, 1, 2, 3), np.float32)
    with serving(tmp_path, "--listen", "127.0.0.1:0", max_files=64) as server, ExitStack() as end:
        assert "connections at a time, not 1000" in server.log_text()
        channel = end.enter_context(connected(server.address))
        client = Client(channel)
        host, _, port = server.address.rpartition(":")
        for _ in range(300):
            silent = end.enter_context(socket.socket())
            silent.setblocking(False)
            with suppress(BlockingIOError):
                silent.connect((host, int(port)))
        client.run(*load(1, data))
        assert channel.unary_unary("/nnpa.mli.v1.MliService/ListKernels")(b"")
        for path, code in (
            ("/nnpa.network.v1.NetworkService/GetNetworkInfo", CODE.NOT_FOUND),
            ("/inference.GRPCInferenceService/ModelMetadata", CODE.NOT_FOUND),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(path)(b"")
            error: Any = caught.value
            assert error.code() is code, (path, error)
        client.delete()


@pytest.mark.heavy
def test_silent_connections_end(start: Start) -> None:
    """A silent connection ends after ten seconds, even with room for it."""
    host, _, port = start().address.rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE) as client:

        def wait_for_the_end() -> None:
            with suppress(ConnectionResetError):
                while client.recv(1024):
                    pass

        assert 5 < seconds_of(wait_for_the_end) < 20
