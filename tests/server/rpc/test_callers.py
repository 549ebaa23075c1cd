# SPDX-License-Identifier: Apache-2.0
"""Pools that callers share: a greedy caller leaves room for other callers."""

import hashlib
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from nnpa.oip import open_inference_grpc_pb2 as oip
from nnpa.oip import open_inference_grpc_pb2_grpc as oip_grpc
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1.accelerator_pb2_grpc import AcceleratorServiceStub
from nnpa.zdnn.v1.fault_pb2 import FaultDelay, FaultRule
from nnpa_server.config import Limits
from nnpa_server.errors import CallRefused
from nnpa_server.rpc.callers import Shares
from nnpa_server.rpc.public_calls import MAX_WATCHES

from tests.server.conftest import CONFIG, OPTIONS, Running
from tests.server.plain import Plain
from tests.server.process import PATIENCE
from tests.server.wire import init, op, refused

CODE, BUSY = grpc.StatusCode, grpc.StatusCode.RESOURCE_EXHAUSTED
REFUSED = BUSY, "CALL_QUOTA_EXCEEDED"
ALICE, BOB = (((("authorization", f"Bearer {name}"),)) for name in ("alice", "bob"))
LIMITS = Limits(max_sessions=32, max_message=1 << 20)
PROMPT = 3.0  # seconds that a modest caller's call may take
SLOW = 8.0  # seconds that a greedy caller's call takes
Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A function that starts a server of four workers, with tokens of Alice and Bob if asked."""
    servers: list[Running] = []

    def run(*, tokens: bool = False, **settings: Any) -> Running:
        if tokens:
            settings["tokens"] = tmp_path / "tokens.toml"
            digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("alice", "bob")}
            settings["tokens"].write_text(
                "".join(f'[tokens.{name}]\nsha256 = "{hash_}"\n' for name, hash_ in digests.items())
            )
        servers.append(Running(replace(CONFIG, workers=4, limits=LIMITS, **settings)))
        return servers[-1]

    yield run
    for server in servers:
        server.stop()


@contextmanager
def connected(address: str) -> Generator[Any]:  # bytes travel as they are, unlike in the stubs
    """Open a connection of its own."""
    options = (*OPTIONS, ("grpc.use_local_subchannel_pool", 1))
    with grpc.insecure_channel(address, options) as channel:
        yield channel


def converse(stub: Any, session: str, opened: ExitStack, metadata: Any) -> Any:
    """Begin a conversation in a session, and return its first answer; it stays open."""
    ended = threading.Event()
    opened.callback(ended.set)

    def lists() -> Iterator[pb.ExecuteRequest]:
        yield pb.ExecuteRequest(session=session)
        ended.wait(PATIENCE)

    call = stub.ExecuteStream(lists(), metadata=metadata)
    opened.callback(call.cancel)
    return next(iter(call))


def test_shares_leave_room_for_others() -> None:
    """One caller gets half of a pool, two a third each; released places go to other callers.

    Callers that have nothing are forgotten.
    """
    shares = Shares("max_things", 12, "things")
    assert [shares.try_take("greedy") for _ in range(7)] == [True] * 6 + [False]
    assert [shares.try_take("modest") for _ in range(4)] == [True] * 3 + [False]
    assert [shares.try_take("late") for _ in range(3)] == [True] * 2 + [False]
    for _ in range(6):
        shares.give("greedy")
    assert [shares.try_take("late") for _ in range(4)] == [True] * 3 + [False]
    with pytest.raises(CallRefused, match=r"^max_things: 5 of 12 things are this caller's, which"):
        shares.take("late")
    for caller, count in (("modest", 3), ("late", 5)):
        for _ in range(count):
            shares.give(caller)
    for number in range(20):
        shares.try_take(f"caller {number}")
    assert len(vars(shares)["_taken"]) == 12


def test_all_connections_of_a_unix_socket_have_the_whole_pool() -> None:
    """Callers that cannot be told apart are bounded by the pool alone."""
    shares = Shares("max_things", 4, "things")
    assert [shares.try_take("unix:") for _ in range(5)] == [True] * 4 + [False]
    with pytest.raises(CallRefused, match="max_things is 4, and 4 things are taken"):
        shares.take("another")


@pytest.mark.parametrize("tokens", [True, False], ids=["tokens", "connections"])
def test_conversations_have_shares(start: Start, tokens: bool) -> None:
    """A caller that opens conversations until it is refused leaves others theirs."""
    server = start(tokens=tokens)
    alice, bob = (ALICE, BOB) if tokens else ((), ())
    with ExitStack() as opened:
        greedy, modest = (
            AcceleratorServiceStub(opened.enter_context(connected(server.address)))
            for _ in range(2)
        )
        session = greedy.CreateSession(pb.CreateSessionRequest(), metadata=alice).name
        count = 0
        with refused(*REFUSED, field="max_conversations"):
            while True:
                converse(greedy, session, opened, alice)
                count += 1
        assert count == 16  # one for each session of four times the workers
        session = modest.CreateSession(pb.CreateSessionRequest(), metadata=bob).name
        for _ in range(4):
            converse(modest, session, opened, bob)


CONVERSE = """
import sys
from pathlib import Path
from tests.server.plain import Plain
from nnpa.zdnn.v1 import accelerator_pb2 as pb
with Plain(Path(sys.argv[1])) as plain:
    plain.ask(pb.ExecuteRequest(session=sys.argv[2]))
"""


def test_plain_sockets_have_shares(start: Start, tmp_path: Path) -> None:
    """The silent plain sockets of one process leave room for another process."""
    path = tmp_path / "nnpa.sock"
    server = start(listen=(f"unix:{path}",))
    session = server.client().session
    plain = path.with_name("nnpa.sock.plain")
    with ExitStack() as opened:
        for _ in range(128):
            opened.enter_context(Plain(plain, begin=False))
        asking = [sys.executable, "-c", CONVERSE, str(plain), session]
        subprocess.run(asking, check=True, timeout=PATIENCE, env=os.environ)


def test_calls_have_shares(start: Start) -> None:
    """Slow calls of one caller, in many sessions, leave threads for another one's calls."""
    server = start(tokens=True, allow_faults=True)
    rule = FaultRule(operation="init", delay=FaultDelay(seconds=SLOW))
    options = pb.Session(fault_rules=[rule])
    with ExitStack() as opened:
        greedy, modest = (
            AcceleratorServiceStub(opened.enter_context(connected(server.address)))
            for _ in range(2)
        )
        create = pb.CreateSessionRequest(session=options)
        names = [greedy.CreateSession(create, metadata=ALICE).name for _ in range(28)]
        calls = [
            greedy.Execute.future(
                pb.ExecuteRequest(session=name, operations=[op("init")]), metadata=ALICE
            )
            for name in names
        ]
        session = modest.CreateSession(pb.CreateSessionRequest(), metadata=BOB, timeout=PROMPT).name
        run = pb.ExecuteRequest(session=session, operations=init(1, 4))
        modest.Execute(run, metadata=BOB, timeout=PROMPT)
        for call in calls:
            call.cancel()


def test_a_callers_calls_wait_for_its_threads(start: Start) -> None:
    """More calls than a caller has threads wait, and all of them are answered."""
    server = start(allow_faults=True)
    rule = FaultRule(operation="init", delay=FaultDelay(seconds=0.2))
    options = pb.Session(fault_rules=[rule])
    sessions = [server.client().open_session(options) for _ in range(14)]
    calls = [each.stub.Execute.future(each.request(op("init"))) for each in sessions]
    assert [call.exception(PATIENCE) for call in calls] == [None] * len(calls)


@contextmanager
def shared_object() -> Generator[str]:
    """Give the name of an object of shared memory of 64 bytes, Alice's or Bob's."""
    name = f"nnpa-test-{secrets.token_hex(6)}"
    paths = [Path(f"/dev/shm/{owner}{name}") for owner in ("alice.", "bob.", "")]
    for path in paths:
        path.write_bytes(bytes(64))
    try:
        yield name
    finally:
        for path in paths:
            path.unlink()


@pytest.mark.parametrize("tokens", [True, False], ids=["tokens", "connections"])
def test_regions_have_shares(start: Start, monkeypatch: pytest.MonkeyPatch, tokens: bool) -> None:
    """A caller may register half of the regions; another caller can still register its own."""
    monkeypatch.setattr("nnpa_server.config.MAX_REGIONS", 16)
    server = start(tokens=tokens, shared_memory=True, shared_memory_over_tcp=True)
    with ExitStack() as opened:
        name = opened.enter_context(shared_object())
        greedy, modest = (
            oip_grpc.GRPCInferenceServiceStub(opened.enter_context(connected(server.address)))
            for _ in range(2)
        )

        def register(stub: Any, owner: str, number: int) -> None:
            key = f"{owner}.{name}" if tokens else name
            request = oip.SystemSharedMemoryRegisterRequest(
                name=f"r{number}", key=key, byte_size=64
            )
            metadata = (("authorization", f"Bearer {owner}"),) if tokens else ()
            stub.SystemSharedMemoryRegister(request, metadata=metadata)

        with refused(BUSY, "MODEL_QUOTA_EXCEEDED", field="max_regions", value=9, limit=8):
            for number in range(32):
                register(greedy, "alice", number)
        register(modest, "bob", 0)
        metadata = ALICE if tokens else ()
        greedy.SystemSharedMemoryUnregister(
            oip.SystemSharedMemoryUnregisterRequest(), metadata=metadata
        )
        for number in range(7):
            register(greedy, "alice", number)


def test_watches_have_shares(start: Start) -> None:
    """One connection may have half of the streams of Health.Watch."""
    server = start()
    with ExitStack() as opened:
        greedy, modest = (
            health_pb2_grpc.HealthStub(opened.enter_context(connected(server.address)))
            for _ in range(2)
        )

        def watch(stub: Any) -> None:
            call = stub.Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE)
            opened.callback(call.cancel)
            next(iter(call))

        for _ in range(MAX_WATCHES // 2):
            watch(greedy)
        with pytest.raises(grpc.RpcError, match="32 of 64 streams are this caller's"):
            watch(greedy)
        watch(modest)
