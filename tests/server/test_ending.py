# SPDX-License-Identifier: Apache-2.0
"""SIGTERM ends a server within --drain-timeout and a second, whatever its clients do."""

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import trace_pb2
from nnpa.zdnn.v1.trace_pb2_grpc import TraceServiceStub

from tests.server.accelerator.test_large_operations import SQUARE, make_matrix
from tests.server.plain import Plain
from tests.server.process import PATIENCE, PLAIN, ServerProcess, serving
from tests.server.rpc.test_admission import (
    EXECUTE_STREAM,
    GET_SESSION,
    REFLECT,
    connected,
    nothing_sent,
)
from tests.server.wire import Client, begun, load, op, read_error

DRAIN = 1.0
BUSY = 1.0  # seconds that a machine that does other things may add
WATCH = "/grpc.health.v1.Health/Watch"
Held = Generator[None]


@contextmanager
def garbage_for_reflection(channel: Any) -> Held:
    """Bytes that are no message, a hundred times."""
    for _ in range(100):
        with pytest.raises(grpc.RpcError):
            list(channel.stream_stream(REFLECT)(iter([b"\xff"])))
    yield


@contextmanager
def streams_without_messages(channel: Any) -> Held:
    """Streams of reflection and of lists, and calls, of which only headers came."""
    with nothing_sent() as nothing:
        calls = [channel.stream_stream(path)(nothing()) for path in (REFLECT, EXECUTE_STREAM) * 40]
        calls += [channel.stream_unary(GET_SESSION).future(nothing()) for _ in range(130)]
        time.sleep(0.2)
        yield


@contextmanager
def watched_health(channel: Any) -> Held:
    """Streams that last as long as the server does."""
    watches = [channel.unary_stream(WATCH)(b"") for _ in range(20)]
    for watch in watches:
        next(watch)
    yield


@contextmanager
def an_upload_under_way(channel: Any) -> Held:
    """A stream that began and says nothing more."""
    client = Client(channel)
    client.run(*load(1, np.ones((1, 1, 2, 3), np.float32)))
    with nothing_sent() as nothing:

        def messages() -> Iterator[pb.WriteTensorRequest]:
            yield client.sticks_header(id=1, total_bytes=4096)
            for _ in nothing():
                pass

        upload = client.stub.WriteTensor.future(messages())
        time.sleep(0.2)
        assert not upload.done(), upload.exception()
        yield
        assert upload.exception() is not None


@contextmanager
def a_trace(channel: Any) -> Held:
    """An open trace, which nobody reads."""
    stub: Any = TraceServiceStub(channel)
    trace = stub.RecordTrace(trace_pb2.RecordTraceRequest())
    next(trace)
    yield


@contextmanager
def a_large_product(channel: Any) -> Held:
    """An operation of more than ten seconds."""
    client = Client(channel)
    make_matrix(client)
    call = begun(client, SQUARE)
    yield
    assert call.exception() is not None


STATES: list[Callable[[Any], Any]] = [
    garbage_for_reflection, streams_without_messages, watched_health, an_upload_under_way, a_trace,
]  # fmt: skip
if not PLAIN:  # references take minutes to make its operands
    STATES.append(a_large_product)


def seconds_to_end(server: ServerProcess) -> float:
    """Ask a server to end; return how long that takes."""
    started = time.monotonic()
    assert server.stop() == 0
    return time.monotonic() - started


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(state, marks=() if state is an_upload_under_way else pytest.mark.heavy)
        for state in STATES
    ],
    ids=lambda state: state.__name__,
)
def test_the_end_comes_in_time(tmp_path: Path, state: Callable[[Any], Any]) -> None:
    """In every state the process ends with 0, in time."""
    flags = ("--listen", "127.0.0.1:0", "--drain-timeout", f"{DRAIN}s")
    with serving(tmp_path, *flags) as server, connected(server.address) as channel, state(channel):
        assert seconds_to_end(server) < DRAIN + 1 + BUSY
        assert "Traceback" not in server.log_text()


@pytest.mark.heavy
def test_silent_clients_of_every_listener(tmp_path: Path) -> None:
    """Connections that say nothing, of gRPC, of plain sockets and of metrics, delay no end."""
    listeners = ("--listen", f"unix:{tmp_path}/s", "--listen", "127.0.0.1:0")
    flags = ("--metrics", "127.0.0.1:0", "--drain-timeout", f"{DRAIN}s")
    with serving(tmp_path, *listeners, *flags, listeners=2) as server, ExitStack() as opened:
        for _ in range(20):
            opened.enter_context(Plain(tmp_path / "s.plain", begin=False))
        with nothing_sent() as nothing, connected(server.addresses[1]) as channel:
            live = channel.stream_unary("/inference.GRPCInferenceService/ServerLive")
            calls = [live.future(nothing()) for _ in range(20)]
            time.sleep(0.2)
            assert seconds_to_end(server) < DRAIN + 1
            assert all(call.exception() is not None for call in calls)


def test_calls_between_two_lists_hear_of_the_end(tmp_path: Path) -> None:
    """Clients that call every few milliseconds hear SERVER_DRAINING; none is cancelled."""
    ends: list[str] = []

    def talk(client: Client, pause: float) -> None:
        while True:
            try:
                client.run(op("init"))
            except grpc.RpcError as error:
                ends.append(read_error(error).reason or str(error))
                return
            time.sleep(pause)

    with serving(tmp_path, "--listen", "127.0.0.1:0") as server, ExitStack() as opened:
        clients = [Client(opened.enter_context(connected(server.address))) for _ in range(12)]
        threads = [
            threading.Thread(target=talk, args=(client, 0.005 * number))
            for number, client in enumerate(clients)
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        assert seconds_to_end(server) < DRAIN + 1
        for thread in threads:
            thread.join(PATIENCE)
    assert ends == ["SERVER_DRAINING"] * len(clients)
