# SPDX-License-Identifier: Apache-2.0
"""Leases: a session ends soon after its client, however that ends, and makes room at once."""

import math
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1.accelerator_pb2_grpc import AcceleratorServiceStub
from nnpa_emulator import MACHINES, Guest
from nnpa_server.config import Limits
from nnpa_server.errors import CallRefused
from nnpa_server.rpc.sockets import KEEPALIVE_SECONDS, LOST_SECONDS, borrowed, files
from nnpa_server.sessions.quota import QuotaCounter
from nnpa_server.sessions.store import Store
from nnpa_server.sessions.tokens import Token, set_caller

from tests.server.conftest import CONFIG, Running
from tests.server.process import wait_until
from tests.server.wire import refused

CODE = grpc.StatusCode
GRACE = 0.6
PLACES = 3
LIMITS = Limits(max_sessions=PLACES, lease_grace=GRACE)
OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)
Start = Callable[..., Running]


class Holder:
    """A client with a connection of its own that holds the lease of its session."""

    def __init__(self, address: str, name: str = "", *, metadata: Any = None) -> None:
        self.channel = grpc.insecure_channel(address, OWN_CONNECTION)
        self.stub: Any = AcceleratorServiceStub(self.channel)
        self.metadata = metadata
        request = pb.CreateSessionRequest(session=pb.Session(lease=True))
        self.name = name or self.stub.CreateSession(request, metadata=metadata).name
        self.hold = self.held()

    def held(self) -> Any:
        """Hold the lease, and return the open call once the server has answered."""
        hold = self.stub.HoldSession(pb.HoldSessionRequest(name=self.name), metadata=self.metadata)
        hold.initial_metadata()
        return hold

    def ask(self) -> pb.Session:
        """Make a call of the session."""
        state: pb.Session = self.stub.GetSession(pb.GetSessionRequest(name=self.name))
        return state

    def leave(self) -> None:
        """End the connection, as the end of a process does."""
        self.channel.close()


@pytest.fixture(params=[pytest.param("tcp", marks=pytest.mark.heavy), "unix"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    """A function that starts a server of few sessions on either transport."""
    listen = "127.0.0.1:0" if request.param == "tcp" else f"unix:{tmp_path}/nnpa.sock"
    servers: list[Running] = []

    def run(**settings: Any) -> Running:
        config = replace(CONFIG, listen=(listen,), **{"limits": LIMITS, **settings})
        servers.append(Running(config))
        return servers[-1]

    yield run
    for server in servers:
        server.stop()


def broken(running: Running) -> int:
    """Count the sessions whose lease is broken."""
    sessions = running.server.store.sessions()
    return sum(session.lease is not None and session.lease.is_broken for session in sessions)


def sessions(running: Running) -> int:
    """Count the sessions."""
    return running.server.store.counts().sessions


def test_a_session_goes_after_its_client(start: Start) -> None:
    """A session whose client has left goes after the grace, and not before; others stay."""
    running = start()
    client, neighbour = Holder(running.address), Holder(running.address)
    time.sleep(2 * GRACE)
    assert sessions(running) == 2, "a lease that is held keeps a session without calls"
    client.leave()
    left = time.monotonic()
    wait_until(lambda: sessions(running) == 1)
    assert time.monotonic() - left > GRACE / 2
    assert neighbour.ask().lease


@pytest.mark.heavy
def test_an_error_after_a_broken_lease_names_the_lease(start: Start) -> None:
    """A call of a session whose lease broke is SESSION_NOT_FOUND, and the text names the lease."""
    running = start()
    client = Holder(running.address)
    client.leave()
    wait_until(lambda: sessions(running) == 0)
    later: Any = AcceleratorServiceStub(running.channel)
    for call, request in (
        (later.GetSession, pb.GetSessionRequest(name=client.name)),
        (later.Execute, pb.ExecuteRequest(session=client.name)),
        (later.DeleteSession, pb.DeleteSessionRequest(name=client.name)),
    ):
        with refused(CODE.NOT_FOUND, "SESSION_NOT_FOUND", field="lease"):
            call(request)
    with pytest.raises(grpc.RpcError) as caught:
        later.GetSession(pb.GetSessionRequest(name=client.name))
    assert "because its lease broke" in str(caught.value)
    with pytest.raises(grpc.RpcError) as caught:
        later.GetSession(pb.GetSessionRequest(name="sessions/none"))
    assert "lease" not in str(caught.value)


def test_room_is_made_first_of_broken_leases(start: Start) -> None:
    """A full server ends the session whose lease broke first, at once; held leases stay."""
    running = start(limits=replace(LIMITS, lease_grace=60.0))
    clients = [Holder(running.address) for _ in range(PLACES)]
    with refused(CODE.RESOURCE_EXHAUSTED, "SESSION_QUOTA_EXCEEDED"):
        Holder(running.address)
    clients[1].leave()
    wait_until(lambda: broken(running) == 1)
    clients[0].leave()
    wait_until(lambda: broken(running) == 2)
    newcomer = Holder(running.address)
    names = [session.name for session in running.server.store.sessions()]
    assert names == [clients[0].name, clients[2].name, newcomer.name]
    last = Holder(running.address)
    with refused(CODE.RESOURCE_EXHAUSTED, "SESSION_QUOTA_EXCEEDED"):
        Holder(running.address)
    assert sessions(running) == PLACES
    assert all(client.ask().lease for client in (clients[2], newcomer, last))


def test_a_token_makes_room_of_its_own_sessions() -> None:
    """A token's new session takes the place of one of its own, and of no other token's."""
    store = Store(replace(LIMITS, lease_grace=60.0))
    names = dict[str, str]()
    for name in ("bob", "alice"):
        set_caller(Token(name, b"", frozenset(), math.inf, {"max_sessions": 1}))
        guest = Guest(MACHINES["telum2"])
        names[name] = store.create(guest, pb.Session(lease=True)).name
        release = store.hold(names[name], lambda _refusal: None)
        with pytest.raises(CallRefused, match="the token"):
            store.create(guest, pb.Session())
        release()
    newcomer = store.create(Guest(MACHINES["telum2"]), pb.Session())
    assert [session.name for session in store.sessions()] == [names["bob"], newcomer.name]
    with pytest.raises(CallRefused, match="because its lease broke"):
        store.delete(names["alice"])
    set_caller(Token("bob", b"", frozenset(), math.inf, {}))
    with pytest.raises(CallRefused, match="does not exist"):
        store.delete(names["alice"])
    set_caller(None)
    store.close()


def test_a_lease_that_nobody_held_yet_keeps_its_place(start: Start) -> None:
    """A session keeps its place between CreateSession and HoldSession; without a hold it ends."""
    running = start()
    stub: Any = AcceleratorServiceStub(running.channel)
    for _ in range(PLACES):
        stub.CreateSession(pb.CreateSessionRequest(session=pb.Session(lease=True)))
    with refused(CODE.RESOURCE_EXHAUSTED, "SESSION_QUOTA_EXCEEDED"):
        Holder(running.address)
    wait_until(lambda: sessions(running) == 0)


def test_a_lease_may_be_held_again(start: Start) -> None:
    """A client whose connection broke holds its lease again within the grace: the session stays."""
    running = start(limits=replace(LIMITS, lease_grace=5.0))
    client = Holder(running.address)
    client.leave()
    wait_until(lambda: broken(running) == 1)
    returned = Holder(running.address, client.name)
    assert broken(running) == 0
    neighbours = [Holder(running.address) for _ in range(PLACES - 1)]
    with refused(CODE.RESOURCE_EXHAUSTED, "SESSION_QUOTA_EXCEEDED"):
        Holder(running.address)
    assert returned.ask().name == client.name
    assert all(neighbour.ask().lease for neighbour in neighbours)


@pytest.mark.heavy
def test_a_session_of_several_connections(start: Start) -> None:
    """A lease of several connections breaks with the last; calls keep the session meanwhile."""
    running = start()
    first = Holder(running.address)
    second = Holder(running.address, first.name)
    caller: Any = AcceleratorServiceStub(running.channel)
    first.leave()
    time.sleep(2 * GRACE)
    assert broken(running) == 0
    second.leave()
    wait_until(lambda: broken(running) == 1)
    until = time.monotonic() + 3 * GRACE
    while time.monotonic() < until:
        assert caller.GetSession(pb.GetSessionRequest(name=first.name)).lease
        time.sleep(GRACE / 10)
    wait_until(lambda: sessions(running) == 0)


@pytest.mark.heavy
def test_a_lease_ends_with_its_session(start: Start) -> None:
    """The open call ends well when the session is deleted, and with its error when it expires."""
    running = start(limits=replace(LIMITS, idle_timeout=1.5))
    deleted, idle = Holder(running.address), Holder(running.address)
    deleted.stub.DeleteSession(pb.DeleteSessionRequest(name=deleted.name))
    assert (deleted.hold.code(), list(deleted.hold)) == (CODE.OK, [])
    with refused(CODE.NOT_FOUND, "SESSION_NOT_FOUND"):
        next(idle.hold)
    assert sessions(running) == 0


def test_a_session_without_a_lease_cannot_be_held(start: Start) -> None:
    """HoldSession needs a session with a lease, and the calls that hold a lease are bounded."""
    running = start()
    stub: Any = AcceleratorServiceStub(running.channel)
    name = stub.CreateSession(pb.CreateSessionRequest()).name
    with refused(CODE.INVALID_ARGUMENT, "FIELD_INVALID", field="lease"):
        next(stub.HoldSession(pb.HoldSessionRequest(name=name)))
    client = Holder(running.address)
    limit = CONFIG.max_session_calls
    holds = [client.held() for _ in range(limit - 1)]
    with refused(CODE.RESOURCE_EXHAUSTED, "CALL_QUOTA_EXCEEDED", limit=limit):
        next(client.held())
    assert all(hold.is_active() for hold in holds)


def test_leases_take_no_threads_and_no_streams(start: Start) -> None:
    """Held leases are no streams of max_streams, and keep no thread."""
    running = start(workers=4, limits=replace(LIMITS, max_sessions=40, lease_grace=60.0))
    warm = Holder(running.address)
    warm.ask()
    before = _threads()
    clients = [Holder(running.address) for _ in range(39)]
    added = _threads() - before
    assert added <= len(clients) + 4, "the clients' own: each channel has one"
    assert all(client.ask().lease for client in clients)


def _threads() -> int:
    return threading.active_count()


def test_a_server_that_drains_waits_for_no_lease(start: Start) -> None:
    """A drain ends held leases with SERVER_DRAINING, at once, and leaves nothing."""
    running = start(drain_timeout=20.0)
    client = Holder(running.address)
    began = time.monotonic()
    assert running.server.drain()
    assert time.monotonic() - began < 5.0
    with refused(CODE.UNAVAILABLE, "SERVER_DRAINING"):
        next(client.hold)
    assert sessions(running) == 0


def test_places_of_processes_are_given_back(tmp_path: Path) -> None:
    """Where several processes share places, a broken lease gives its place back to all of them."""
    counter = QuotaCounter(f"{tmp_path}/quota", PLACES)
    limits = replace(LIMITS, lease_grace=60.0)
    members = [Running(replace(CONFIG, limits=limits, quota=f"{tmp_path}/quota")) for _ in range(2)]
    first, second = (member.address for member in members)
    clients = [Holder(first) for _ in range(PLACES)]
    with refused(CODE.RESOURCE_EXHAUSTED, "SESSION_QUOTA_EXCEEDED"):
        Holder(second)
    clients[0].leave()
    wait_until(lambda: broken(members[0]) == 1)
    newcomer = Holder(second)
    with refused(CODE.RESOURCE_EXHAUSTED, "SESSION_QUOTA_EXCEEDED"):
        next(Holder(first, clients[0].name).hold)
    for client in (newcomer, *clients[1:]):
        client.stub.DeleteSession(pb.DeleteSessionRequest(name=client.name))
    successors = [Holder(second) for _ in range(PLACES)]
    assert all(client.ask().lease for client in successors)
    for member in members:
        member.stop()
    counter.shutdown()
    counter.server_close()


@pytest.mark.skipif(sys.platform != "linux", reason="the options are Linux's")
def test_connections_ask_for_signs_of_life() -> None:
    """The kernel checks for each accepted TCP connection whether the host still answers."""
    running = Running(CONFIG)
    AcceleratorServiceStub(running.channel).ListMachines(pb.ListMachinesRequest())
    port, options = int(running.address.rpartition(":")[2]), list[tuple[int, ...]]()
    for file in files():
        try:
            with borrowed(file) as connection:
                if connection.getsockname()[1] == port and connection.getpeername():
                    options.append(
                        (
                            connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                            connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
                            connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
                        )
                    )
        except (OSError, IndexError):
            continue
    running.stop()
    assert options == [(1, KEEPALIVE_SECONDS, LOST_SECONDS * 1000)]


LOST_HOST = """
import subprocess, sys, time
from dataclasses import replace
from nnpa_server.config import Limits
from nnpa_server.rpc import sockets
from tests.server.conftest import CONFIG, Running
from tests.server.process import wait_until
from tests.server.sessions.test_leases import Holder, sessions

subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
sockets.KEEPALIVE_SECONDS, sockets._PROBE_SECONDS, sockets.LOST_SECONDS = 1, 1, 2
running = Running(replace(CONFIG, limits=Limits(lease_grace=1.0)))
client = Holder(running.address)
time.sleep(4)
assert sessions(running) == 1, "a host that is there answers"
subprocess.run(["ip", "link", "set", "lo", "down"], check=True)
wait_until(lambda: sessions(running) == 0)
print("found")
"""


@pytest.mark.heavy
@pytest.mark.skipif(
    subprocess.run(
        ["unshare", "-Urn", "ip", "link", "set", "lo", "up"], capture_output=True, check=False
    ).returncode
    != 0,
    reason="needs a network of its own: unshare and ip",
)
def test_a_lost_host_is_found() -> None:
    """A session ends when its client's host stops answering without closing the connection."""
    answer = subprocess.run(
        ["unshare", "-Urn", sys.executable, "-c", LOST_HOST],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert answer.stdout == "found\n", answer.stderr[-2000:]
