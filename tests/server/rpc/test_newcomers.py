# SPDX-License-Identifier: Apache-2.0
"""Connections without an admitted call keep nobody out, and end nobody's call."""

import hashlib
import socket
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1.accelerator_pb2_grpc import AcceleratorServiceStub

from tests.server.conftest import CONFIG, Running
from tests.server.process import PATIENCE, wait_until
from tests.server.rpc.test_admission import connected, nothing_sent

PROMPT = 2.0  # seconds that a newcomer waits
BURSTS = 4
MOST = 40  # connections at a time, half of them of newcomers
IPV6 = ("[::1]:0", "[::]:0")
Start = Callable[..., Running]


def has_ipv6() -> bool:
    """Tell whether this machine can listen on ::1."""
    try:
        with socket.socket(socket.AF_INET6) as listening:
            listening.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.fixture
def start() -> Iterator[Start]:
    """A function that starts a server of few connections."""
    servers: list[Running] = []

    def run(**settings: Any) -> Running:
        few = {"workers": 4, "max_connections": MOST}
        servers.append(Running(replace(CONFIG, **(few | settings))))
        return servers[-1]

    yield run
    for server in servers:
        server.stop()


def silent(address: str, source: str = "") -> socket.socket:
    """Open a connection on which nothing is sent."""
    host, _, port = address.rpartition(":")
    end = (host.strip("[]"), int(port))
    return socket.create_connection(end, PATIENCE, (source, 0) if source else None)


def is_closed(connection: socket.socket) -> bool:
    """Tell whether the server has closed a connection; gRPC speaks first."""
    connection.settimeout(0.01)
    try:
        while connection.recv(1024):
            pass
    except TimeoutError:
        return False
    except ConnectionResetError:
        pass
    return True


def is_healthy(address: str, *, tries_again: bool = False) -> bool:
    """Ask over a new connection, or over more while the server takes none."""
    with connected(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest()
        timeout = 3 * PROMPT if tries_again else PROMPT  # gRPC tries again after a second, then two
        answer = stub.Check(request, timeout=timeout, wait_for_ready=tries_again)
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


@pytest.mark.parametrize("listen", ["127.0.0.1:0", *(IPV6 if has_ipv6() else ())])
def test_silent_connections_keep_nobody_out(start: Start, listen: str) -> None:
    """There is room for newcomers while silent connections come, and calls go on."""
    server = start(listen=(listen,))
    address = server.address.replace("[::]", "127.0.0.1")
    ended = threading.Event()

    def nothing() -> Generator[pb.ExecuteRequest]:
        ended.wait(PATIENCE)
        yield from ()

    with ExitStack() as opened:
        user = opened.enter_context(connected(address))
        stub: Any = AcceleratorServiceStub(user)
        session = stub.CreateSession(pb.CreateSessionRequest(), timeout=PATIENCE).name
        conversation = stub.ExecuteStream(nothing())
        connections = [opened.enter_context(silent(address)) for _ in range(4 * MOST)]
        wait_until(lambda: sum(map(is_closed, connections)) >= 4 * MOST - MOST // 2)
        for _ in range(5):
            assert is_healthy(address)
            connections.append(opened.enter_context(silent(address)))
        assert stub.GetSession(pb.GetSessionRequest(name=session), timeout=PROMPT).name == session
        ended.set()
        assert list(conversation) == []


@pytest.mark.heavy
def test_few_connections_are_looked_at_often(start: Start) -> None:
    """After a burst that takes all connections a client that retries gets in a moment later."""
    most = 4
    address = start(max_connections=most).address
    for _ in range(BURSTS):
        with ExitStack() as opened:
            for _ in range(4 * most):
                opened.enter_context(silent(address))
            assert is_healthy(address, tries_again=True)


def test_the_network_with_the_most_newcomers_has_the_fewest_left(start: Start) -> None:
    """Of too many newcomers the server first closes connections of the network with the most."""
    server = start()
    with ExitStack() as opened:
        lone = opened.enter_context(silent(server.address, "127.0.0.2"))
        connections = [opened.enter_context(silent(server.address)) for _ in range(2 * MOST)]
        wait_until(lambda: sum(map(is_closed, connections)) > 2 * MOST - MOST // 2)
        assert not is_closed(lone)


def test_a_call_without_a_token_needs_no_thread(
    monkeypatch: pytest.MonkeyPatch, start: Start, tmp_path: Path
) -> None:
    """The server refuses it while every thread waits for a message of a caller with a token."""
    monkeypatch.setattr("nnpa_server.app._MIN_WAIT", PATIENCE)
    tokens, digest = tmp_path / "tokens.toml", hashlib.sha256(b"secret").hexdigest()
    tokens.write_text(f'[tokens.alice]\nsha256 = "{digest}"\n')
    server = start(tokens=tokens)
    config = server.server.config
    threads = config.max_threads + config.max_conversations
    alice = (("authorization", "Bearer secret"),)
    with nothing_sent() as nothing, connected(server.address) as busy:
        method: Any = busy.stream_unary("/nnpa.zdnn.v1.AcceleratorService/GetSession")
        calls = [method.future(nothing(), metadata=alice) for _ in range(2 * threads)]
        with connected(server.address) as channel:
            for kind in (channel.unary_unary, channel.unary_stream):
                path = "GetSession" if kind == channel.unary_unary else "ReadTensor"
                call: Any = kind(f"/nnpa.zdnn.v1.AcceleratorService/{path}")
                with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
                    list(call(b"", timeout=PROMPT))
        assert not any(call.done() for call in calls)
