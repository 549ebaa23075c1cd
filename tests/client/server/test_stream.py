# SPDX-License-Identifier: Apache-2.0
"""Lists over one stream have the same answers and errors as separate calls, at any moment."""

import math
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import grpc
import numpy as np
import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1.accelerator_pb2_grpc import AcceleratorServiceStub
from nnpa_client import ProgramCheck, Session, TransportError, connect, zdnn
from nnpa_client._server.shortcuts.plain_socket import PlainStream
from nnpa_client._server.shortcuts.stream import HttpStream, RenewedStream
from nnpa_client._server.transport import EXECUTE, Request

from tests.server.process import ServerProcess, serving, wait_until

pytestmark = pytest.mark.shortcut
ONES = np.ones((2, 3), np.float32)


@pytest.fixture(
    params=[
        pytest.param("tcp", marks=pytest.mark.heavy),
        "plain",
        pytest.param("unix", marks=pytest.mark.heavy),
    ]
)
def listen(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Flags of a server on TCP, on a Unix socket with a plain one, and without."""
    if request.param == "tcp":
        return "--listen", "127.0.0.1:0"
    if request.param == "unix":
        (tmp_path / "nnpa.sock.plain").mkdir()
    return "--listen", f"unix:{tmp_path}/nnpa.sock"


@pytest.fixture
def server(tmp_path: Path, listen: tuple[str, str]) -> Iterator[ServerProcess]:
    """A server that injects faults and has room for two sessions."""
    with serving(tmp_path, *listen, "--allow-faults", "--max-sessions", "2") as running:
        yield running


def lines(server: ServerProcess, method: str) -> list[str]:
    """End the server, so that its log is whole, and return the log's lines of a method."""
    server.stop()
    return [line for line in server.log_text().splitlines() if f"method={method} " in line]


def sums(session: Session, count: int) -> None:
    """Make `count` additions, and await each."""
    a = session.ztensor(ONES)
    for _ in range(count):
        assert np.array_equal(zdnn.add(a, a).numpy(), 2 * ONES)


def test_calls_share_a_stream(server: ServerProcess) -> None:
    """All calls of a session are lists of one stream, each with its line in the log."""
    with connect(server.address) as session:
        sums(session, 5)
    log_lines = [line for line in lines(server, "ExecuteStream") if "operations=0" not in line]
    assert len(log_lines) == 1 + 2 * 5
    assert len({line.rpartition("id=")[2] for line in log_lines}) == 1
    assert all("status=OK" in line for line in log_lines)
    assert lines(server, "Execute") == []


@pytest.mark.heavy
def test_calls_with_a_deadline_use_no_stream(server: ServerProcess) -> None:
    """Calls with a timeout are separate calls: a stream has no timeout."""
    with connect(server.address, timeout=60) as session:
        sums(session, 1)
    assert len(lines(server, "Execute")) == 3
    assert lines(server, "ExecuteStream") == []


def test_an_error_ends_the_stream_and_not_the_session(server: ServerProcess) -> None:
    """After a program check, a refused list and a wrong status, calls go on; tensors are there."""
    with connect(server.address) as session:
        a, b = session.ztensor(ONES), session.ztensor(np.ones((3, 2), np.float32))
        with pytest.raises(ProgramCheck):
            zdnn.add(a, b)
        with pytest.raises(TransportError, match="OPERATION_UNKNOWN"):
            session.execute([pb.ExecuteRequest().operations.add()])
        assert np.array_equal(zdnn.add(a, a).numpy(), 2 * ONES)


def test_a_stream_that_broke_off_is_lost_once(server: ServerProcess) -> None:
    """A connection lost during a call is an error of that call; the next one has a new stream."""
    with connect(server.address) as session:
        a = session.ztensor(ONES)
        with session.faults(zdnn.add, lose_connection="after"), pytest.raises(TransportError):
            zdnn.add(a, a)
        assert np.array_equal(zdnn.add(a, a).numpy(), 2 * ONES)


@pytest.mark.heavy
def test_an_interrupted_call_leaves_a_session_that_works(server: ServerProcess) -> None:
    """Ctrl-C while an answer is awaited gives the stream up; no later call gets that answer."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    with connect(server.address) as session:
        a = session.ztensor(ONES)
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            with session.faults(zdnn.add, delay=30.0, nth=1):
                signal.setitimer(signal.ITIMER_REAL, 0.5)
                with pytest.raises(KeyboardInterrupt):
                    zdnn.add(a, a)
                assert np.array_equal(zdnn.mul(a, a).numpy(), ONES)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


@pytest.mark.heavy
def test_without_room_for_a_stream_each_call_is_separate(server: ServerProcess) -> None:
    """While other clients have all streams of the server, each call is a separate call."""
    ended = threading.Event()
    apart = [("grpc.use_local_subchannel_pool", 1)]  # connections, of which each has its share
    stubs = [AcceleratorServiceStub(grpc.insecure_channel(server.address, apart)) for _ in range(4)]
    other_session = stubs[0].CreateSession(pb.CreateSessionRequest()).name

    def silent() -> Iterator[pb.ExecuteRequest]:
        yield pb.ExecuteRequest(session=other_session)
        ended.wait()

    streams: list[Any] = [stub.ExecuteStream(silent()) for stub in stubs]
    for stream in streams:
        next(stream)
    with connect(server.address) as session:
        sums(session, 2)
    assert len(lines(server, "Execute")) == 1 + 2 * 2
    refused = [line for line in lines(server, "ExecuteStream") if "max_conversations" in line]
    assert len(refused) == 1, "asked for once"
    ended.set()
    for stream in streams:
        stream.cancel()


@pytest.mark.heavy
def test_an_idle_stream_is_replaced(tmp_path: Path, listen: tuple[str, str]) -> None:
    """After the server has ended an idle stream, the next call opens another without an error."""
    with serving(tmp_path, *listen, "--idle-timeout", "3s") as server:
        with connect(server.address) as session:
            sums(session, 1)
            end = time.monotonic() + 30
            while "status=CANCELLED" not in server.log_text():
                assert time.monotonic() < end, server.log_text()
                session.status()  # keeps the session, not the stream
                time.sleep(0.1)
            sums(session, 1)
        log_lines = [line for line in lines(server, "ExecuteStream") if "operations=0" not in line]
    assert len({line.rpartition("id=")[2] for line in log_lines}) == 2


@pytest.mark.parametrize(("max_idle", "streams"), [(math.inf, 1), (0.0, 3)])
def test_a_stream_is_left_in_time(max_idle: float, streams: int) -> None:
    """A stream that idled until the server may end it is closed, and another one begins."""
    mocks: list[Any] = [Mock(spec=HttpStream) for _ in range(3)]
    begin = iter(mocks)
    stream = RenewedStream(lambda _method: next(begin))
    stream.max_idle = max_idle
    for _ in range(3):
        stream.ask(EXECUTE, Request(pb.ExecuteRequest()))
        time.sleep(0.001)
    assert [mock.ask.call_count for mock in mocks] == [3 // streams] * streams + [0] * (3 - streams)
    assert [mock.close.called for mock in mocks] == [True] * (streams - 1) + [False] * (4 - streams)


@pytest.mark.heavy
def test_a_server_that_comes_back(tmp_path: Path) -> None:
    """A call after the server's end cannot reach it; when another listens, it has no session."""
    flags = ("--listen", f"unix:{tmp_path}/nnpa.sock")
    with serving(tmp_path, *flags) as server:
        session = connect(server.address)
        sums(session, 1)
    with pytest.raises(TransportError) as unreachable:
        sums(session, 1)
    assert unreachable.value.code == "UNAVAILABLE"
    with serving(tmp_path, *flags):
        reasons = {""}
        end = time.monotonic() + 30
        while "SESSION_NOT_FOUND" not in reasons and time.monotonic() < end:
            time.sleep(0.2)  # gRPC waits a second before it connects again
            with pytest.raises(TransportError) as lost:
                sums(session, 1)
            reasons.add(lost.value.reason)
        assert reasons == {"", "SESSION_NOT_FOUND"}
        session.close()


def test_threads_of_one_session(server: ServerProcess) -> None:
    """Threads that call at the same time get their own answers."""
    with connect(server.address) as session:
        wrong: list[int] = []

        def work(number: int) -> None:
            a = session.ztensor(number * ONES)
            wrong.extend(number for _ in range(10) if zdnn.add(a, a).numpy()[0, 0] != 2 * number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


def test_nothing_stays(tmp_path: Path, listen: tuple[str, str]) -> None:
    """The threads and sockets of a session's stream end with it."""
    with serving(tmp_path, *listen) as server:
        before = threading.active_count()
        with connect(server.address) as session:
            sums(session, 1)
        sockets = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(6):
            with connect(server.address) as session:
                sums(session, 1)
        wait_until(lambda: len(list(Path("/proc/self/fd").iterdir())) <= sockets + 2)
    wait_until(lambda: threading.active_count() <= before)


@pytest.mark.parametrize("size", [(2, 3), (130, 200), (600, 1024)])
def test_arrays_of_any_size(server: ServerProcess, size: tuple[int, int]) -> None:
    """Arrays come back unchanged, within messages and apart from them."""
    array = np.arange(size[0] * size[1], dtype=np.float32).reshape(size) % 256
    with connect(server.address) as session:
        a = session.ztensor(array)
        for _ in range(3):
            assert np.array_equal(zdnn.add(a, a).numpy(), 2 * array)


def test_words_of_an_error(tmp_path: Path, listen: tuple[str, str]) -> None:
    """An error has the same words over each way, and the log has them, too."""
    with serving(tmp_path, *listen) as server:
        with connect(server.address) as session, pytest.raises(TransportError) as refused:
            session.execute([pb.ExecuteRequest().operations.add()])
        log_lines = lines(server, "ExecuteStream")
    error = refused.value
    assert (error.code, error.reason) == ("INVALID_ARGUMENT", "OPERATION_UNKNOWN")
    assert error.metadata["operation_index"] == "0"
    assert "operations[0]" in str(error)
    assert sum("status=OPERATION_UNKNOWN" in line for line in log_lines) == 1


def test_a_plain_socket_that_goes_away(tmp_path: Path) -> None:
    """Where the plain socket can be reached no more, lists go over HTTP/2."""
    with serving(tmp_path, "--listen", f"unix:{tmp_path}/nnpa.sock") as server:
        with connect(server.address) as session:
            (tmp_path / "nnpa.sock.plain").unlink()
            sums(session, 2)
        assert "status=OK" in lines(server, "ExecuteStream")[0]


@pytest.mark.parametrize(
    ("says", "code"),
    [
        (b"", grpc.StatusCode.UNAVAILABLE),
        (b"\x00\x00\x00", grpc.StatusCode.UNAVAILABLE),
        (b"\x00\x00\x00\x00\x02\xff\xff", grpc.StatusCode.INTERNAL),
        (b"\x80\x00\x00\x00\x10grpc-status: 5\r\n", grpc.StatusCode.NOT_FOUND),
        (b"\x80\x00\x00\x00\x00", grpc.StatusCode.UNKNOWN),
    ],
)
def test_what_a_broken_server_says(tmp_path: Path, says: bytes, code: grpc.StatusCode) -> None:
    """Bytes that are no answer, and a server that goes away, are errors of gRPC."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "plain"))
        listening.listen()
        stream = PlainStream(str(tmp_path / "plain"), (), EXECUTE)
        client, _ = listening.accept()
        client.sendall(says)
        client.close()
        with pytest.raises(grpc.RpcError) as caught:
            stream.ask(Request(pb.ExecuteRequest()))
        stream.close()
    error: Any = caught.value
    assert error.code() == code
