# SPDX-License-Identifier: Apache-2.0
"""How the operations of a session travel: in turn over one stream, or each by itself."""

import json
import subprocess
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1.accelerator_pb2_grpc import AcceleratorServiceStub

from tests.libzdnn import toolchain
from tests.libzdnn.served_calls import served_calls
from tests.libzdnn.toolchain import Prefix
from tests.server.process import serving, wait_until
from tests.server.wire import Client, begun, load, op

pytestmark = pytest.mark.shortcut
Listen = tuple[str, ...]
PROGRAMS = Path(__file__).parent / "programs"
SUM_OPERATIONS = 4


@pytest.fixture(scope="module")
def program(prefix: Prefix, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that takes turns."""
    folder = tmp_path_factory.mktemp("turns")
    return toolchain.compiled(PROGRAMS / "turns.c", folder / "turns", prefix, "-std=gnu11")


class Turns:
    """A process of the program."""

    def __init__(self, program: Path, address: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [str(program)],
            env=toolchain.environment(ZDNN_SERVER=address, **environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def ask(self, word: str) -> str:
        """Return the program's answer to a word."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{word}\n")
        return self.process.stdout.readline().strip()

    def end(self) -> str:
        """Let the program end well, and return what it wrote to stderr."""
        _, errors = self.process.communicate(timeout=30)
        assert self.process.returncode == 0
        return errors


@contextmanager
def _turns(program: Path, address: str, **environment: str) -> Generator[Turns]:
    turns = Turns(program, address, **environment)
    try:
        yield turns
    finally:
        turns.process.kill()
        turns.process.communicate()


@pytest.fixture(params=["plain", "http2", "sharing"])
def listen(request: pytest.FixtureRequest, tmp_path: Path) -> Listen:
    """Flags of a server with a plain socket, with something in its place, or that maps memory."""
    if request.param == "http2":
        (tmp_path / "nnpa.sock.plain").mkdir()
    flags = ("--listen", f"unix:{tmp_path}/nnpa.sock")
    return (*flags, "--shared-memory") if request.param == "sharing" else flags


def test_operations_share_a_stream(program: Path, tmp_path: Path, listen: Listen) -> None:
    """A session's operations go over one stream, which ends well before the session does."""
    with serving(tmp_path, *listen) as server:
        with _turns(program, server.address) as turns:
            assert [turns.ask("sum") for _ in range(5)] == ["right"] * 5
            assert turns.end() == ""
        calls = served_calls(server)
    methods = ("CreateSession", "HoldSession", "ExecuteStream", "DeleteSession")
    assert calls == {(method, status): 1 for method in methods for status in ("OK", "*")}


def test_one_call_speaks_and_others_go_by_themselves(
    prefix: Prefix, tmp_path: Path, listen: Listen
) -> None:
    """One of eight threads has the stream; the others' concurrent calls go beside it.

    A miss of the session's cache is a refusal, which ends a stream; the next call opens another.
    """
    threads = tmp_path / "threads"
    toolchain.compiled(PROGRAMS / "threads.c", threads, prefix, "-std=gnu11", "-pthread")
    with serving(tmp_path, *listen) as server:
        printed = toolchain.run([str(threads)], ZDNN_SERVER=server.address)
        calls = served_calls(server)
    assert printed == "right, threads 1, 1\n"
    assert calls["ExecuteStream", "*"] == 1 + calls["ExecuteStream", "CACHE_MISS"]
    assert 0 < calls["Execute", "OK"] < 161 * SUM_OPERATIONS


def test_server_restarted_between_calls(program: Path, tmp_path: Path, listen: Listen) -> None:
    """A call after a restart of the server notices the restart, and is answered."""
    with (
        serving(tmp_path, *listen) as first,
        _turns(program, first.address) as turns,
    ):
        assert turns.ask("sum") == "right"
        first.stop()
        with serving(tmp_path, *listen) as second:
            assert [turns.ask("sum") for _ in range(2)] == ["right"] * 2
            assert turns.end() == ""
            calls = served_calls(second)
    assert (calls["ExecuteStream", "SESSION_NOT_FOUND"], calls["ExecuteStream", "*"]) == (1, 2)
    assert calls["Execute", "*"] == 0


def test_stream_that_idled_too_long(program: Path, tmp_path: Path, listen: Listen) -> None:
    """A stream and a session that the server ended while nobody called are replaced unnoticed."""
    with serving(tmp_path, *listen, "--idle-timeout", "3s") as server:
        with _turns(program, server.address) as turns:
            assert turns.ask("sum") == "right"
            wait_until(lambda: "session_ended" in server.log_text())
            wait_until(lambda: "status=CANCELLED" in server.log_text())
            assert turns.ask("sum") == "right"
            assert turns.end() == ""
        calls = served_calls(server)
    assert calls["ExecuteStream", "SESSION_NOT_FOUND"] == 1
    assert (calls["CreateSession", "*"], calls["ExecuteStream", "*"], calls["Execute", "*"]) == (
        2,
        3,
        0,
    )


def test_stream_is_left_in_time(program: Path, tmp_path: Path, listen: Listen) -> None:
    """After half of what a stream may idle, another one is begun; the server cuts none off."""
    with serving(tmp_path, *listen, "--idle-timeout", "8s") as server:
        with _turns(program, server.address) as turns:
            assert turns.ask("sum") == "right"
            time.sleep(4.2)
            assert turns.ask("sum") == "right"
            assert turns.end() == ""
        calls = served_calls(server)
    streams = (calls["ExecuteStream", "OK"], calls["ExecuteStream", "*"])
    assert (streams, calls["CreateSession", "*"], calls["Execute", "*"]) == ((2, 2), 1, 0)


def test_program_check_ends_the_stream_only(program: Path, tmp_path: Path, listen: Listen) -> None:
    """A program check raises its signal, and the session goes on over a new stream."""
    with serving(tmp_path, *listen) as server:
        with _turns(program, server.address) as turns:
            said = [turns.ask(word) for word in ("sum", "clash", "clash", "sum")]
            assert said == ["right", "a program check", "a program check", "right"]
            assert turns.end().count("PROGRAM_CHECK") == 2
        calls = served_calls(server)
    assert calls["ExecuteStream", "PROGRAM_CHECK"] == 2
    assert (calls["CreateSession", "*"], calls["ExecuteStream", "*"], calls["Execute", "*"]) == (
        1,
        3,
        0,
    )


@contextmanager
def _streams(address: str, count: int) -> Generator[None]:
    """Hold `count` streams of operations of one session open on a server."""
    over = threading.Event()

    def requests(session: str) -> Iterator[pb.ExecuteRequest]:
        yield pb.ExecuteRequest(session=session)
        over.wait()

    with grpc.insecure_channel(address) as channel:
        stub = AcceleratorServiceStub(channel)
        session = stub.CreateSession(pb.CreateSessionRequest()).name
        open_streams = [iter(stub.ExecuteStream(requests(session))) for _ in range(count)]
        assert [len(next(stream).results) for stream in open_streams] == [0] * count
        try:
            yield
        finally:
            over.set()
            for stream in open_streams:
                assert list(stream) == []


def test_server_without_a_stream_to_spare(program: Path, tmp_path: Path, listen: Listen) -> None:
    """A session that is refused its stream makes its calls by themselves, and asks no more."""
    few = ("--workers", "4", "--max-sessions", "2")  # twice as many conversations, at most
    with serving(tmp_path, *listen, *few) as server:
        with _turns(program, server.address) as turns:
            with _streams(server.address, 4):
                assert [turns.ask("sum") for _ in range(2)] == ["right"] * 2
            assert [turns.ask("sum") for _ in range(2)] == ["right"] * 2
            assert turns.end() == ""
        calls = served_calls(server)
    assert (calls["ExecuteStream", "CALL_QUOTA_EXCEEDED"], calls["ExecuteStream", "*"]) == (1, 5)
    assert calls["Execute", "OK"] == 4 * SUM_OPERATIONS


@contextmanager
def _long_list(address: str) -> Generator[None]:
    """Have a call under way on a server."""
    with grpc.insecure_channel(address) as channel:
        client = Client(channel)
        client.run(*load(1, np.ones((8, 32, 32, 64), np.float32)))
        call = begun(client, *[op("exp", input=1, output=1)] * 40_000)
        yield
        assert call.cancel()


def test_draining_server_is_no_server(program: Path, tmp_path: Path, listen: Listen) -> None:
    """A server that waits for others before it ends says so on an open stream too."""
    with (
        serving(tmp_path, *listen) as server,
        _turns(program, server.address) as turns,
    ):
        assert turns.ask("sum") == "right"
        with _long_list(server.address):
            server.process.terminate()
            wait_until(lambda: "draining, for at most" in server.log_text())  # not the path
            assert turns.ask("sum") == "wrong"
        calls = served_calls(server)
        errors = turns.end()
    assert "no server at" in errors
    assert "shutting down" in errors
    assert (calls["ExecuteStream", "SERVER_DRAINING"], calls["Execute", "SERVER_DRAINING"]) == (
        4,
        1,
    )


def test_faults_meet_singleserved_calls(program: Path, tmp_path: Path, listen: Listen) -> None:
    """Where faults are injected each operation is a call by itself, so that one can be lost."""
    rules = tmp_path / "rules.json"
    rules.write_text(
        json.dumps({"rules": [{"operation": "zdnn_add", "nth": 2, "lose_connection": "after"}]})
    )
    with serving(tmp_path, *listen, "--allow-faults") as server:
        with _turns(program, server.address, ZDNN_FAULTS=str(rules)) as turns:
            assert [turns.ask("sum") for _ in range(3)] == ["right", "wrong", "right"]
            assert turns.end().count("zdnn_add: connection lost") == 1
        calls = served_calls(server)
    streams = int("--shared-memory" in listen)  # what brings the memory
    assert (calls["CreateSession", "*"], calls["ExecuteStream", "*"]) == (1, streams)
