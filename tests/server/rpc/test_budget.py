# SPDX-License-Identifier: Apache-2.0
"""Bytes under way: bounded for one caller and for all, whatever becomes of a call."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import grpc
import numpy as np
import pytest
from click.testing import CliRunner
from google.protobuf.message import Message
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1.accelerator_pb2_grpc import AcceleratorServiceStub
from nnpa_server.__main__ import main
from nnpa_server.config import MAX_RESPONSE, Limits
from nnpa_server.errors import CallRefused
from nnpa_server.rpc.admission import AdmittingPool
from nnpa_server.rpc.budget import CALL_BYTES, Account, Budget, UnderWay
from nnpa_server.rpc.callers import connection_of, name_of
from nnpa_server.sessions.cancellation import CallContext

from tests.hostile.http2 import Connection
from tests.server.conftest import CONFIG, LIMITS, Running
from tests.server.onnx_models import binary, offering
from tests.server.onnx_models import request as inference
from tests.server.plain import Plain, frame
from tests.server.process import PATIENCE, wait_until
from tests.server.wire import load, op, refused

MIB = 1 << 20
BUDGET = 64 * MIB
SMALL = replace(LIMITS, max_message=8 * MIB, max_bytes_under_way=BUDGET, max_session_bytes=32 * MIB)
EXECUTE = "/nnpa.zdnn.v1.AcceleratorService/Execute"
INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/nnpa.zdnn.v1.AcceleratorService/ExecuteStream"
REFLECT = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
PROMPT = 2.0  # seconds that a bystander's call may take
ARRAY = np.zeros((1, 1, 512, 512), np.float32)  # 1 MiB
READ_BACK = op("transform_origtensor", ztensor=1)
Start = Callable[..., Running]


@pytest.fixture
def start() -> Iterator[Start]:
    """A function that starts a server with a small budget."""
    servers: list[Running] = []

    def run(**settings: Any) -> Running:
        settings.setdefault("limits", SMALL)
        servers.append(Running(replace(CONFIG, **settings)))
        return servers[-1]

    yield run
    for server in servers:
        server.stop()


def held(server: Running) -> int:
    """Return the bytes that a server counts as under way."""
    return server.server.under_way.budget.held


def public_budget(server: Running) -> Budget:
    """Return the budget of calls without tokens."""
    budget: Budget = vars(vars(server.server.interceptor)["_public"])["_under_way"].budget
    return budget


def list_machines(server: Running) -> float:
    """Make a bystander's call; return its seconds."""
    started = time.monotonic()
    AcceleratorServiceStub(server.channel).ListMachines(pb.ListMachinesRequest(), timeout=PATIENCE)
    return time.monotonic() - started


def is_waiting(budget: Budget, count: int) -> bool:
    """Tell whether exactly `count` calls wait for room."""
    return budget.count_waiting() == count


def test_the_newest_call_that_waits_is_first() -> None:
    """Room that is given back goes to the newest call that fits, and then to older ones."""
    budget, order = Budget(40), list[str]()
    for caller in "abc":
        assert budget.take(caller, 10)

    def wait(caller: str) -> None:
        assert budget.take(caller, 10)
        order.append(caller)

    with ThreadPoolExecutor() as pool:
        for count, caller in enumerate(("old", "new"), 1):
            pool.submit(wait, caller)
            wait_until(partial(is_waiting, budget, count))
        budget.give("a", 10)
        wait_until(lambda: order == ["new"])
        budget.give("b", 10)
        wait_until(lambda: order == ["new", "old"])


def test_one_caller_has_half() -> None:
    """One caller has half of a budget at most, and later callers find room."""
    budget = Budget(96)
    reserved = 0
    while budget.take("greedy", 8, waits=False):
        reserved += 8
    assert reserved == 48
    assert budget.take("modest", 16, waits=False)
    for number in range(40):
        assert budget.take(f"newcomer {number}", 0, waits=False)
    budget.give("greedy", reserved)
    budget.give("modest", 16)
    assert budget.held == 0


def test_a_lasting_stream_leaves_room() -> None:
    """A lasting stream leaves room for other calls of its caller."""
    budget = Budget(96)
    while budget.take("caller", 8, lasts=True, waits=False):
        pass
    assert budget.take("caller", 8, waits=False)


@pytest.mark.heavy
def test_a_call_waits_for_room() -> None:
    """A call without room waits until others give theirs back, and else is refused."""
    under_way, context = UnderWay(96, 1, PATIENCE), cast("CallContext", object())
    first, second = (Account(under_way, "a", context) for _ in range(2))
    first.receive(48)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.receive, 24)
        time.sleep(0.05)
        assert not waiting.done()
        first.receive(0)
        waiting.result(PATIENCE)
    with pytest.raises(CallRefused, match="max_bytes_under_way is 96") as caught:
        first.receive(48)
    assert caught.value.name == "CALL_QUOTA_EXCEEDED"
    with pytest.raises(CallRefused, match="one caller has half at most") as caught:
        first.receive(49)
    assert caught.value.name == "RESPONSE_TOO_LARGE"
    under_way.close()


def test_names_of_callers() -> None:
    """A caller is its token's holder, without tokens its connection, or process on a socket."""

    class Connected:
        def peer(self) -> str:
            return "ipv4:127.0.0.1:4711"

    connected: Any = Connected()
    assert name_of("alice", connection_of(connected)) == "token alice"
    assert name_of("", connection_of(connected)) == "ipv4:127.0.0.1:4711"
    connected.process = "process 42"
    assert name_of("", connection_of(connected)) == "process 42"


def untaken_lists(server: Running, calls: int) -> Connection:
    """Ask for arrays of a mebibyte over a connection that takes none."""
    client = server.client()
    client.run(*load(1, ARRAY))
    message = client.request(READ_BACK).SerializeToString()
    connection = Connection(server.address, window=0)
    for _ in range(calls):
        connection.ask(EXECUTE, message)
    return connection


def test_answers_that_nobody_takes(start: Start) -> None:
    """Untaken answers take half of the budget at most, and end when their time is over."""
    server = start(message_timeout=1.5)
    connection = untaken_lists(server, 100)
    wait_until(lambda: held(server) > BUDGET // 3)
    assert held(server) <= BUDGET // 2 + SMALL.max_message
    assert list_machines(server) < PROMPT
    wait_until(lambda: held(server) < MIB)  # at most what the calls themselves take
    assert connection.is_open, "a call is cut off, not its connection"
    connection.close()
    wait_until(lambda: held(server) == 0)


def test_an_answer_that_is_taken_leaves_nothing(start: Start) -> None:
    """A call that has ended counts nothing."""
    server = start()
    client = server.client()
    client.run(*load(1, ARRAY))
    for _ in range(50):
        client.run(READ_BACK)
    wait_until(lambda: held(server) == 0)


@pytest.mark.heavy
def test_an_answer_that_finds_no_room(start: Start) -> None:
    """A list whose answer finds no room is refused with the flag, and the next one runs."""
    server = start(limits=replace(SMALL, max_message=MIB, max_bytes_under_way=4 * MIB))
    client = server.client()
    tensor = np.zeros((1, 1, 64, 64), np.float32)
    client.run(*load(1, tensor))
    budget = server.server.under_way.budget
    assert budget.take("others", 2 * MIB - CALL_BYTES)
    assert budget.take("more", MIB - 2 * CALL_BYTES)
    code, field = grpc.StatusCode.RESOURCE_EXHAUSTED, "max_bytes_under_way"
    with refused(code, "CALL_QUOTA_EXCEEDED", field=field, limit=4 * MIB):
        client.run(READ_BACK)
    budget.give("others", 2 * MIB - CALL_BYTES)
    budget.give("more", MIB - 2 * CALL_BYTES)
    client.run(READ_BACK)


def send_endless(address: str, path: str, calls: int, size: int = 8 * MIB) -> ExitStack:
    """Begin messages that do not end, each over a connection of its own."""
    stack = ExitStack()
    head = b"\x00" + (size - 1).to_bytes(4, "big")

    def send(connection: Connection) -> None:
        connection.data(connection.begin(path), head + bytes(size // 2))

    opened = [Connection(address) for _ in range(calls)]
    threads = [threading.Thread(target=send, args=(each,), daemon=True) for each in opened]
    for thread, connection in zip(threads, opened, strict=True):
        thread.start()
        stack.callback(connection.close)
    return stack


@pytest.mark.heavy
@pytest.mark.parametrize("path", [EXECUTE, STREAM])
def test_messages_that_do_not_end(start: Start, path: str) -> None:
    """A message gets room before it is read; other calls run, and the room is given back."""
    server = start(message_timeout=3.0)
    with send_endless(server.address, path, 16):
        wait_until(lambda: held(server) >= SMALL.max_message)
        for _ in range(5):
            assert list_machines(server) < PROMPT
            assert held(server) <= BUDGET
    wait_until(lambda: held(server) == 0)


def test_a_frame_that_does_not_end(tmp_path: Path) -> None:
    """A plain socket counts a message before there is memory for it, and none while it waits."""
    server = Running(replace(CONFIG, limits=SMALL, listen=(f"unix:{tmp_path}/s",)))
    try:
        with ExitStack() as stack:
            for _ in range(8):
                plain = stack.enter_context(Plain(tmp_path / "s.plain", ""))
                plain.socket.sendall(frame(0, bytes(8 * MIB))[:100_000])
            wait_until(lambda: held(server) >= 4 * 8 * MIB)
            assert held(server) <= BUDGET // 2
        wait_until(lambda: held(server) == 0)
        with Plain(tmp_path / "s.plain", ""):
            time.sleep(0.2)
            assert held(server) == 0
    finally:
        server.stop()


@pytest.mark.heavy
def test_inferences_that_are_not_taken() -> None:
    """Untaken answers and endless messages of inferences have their room, and an end."""
    settings: Any = {"message_timeout": 5.0}
    row = np.zeros((1 << 10, 256), np.float32)
    with offering({"add": binary("Add", (1 << 10, 256))}, **settings) as (server, caller):
        caller.infer("add", x=row, y=row)
        connection = Connection(server.address, window=0)
        message: Message = inference("add", x=row, y=row)
        raw = message.SerializeToString()
        for _ in range(4):
            stream = connection.begin(INFER)
            connection.data(stream, b"\x00" + len(raw).to_bytes(4, "big") + raw)
        wait_until(lambda: held(server) > 2 * MIB)
        wait_until(lambda: held(server) < MIB)
        assert connection.is_open
        connection.close()
        with send_endless(server.address, INFER, 16):
            wait_until(lambda: held(server) >= 8 * server.server.config.limits.max_message)
            assert list_machines(server) < PROMPT
        wait_until(lambda: held(server) == 0)


@pytest.mark.heavy
def test_reflection_has_a_budget_of_its_own(start: Start) -> None:
    """Calls of reflection that take no answer take none of others' room, and end."""
    server = start(message_timeout=1.0)
    budget = public_budget(server)
    connection = Connection(server.address, window=0)
    for _ in range(900):
        connection.ask(REFLECT, b"\x3a\x00")
    wait_until(lambda: budget.held > 100 * CALL_BYTES)
    assert budget.held <= budget.limit // 2
    assert held(server) == 0
    assert list_machines(server) < PROMPT
    wait_until(lambda: budget.held < 100 * CALL_BYTES)
    assert connection.is_open
    connection.close()
    wait_until(lambda: budget.held == 0)


def test_the_default_budget() -> None:
    """The default budget has room for one caller's largest answer."""
    assert Budget(Limits().max_bytes_under_way).take("caller", 2 * MAX_RESPONSE, waits=False)


def test_a_budget_too_small() -> None:
    """A budget below four of the largest messages is refused, and the error says the minimum."""
    flags = ("--max-message", "8MiB", "--max-bytes-under-way", "31MiB", "--compile-kernels")
    ended = CliRunner().invoke(main, flags)
    assert ended.exit_code == 2
    assert f"must be at least {32 * MIB}: 4 times --max-message" in ended.output


@pytest.mark.heavy
def test_conversations_leave_room(start: Start) -> None:
    """One conversation too many is refused, and its client makes unary calls."""
    server = start()
    client = server.client()
    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    with ExitStack() as stack:
        ended = threading.Event()
        stack.callback(ended.set)
        request = client.request(op("init"))

        def lists() -> Iterator[pb.ExecuteRequest]:
            yield request
            ended.wait(PATIENCE)

        for _ in range(2):
            call = client.stub.ExecuteStream(lists())
            stack.callback(call.cancel)
            next(iter(call))
        with refused(code, "CALL_QUOTA_EXCEEDED", field="max_conversations"):
            list(client.stub.ExecuteStream(lists()))
        client.run(op("init"))


def test_calls_that_wait_for_a_thread() -> None:
    """Of calls that wait, each caller has its part; one too many is cut off and costs nothing."""

    class Calls:
        def __init__(self, peer: str) -> None:
            self.call_details, self.name, self.cancelled = self, peer, 0
            self.call, self.method, self.invocation_metadata = self, b"", ()

        def peer(self) -> bytes:
            return self.name.encode()

        def cancel(self) -> None:
            self.cancelled += 1

    budget, finish = Budget(16 * CALL_BYTES), threading.Event()
    pool = AdmittingPool(1, "test", budget, CALL_BYTES)
    greedy, modest = Calls("greedy"), Calls("modest")

    def wait(_call: Calls) -> bool:
        return finish.wait(PATIENCE)

    pool.submit(wait, Calls("running"))
    waiting = [pool.submit(Calls.peer, greedy) for _ in range(20)]
    modest_call = pool.submit(Calls.peer, modest)
    assert greedy.cancelled == sum(call.cancelled() for call in waiting) == 12
    assert modest.cancelled == 0
    finish.set()
    assert modest_call.result(PATIENCE) == b"modest"
    wait_until(lambda: budget.held == 0)
    pool.shutdown()


def test_bytes_given_back_at_once_wake_all_calls_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where bytes given back have room for two waiting calls, both get theirs at once."""
    monkeypatch.setattr("nnpa_server.rpc.budget._WAIT", 30.0)
    budget = Budget(100)
    assert budget.take("a", 50)
    assert budget.take("b", 25)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(budget.take, caller, 15) for caller in ("c", "d")]
        wait_until(lambda: budget.count_waiting() == 2)
        budget.give("a", 50)
        assert [each.result(10) for each in waiting] == [True, True]
    assert budget.held == 25 + 2 * 15
