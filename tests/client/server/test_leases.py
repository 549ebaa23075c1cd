# SPDX-License-Identifier: Apache-2.0
"""Leases of the Python client: sessions end with their processes, and with nothing else."""

import gc
import multiprocessing
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from nnpa_client import Session, TransportError, connect, trace

from tests.server.process import ServerProcess, serving, wait_until

CHILDREN = int(os.environ.get("NNPA_LEASE_CHILDREN", "200"))
PLACES = 64
FLAGS = ("--max-sessions", str(PLACES))
ONE = [[1.0, 2.0]]


@pytest.fixture(params=[pytest.param("tcp", marks=pytest.mark.heavy), "unix"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of 64 sessions, on either transport."""
    listen = "127.0.0.1:0" if request.param == "tcp" else f"unix:{tmp_path}/nnpa.sock"
    with serving(tmp_path, "--listen", listen, *FLAGS, "--lease-grace", "2s") as process:
        yield process


def sessions(server: ServerProcess) -> int:
    """Count the sessions of a server by its audit log."""
    log = server.log_text()
    return log.count("event=session_created") - log.count("event=session_ended")


def computes(session: Session) -> bool:
    """Tell whether a sum in a session is right."""
    a = session.ztensor(ONE)
    return bool((a + a).numpy().tolist() == [[2.0, 4.0]])


def die(number: int) -> None:
    """End this process without a word, each time in another way."""
    match number % 4:
        case 0:
            os._exit(0)
        case 1:
            os.abort()
        case 2:
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            os.kill(os.getpid(), signal.SIGTERM)


def use_and_die(target: str, number: int, ready: Any) -> None:
    """Use a session, say so, and end."""
    session = connect(target, lease=True)
    ready.send(computes(session))
    die(number)


def use_for_ever(target: str, _number: int, ready: Any) -> None:
    """Open sessions until somebody ends this process."""
    ready.send(True)
    with suppress(TransportError):
        while computes(connect(target, lease=True)):
            pass


def tell_of_children(target: str, count: int, result: Any) -> None:
    """Run children one after the other in a process without gRPC, and send the number served."""
    context, served = multiprocessing.get_context("fork"), 0
    for number in range(count):
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=use_and_die, args=(target, number, sender))
        child.start()
        sender.close()
        with suppress(EOFError):
            served += receiver.recv()
        child.join()
    result.send(served)


def kill_children(target: str, count: int, result: Any) -> None:
    """Kill children at random moments while they open sessions, and report when all are gone."""
    context, moments = multiprocessing.get_context("fork"), random.Random(1)
    for number in range(count):
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=use_for_ever, args=(target, number, sender))
        child.start()
        assert receiver.recv()
        time.sleep(moments.uniform(0.0, 0.08))
        child.kill()
        child.join()
    result.send(count)


def in_clean_process(run: Callable[[str, int, Any], None], target: str, count: int) -> Any:
    """Run a function in a process of its own, which has used no gRPC, and return its result."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=run, args=(target, count, sender))
    process.start()
    sender.close()
    result = receiver.recv()
    process.join()
    return result


@pytest.mark.heavy
def test_children_leave_nothing(server: ServerProcess) -> None:
    """Forked children in a row that end by _exit, abort or a signal are served; none is left."""
    assert in_clean_process(tell_of_children, server.address, CHILDREN) == CHILDREN
    wait_until(lambda: sessions(server) == 0)


@pytest.mark.heavy
def test_children_killed_at_any_moment_leave_nothing(server: ServerProcess) -> None:
    """A client may be killed while it opens a session: no session is left."""
    assert in_clean_process(kill_children, server.address, CHILDREN) == CHILDREN
    wait_until(lambda: sessions(server) == 0)


def test_a_lease_that_ends_cleanly(server: ServerProcess) -> None:
    """A session with a lease that is closed is deleted, and nothing waits for a grace."""
    with connect(server.address, lease=True) as session:
        assert session.status().lease
        assert computes(session)
    wait_until(lambda: "why=deleted" in server.log_text(), 2.0)
    assert sessions(server) == 0


@pytest.mark.heavy
def test_a_session_that_is_dropped_goes(server: ServerProcess) -> None:
    """A session whose object was dropped ends like a dead client's session."""
    session = connect(server.address, lease=True)
    assert computes(session)
    del session
    wait_until(lambda: "why=lease" in server.log_text())


def test_sessions_of_private_servers_have_a_lease(server: ServerProcess) -> None:
    """A session of a private server has a lease by default; a session of a target has none."""
    with connect() as session:
        assert session.status().lease
    with connect(lease=False) as session:
        assert not session.status().lease
    with connect(server.address) as session:
        assert not session.status().lease


def test_a_trace_has_no_lease(server: ServerProcess, tmp_path: Path) -> None:
    """A trace of a session does not record its lease."""
    with connect(server.address, lease=True) as session, session.trace(tmp_path / "t"):
        assert computes(session)
    sessions = trace.read(tmp_path / "t").sessions
    assert sessions
    assert not any(options.lease for options in sessions.values())


class Relay:
    """Passes bytes between a port of its own and a server, and can cut all connections."""

    def __init__(self, target: str) -> None:
        host, port = target.rsplit(":", 1)
        self._server = host, int(port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self.is_broken = False
        """Whether new connections are cut, too."""
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                if self.is_broken:
                    client.close()
                    continue
                server = socket.create_connection(self._server)
                self._open += [client, server]
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=_pass_on, args=ends, daemon=True).start()

    def cut(self) -> None:
        """Cut all connections."""
        cut, self._open = self._open, []
        for connection in cut:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def close(self) -> None:
        """Cut all connections and take no more."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_RDWR)


@contextmanager
def relaying(target: str) -> Generator[Relay]:
    """Run a relay."""
    relay = Relay(target)
    yield relay
    relay.close()


@pytest.mark.heavy
@pytest.mark.parametrize("server", ["tcp"], indirect=True)
def test_a_lease_is_held_again(server: ServerProcess) -> None:
    """A client whose connection broke renews its lease by itself, and keeps its session."""
    with relaying(server.address) as relay, connect(relay.address, lease=True) as session:
        assert computes(session)
        relay.cut()  # at once, and once more while the client comes back
        time.sleep(0.2)
        relay.cut()
        time.sleep(5.0)  # more than twice the grace
        assert sessions(server) == 1
        assert computes(session)


def is_reached(session: Session) -> bool:
    """Tell whether calls of a session reach a server again."""
    try:
        session.status()
    except TransportError as error:
        return error.reason != ""
    return True


@pytest.mark.heavy
@pytest.mark.parametrize("server", ["tcp"], indirect=True)
def test_a_client_that_returns_too_late_reads_of_its_lease(server: ServerProcess) -> None:
    """A client that was away for longer than the grace gets an error: its lease broke."""
    with relaying(server.address) as relay, connect(relay.address, lease=True) as session:
        relay.is_broken = True
        relay.cut()
        wait_until(lambda: sessions(server) == 0)
        relay.is_broken = False
        wait_until(lambda: is_reached(session))
        with pytest.raises(TransportError, match="because its lease broke") as caught:
            session.status()
    assert caught.value.reason == "SESSION_NOT_FOUND"


def fork_and_end(target: str, _count: int, result: Any) -> None:
    """Fork a process with a session, and send whether the session works after the child's end."""
    session = connect(target, lease=True)
    assert computes(session)
    child = os.fork()
    if child == 0:
        del session
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    time.sleep(5.0)  # more than twice the grace
    result.send(computes(session))


@pytest.mark.heavy
def test_a_forked_child_ends_no_lease(server: ServerProcess) -> None:
    """A child that a process with a session forks leaves the session and its lease alone."""
    assert in_clean_process(fork_and_end, server.address, 1)
    assert "why=lease" not in server.log_text()
