# SPDX-License-Identifier: Apache-2.0
"""Plain sockets: idle and silent clients, clients that are killed, the server's end."""

import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import grpc
import numpy as np
import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa_server.config import Config, Limits
from nnpa_server.sessions.store import Counts

from tests.server.conftest import CONFIG
from tests.server.plain import METADATA, Plain, frame
from tests.server.process import PLAIN, serving
from tests.server.rpc.near import SUM, Near, info_of
from tests.server.wire import load, op


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Near]]:
    """A function that starts a server with a configuration."""
    started: list[Near] = []

    def start_one(config: Config = CONFIG) -> Near:
        started.append(Near(tmp_path, config))
        return started[-1]

    yield start_one
    for server in started:
        server.stop()


@pytest.fixture
def near(start: Callable[..., Near]) -> Near:
    """A server with small limits."""
    return start()


@pytest.mark.heavy
def test_a_silent_client_is_cut_off(near: Near, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that connects and is silent has its thread for a few seconds only."""
    monkeypatch.setattr("nnpa_server.rpc.unix_frames._METADATA_TIMEOUT", 1.0)
    with Plain(near.plain_path, begin=False) as silent:
        assert silent.socket.recv(1) == b""
    with Plain(near.plain_path, begin=False) as slow:
        drops = iter(frame(METADATA, b"x" * 200))
        with suppress(OSError):
            for byte in drops:
                slow.socket.sendall(bytes([byte]))
                time.sleep(0.1)
        assert len(list(drops)) > 100


def test_a_shortage_passes(near: Near, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that come while there are no descriptors or threads do not end the listener."""
    real, failures = threading.Thread.start, [RuntimeError("can't start new thread")] * 2

    def start(thread: threading.Thread) -> None:
        if thread.name == "plain" and failures:
            raise failures.pop()
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    for _ in range(2):
        with Plain(near.plain_path, begin=False) as plain:
            assert plain.socket.recv(1) == b""
    with near.plain() as plain:
        assert plain.ask(near.request()).results == []
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    waiting = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    used = max(int(descriptor.name) for descriptor in Path("/proc/self/fd").iterdir())
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, limits[1]))
        for client in waiting:
            client.connect(str(near.plain_path))
        time.sleep(0.3)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    for client in waiting:
        client.close()
    with near.plain() as plain:
        assert plain.ask(near.request()).results == []


def test_clients_are_counted(start: Callable[..., Near]) -> None:
    """A conversation beyond a process's limit is refused; earlier ones and gRPC go on."""
    near = start(replace(CONFIG, limits=Limits(max_sessions=2)))
    with near.plain() as first, near.plain() as second:
        for plain in (first, second):
            plain.ask(near.request())
        with near.plain() as three:
            ended = three.end()
        assert info_of(ended).reason == "CALL_QUOTA_EXCEEDED"
        assert info_of(ended).metadata["field"] == "max_conversations"
        list(near.client.stub.ExecuteStream(iter([near.request()])))
        assert first.ask(near.request(*SUM)).results[-1].zdnn_status == 0
        assert second.finish()["grpc-status"] == "0"
    with near.plain() as four:
        assert four.ask(near.request()).results == []


@pytest.mark.heavy
def test_an_idle_client_is_cut_off(start: Callable[..., Near]) -> None:
    """A conversation without a message for as long as a session may idle is ended."""
    near = start(replace(CONFIG, limits=Limits(idle_timeout=2.0)))
    with near.plain() as plain:
        plain.ask(near.request())
        assert plain.end()["grpc-status"] == str(grpc.StatusCode.CANCELLED.value[0])


def test_a_client_that_is_killed_stops_its_list(near: Near) -> None:
    """A long list of a killed client ends early, and leaves nothing."""
    big = np.ones((100, 1000), np.float32)
    adds = [op("exp", input=1, output=1)] * 20_000
    with near.plain() as plain:
        plain.ask(near.request(*load(1, big)))
        plain.send(near.request(*adds))
        time.sleep(0.05)
    near.client.delete()
    deadline = time.monotonic() + 20
    while near.server.store.counts() != Counts() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert near.server.store.counts() == Counts()


def test_a_client_that_leaves_within_a_frame(near: Near) -> None:
    """A client that goes away in the middle of a frame disturbs nobody."""
    for cut in (3, 5, 20):
        with near.plain() as plain:
            plain.socket.sendall(frame(0, near.request(*SUM).SerializeToString())[:cut])
    assert near.client.run(*SUM)[-1].zdnn_status == 0


@pytest.mark.heavy
def test_draining_finishes_the_running_list(start: Callable[..., Near]) -> None:
    """A draining server finishes its list, ends other conversations, and removes its socket."""
    near, count = start(replace(CONFIG, drain_timeout=60)), 200 if PLAIN else 2000
    with near.plain() as waiting, near.plain() as running:
        waiting.ask(near.request(*load(1, np.ones((100, 1000), np.float32))))
        running.ask(near.request())
        near.wait_until_idle()
        began = time.monotonic()
        running.send(near.request(*[op("exp", input=1, output=1)] * count))
        near.wait_until_busy(began)
        ending = threading.Thread(target=near.stop)
        ending.start()
        assert len(running.answer().results) == count
        cancelled = str(grpc.StatusCode.CANCELLED.value[0])
        unavailable = str(grpc.StatusCode.UNAVAILABLE.value[0])
        assert waiting.end()["grpc-status"] in (cancelled, unavailable)
        ending.join(30)
    assert not near.plain_path.exists()


def test_what_a_dead_server_left(tmp_path: Path) -> None:
    """The sockets of a server that was killed are taken over."""
    flags = ("--listen", f"unix:{tmp_path}/nnpa.sock")
    with serving(tmp_path, *flags) as first:
        first.process.kill()
        first.wait()
    assert (tmp_path / "nnpa.sock.plain").is_socket()
    with serving(tmp_path, *flags) as second:
        with Plain(tmp_path / "nnpa.sock.plain") as plain:
            plain.send(pb.ExecuteRequest(session="sessions/none"))
            assert plain.end()["grpc-status"] == "5"
        assert second.stop() == 0
        assert "method=ExecuteStream" in second.log_text()
    assert list(tmp_path.glob("*.plain")) == []
