# SPDX-License-Identifier: Apache-2.0
"""Nothing is left behind: tensors, sessions, servers, sockets."""

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import psutil
import pytest
from nnpa.zdnn.v1.accelerator_pb2 import GetSessionRequest
from nnpa.zdnn.v1.operation_pb2 import FreeZtensorBuffer, Operation
from nnpa_client import Session, TransportError, ZdnnError, connect, zdnn
from nnpa_client._server.methods import GET_SESSION
from nnpa_client._server.transport import Method, Received, Request, Response, Sent
from nnpa_server.config import Limits
from nnpa_server.sessions.store import Store

from tests.client.in_process import InProcessTransport

ONES = np.ones(3, np.float32)


def count(session: Session) -> int:
    """Return the number of the session's tensors, after a call that frees dropped tensors."""
    gc.collect()
    session.execute([])
    return session.status().tensor_count


def test_dropped_ztensors_are_freed(session: Session) -> None:
    """A dropped ztensor is forgotten with the next call, whichever way it was made."""

    def work() -> None:
        a = session.ztensor(ONES)
        zdnn.add(a, zdnn.exp(a))

    for _ in range(5):
        work()
    assert count(session) == 0


def test_kept_ztensors_stay(session: Session) -> None:
    """A ztensor that is still referenced is not freed by the freeing of others."""
    kept = session.ztensor(ONES)
    session.ztensor(ONES)
    assert count(session) == 1
    np.testing.assert_array_equal(kept.numpy(), ONES)


def test_explicit_free_is_not_repeated(session: Session) -> None:
    """A freed ztensor that is then dropped is not freed twice."""
    a = session.ztensor(ONES)
    zdnn.free_ztensor_buffer(a)
    del a
    assert count(session) == 0


def test_failures_leave_nothing(session: Session) -> None:
    """Failed transforms, operations and lists leave no tensor behind."""

    def fail() -> None:
        with pytest.raises(ZdnnError):
            session.ztensor(np.array([[np.inf]], np.float32).repeat(3, 0))
        a = session.ztensor(ONES)
        with pytest.raises(ZdnnError), session.pipeline():  # noqa: PT012 - a list
            zdnn.add(a, a)
            zdnn.transform_ztensor(a, ONES)
            zdnn.add(a, a)

    for _ in range(3):
        fail()
    assert count(session) == 0


class Losing(InProcessTransport):
    """A transport that loses answers after the server has done the work."""

    lose = False

    def execute(self, request: Request) -> Response:
        """Run operations, and lose the answer if the test says so."""
        answer = super().execute(request)
        if self.lose:
            raise TransportError("UNAVAILABLE", "connection lost.")
        return answer

    def send_stream(self, method: Method[Sent, Received], requests: Iterable[Sent]) -> Received:
        """Send messages, and lose the answer if the test says so."""
        answer = super().send_stream(method, requests)
        if self.lose:
            raise TransportError("UNAVAILABLE", "connection lost.")
        return answer


def test_a_lost_answer_frees_nothing_twice() -> None:
    """When the answer to a list is lost, the client asks for the session's state, and goes on."""
    transport = Losing(Store(Limits()))
    session = Session(transport)
    kept, dropped = session.ztensor(ONES), session.ztensor(ONES)
    zdnn.reset_ztensor(kept)
    del dropped
    transport.lose = True
    with pytest.raises(TransportError, match="connection lost"):
        zdnn.transform_ztensor(kept, ONES)
    transport.lose = False
    assert kept.is_transformed
    assert count(session) == 1
    np.testing.assert_array_equal(kept.numpy(), ONES)


def test_a_lost_answer_to_a_stream() -> None:
    """When the answer to an upload is lost, the ztensor shows the server's state."""
    transport = Losing(Store(Limits()))
    session = Session(transport)
    ztensor = session.ztensor(np.ones((300, 1024), np.float32))
    zdnn.reset_ztensor(ztensor)
    transport.lose = True
    with pytest.raises(TransportError, match="connection lost"):
        zdnn.transform_ztensor(ztensor, np.ones((300, 1024), np.float32))
    transport.lose = False
    assert ztensor.is_transformed


def test_tensors_freed_behind_the_clients_back(session: Session) -> None:
    """A tensor that a raw operation has freed does not trouble later calls when it is dropped."""
    a = session.ztensor(ONES)
    free = Operation(free_ztensor_buffer=FreeZtensorBuffer(ztensor=a.ref()))
    assert session.execute([free])[0].zdnn_status == 0
    del a
    gc.collect()
    np.testing.assert_array_equal(session.ztensor(ONES).numpy(), ONES)


def test_close_may_be_repeated_and_deletes(session: Session) -> None:
    """Closing deletes the session at the server; closing again does nothing."""
    session.close()
    session.close()
    with pytest.raises(TransportError):
        session.status()


def test_garbage_collection_needs_no_session(session: Session) -> None:
    """Ztensors that outlive their session can be dropped."""
    a = session.ztensor(ONES)
    session.close()
    del a
    gc.collect()


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Return whether the condition becomes true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def test_private_server_ends_with_its_session() -> None:
    """`connect()` starts a server that is gone, with its socket, when the session closes."""
    before = set(psutil.Process().children())
    with connect() as session:
        (server,) = set(psutil.Process().children()) - before
        socket = Path(session.target.removeprefix("unix:"))
        assert socket.exists()
        np.testing.assert_array_equal(session.ztensor(ONES).numpy(), ONES)
    assert not server.is_running()
    assert not socket.exists()
    assert not socket.parent.exists()


@pytest.mark.heavy
def test_private_server_lives_as_long_as_ztensors_do() -> None:
    """A session that is dropped and not closed keeps its server while a ztensor is left."""
    before = set(psutil.Process().children())
    ztensor = connect().ztensor(ONES)
    gc.collect()
    np.testing.assert_array_equal(ztensor.numpy(), ONES)
    assert len(set(psutil.Process().children()) - before) == 1
    del ztensor
    gc.collect()
    assert set(psutil.Process().children()) == before


def test_private_server_ends_when_connecting_fails() -> None:
    """A connect() that fails after its server has started ends the server."""
    before = set(psutil.Process().children())
    with pytest.raises(TransportError, match="MACHINE_NOT_FOUND"):
        connect(machine="telum9")
    assert set(psutil.Process().children()) == before


@pytest.mark.heavy
def test_private_server_ends_with_a_killed_client() -> None:
    """A client that is killed by SIGKILL takes its private server with it."""
    program = (
        "import time\nfrom nnpa_client import connect\n"
        "session = connect()\nprint(session._server.pid, flush=True)\ntime.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        server = psutil.Process(int(client.stdout.readline()))
        assert server.is_running()
        os.kill(client.pid, signal.SIGKILL)
        client.wait(10)
        gone = wait_until(lambda: not server.is_running())
    assert gone


LEFT_OPEN = """
import os, sys
from nnpa_client import connect

session = connect(sys.argv[1])
print((session.ztensor([1.0, 2.0]) + session.ztensor([1.0, 2.0])).numpy().tolist())
child = os.fork()
if child == 0:
    sys.exit()
os.waitpid(child, 0)
session.status()
print(session.name)
"""


def test_a_session_ends_with_its_program(server_target: str) -> None:
    """A session that is left open ends with its program, not with a child that it forks."""
    command = [sys.executable, "-W", "ignore", "-c", LEFT_OPEN, server_target]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
    values, name = ended.stdout.splitlines()
    assert values == "[2.0, 4.0]"
    with connect(server_target) as session, pytest.raises(TransportError, match="NOT_FOUND"):
        session.transport.unary(GET_SESSION, GetSessionRequest(name=name))


def test_a_server_that_cannot_start_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the private server ends at once, the error has its exit code and its last lines."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(TransportError, match="private server ended with code 1"):
        connect()
