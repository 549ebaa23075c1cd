# SPDX-License-Identifier: Apache-2.0
"""Models are compiled in workers: the same programs, and nothing that a model does is felt."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from nnpa.network.v1 import network_pb2 as pb
from nnpa.oip import open_inference_grpc_pb2 as oip
from nnpa.oip.open_inference_grpc_pb2_grpc import GRPCInferenceServiceStub
from nnpa_emulator import Guest, find_machine
from nnpa_network.importing.onnx_import import ImportOptions
from nnpa_network.importing.onnx_plan import OnnxPlan
from nnpa_network.program import ModelRefused
from nnpa_network.shortcuts import SHORTCUTS
from nnpa_server.app import Server
from nnpa_server.config import Limits
from nnpa_server.network import Pools, make_pools
from nnpa_server.network.compiling import Compiler, decode_job
from nnpa_server.network.worker_executor import WorkerExecutor
from nnpa_server.network.worker_plan import WorkerPlan
from nnpa_server.network.workers import Workers, make_workers
from nnpa_server.sandbox import confinement
from nnpa_server.sandbox.confinement import NotConfined
from nnpa_server.sandbox.failures import Why, WorkerFailed
from nnpa_server.sandbox.frames import Message
from nnpa_server.sandbox.pool import Owner
from nnpa_server.sandbox.process import JobLimits, allow
from onnx import ModelProto, TensorProto, helper

from tests.network import small_models
from tests.server.conftest import CONFIG, Running
from tests.server.network.service_client import Client
from tests.server.wire import refused

pytestmark = pytest.mark.skipif(not confinement.is_linux(), reason="workers are Linux processes")
ROOM = Limits(max_sessions=12, max_session_bytes=256 << 20, max_session_tensors=50)


def bomb(elements: int = 64 << 20) -> bytes:
    """Return a model of 164 bytes whose shape inference takes gigabytes and many seconds."""
    body = f"""<ir_version: 8, opset_import: ["" : 17]>
        bomb () => (float[1] y) <int64[1] n = {{{elements}}}> {{
            ones = ConstantOfShape <value = int64[1] {{1}}> (n)
            twos = Add (ones, ones)
            sum = ReduceSum <keepdims = 1> (twos)
            y = Cast <to = 1> (sum)
        }}"""
    return _parsed(body)


def looped_bomb() -> bytes:
    """Return the same inside of a Loop's body."""
    body = """<ir_version: 8, opset_import: ["" : 17]>
        bomb (bool go, int64[1] start) => (int64[1] y) <int64 trips = {2}> {
            y = Loop <body = step (int64 i, bool on, int64[1] x) => (bool still, int64[1] z)
                <int64[1] n = {67108864}> {
                    still = Identity (on)
                    ones = ConstantOfShape <value = int64[1] {1}> (n)
                    twos = Add (ones, ones)
                    sum = ReduceSum <keepdims = 1> (twos)
                    z = Add (x, sum)
            }> (trips, go, start)
        }"""
    return _parsed(body)


def _parsed(text: str) -> bytes:
    from onnx import parser

    model: ModelProto = parser.parse_model(text)
    return model.SerializeToString()


def slow() -> ModelProto:
    """Return a model that takes long to compile, in little memory."""
    nodes = [helper.make_node("Identity", ["x"], ["v0"], "n0")]
    nodes += [helper.make_node("Add", [f"v{i}", f"v{i}"], [f"v{i + 1}"]) for i in range(30_000)]
    ends = ("x", np.float32, (1, 4)), ("v30000", np.float32, (1, 4))
    return small_models.model(nodes, [ends[0]], [ends[1]])


@pytest.fixture(scope="module")
def pools() -> Iterator[Pools]:
    """Workers of the module."""
    workers = make_pools("auto")
    assert workers is not None
    yield workers
    workers.close()


@pytest.fixture(scope="module")
def workers(pools: Pools) -> Workers:
    """Workers without a session."""
    return make_workers(pools)


@pytest.fixture
def server() -> Iterator[Running]:
    """A server whose sessions have room for a worker."""
    running = Running(replace(CONFIG, limits=ROOM))
    yield running
    running.stop()


class Bystander:
    """Asks for health all the time, and remembers the longest wait."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._stub = health_pb2_grpc.HealthStub(channel)
        self._ended = threading.Event()
        self.longest = 0.0
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> "Bystander":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self._ended.wait(0.01):
            began = time.monotonic()
            self._stub.Check(health_pb2.HealthCheckRequest(), timeout=30)
            self.longest = max(self.longest, time.monotonic() - began)


def resident() -> int:
    """Return the resident bytes of this process, which the server runs in."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("data", [bomb(), looped_bomb()], ids=["plain", "looped"])
def test_a_bomb_is_felt_by_nobody(server: Running, data: bytes) -> None:
    """A model of few bytes that takes gigabytes is refused, and health answers meanwhile."""
    assert len(data) < 400
    client, before = Client(server.channel), resident()
    invalid = refused(grpc.StatusCode.INVALID_ARGUMENT, "MODEL_INVALID")
    with Bystander(server.channel) as bystander, invalid:
        client.stub.CreateNetwork(client.upload(data), timeout=60)
    assert bystander.longest < 2
    assert resident() - before < 256 << 20
    client.close()


def test_a_bomb_is_not_published(server: Running) -> None:
    """The same through the repository of models."""
    stub, before = GRPCInferenceServiceStub(server.channel), resident()
    request = oip.RepositoryModelLoadRequest(model_name="bomb")
    request.parameters["config"].string_param = "{}"
    request.parameters["file:1/model.onnx"].bytes_param = bomb(1 << 30)
    invalid = refused(grpc.StatusCode.INVALID_ARGUMENT, "MODEL_INVALID")
    with Bystander(server.channel) as bystander, invalid:
        stub.RepositoryModelLoad(request, timeout=60)
    assert bystander.longest < 2
    assert resident() - before < 256 << 20


def test_owners_draw_numbers_of_their_own(pools: Pools) -> None:
    """Nodes without a seed draw other numbers in each worker, though all are forked alike."""
    model = _parsed("""<ir_version: 8, opset_import: ["" : 17]>
        noise (float[1, 8] x) => (float[1, 8] y) { r = RandomNormalLike (x) y = Add (r, r) }""")
    feeds, drawn = {"x": np.zeros((1, 8), np.float32)}, set[bytes]()
    for _ in range(3):
        workers = make_workers(pools)
        here = OnnxPlan(model, Guest(find_machine("telum2"))).executor({})
        in_worker = WorkerExecutor(here.program, Guest(find_machine("telum2")), SHORTCUTS, workers)
        drawn.add(in_worker.run(feeds).outputs["y"].tobytes())
        workers.close()
    assert len(drawn) == 3


def leased(server: Running) -> set[int]:
    """Return the process ids of workers that have owners."""
    assert server.server.pools is not None
    pool = server.server.pools.compilers
    return {worker.pid for worker in getattr(pool, "_leased")}  # noqa: B009


def await_none(pids: set[int]) -> bool:
    """Wait until processes have ended; tell whether they have."""
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.01)
    return False


def await_fork_server(server: Running) -> None:
    """Wait until a worker for the next model can be had at once."""
    assert server.server.pools is not None
    server.server.pools.compilers.warm_up().result(30)


def begin_slow(
    server: Running, client: Client, timeout: float
) -> tuple[set[int], "grpc.Future[pb.CreateNetworkResponse]"]:
    """Begin to create a network that takes long; return its worker, and the call."""
    await_fork_server(server)
    call = client.stub.CreateNetwork.future(client.upload(slow().SerializeToString()),
                                            timeout=timeout)  # fmt: skip
    deadline = time.monotonic() + 20
    while not leased(server) and time.monotonic() < deadline:
        time.sleep(0.01)
    return leased(server), call


@pytest.mark.heavy
def test_a_deadline_ends_the_worker(server: Running) -> None:
    """A client that does not wait any more leaves no job behind."""
    client = Client(server.channel)
    pids, call = begin_slow(server, client, timeout=1.5)
    assert pids
    with pytest.raises(grpc.RpcError) as error:
        call.result()
    assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert await_none(pids)
    client.close()


def test_the_end_of_a_session_ends_its_worker(server: Running) -> None:
    """DeleteSession kills what compiles, and disturbs no other session."""
    client, bystander = Client(server.channel), Client(server.channel)
    pids, call = begin_slow(server, client, timeout=60)
    assert pids
    client.close()
    with refused(grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND"):
        call.result(timeout=5)
    assert await_none(pids)
    assert bystander.create(small_models.dense()).network.name
    bystander.close()


def test_the_end_of_the_server_ends_its_workers() -> None:
    """A drain waits for its time, then no worker is left."""
    server = Running(replace(CONFIG, limits=ROOM, drain_timeout=0.2))
    client = Client(server.channel)
    pids, call = begin_slow(server, client, timeout=60)
    began = time.monotonic()
    server.server.drain()
    assert time.monotonic() - began < 2
    assert await_none(pids)
    with pytest.raises(grpc.RpcError) as error:
        call.result(timeout=5)
    assert error.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    server.channel.close()


def test_sessions_do_not_share_workers(server: Running) -> None:
    """Each session has a process of its own."""
    clients = [Client(server.channel) for _ in range(2)]
    pids = set[int]()
    for client in clients:
        assert client.create(small_models.dense()).network.name
        assert leased(server) - pids
        pids |= leased(server)
    assert len(pids) == 2
    for client in clients:
        client.close()
    assert await_none(leased(server))


class TakenOver(Owner):
    """A worker whose answers are changed by `change`; it runs nothing."""

    def __init__(self, change: Callable[[Message], Message]) -> None:
        self._change, self._compiler = change, Compiler()
        self.closed = 0

    def run(self, job: Message, limits: JobLimits) -> Message:
        """Return a changed answer; raise `WorkerFailed` for a program."""
        del limits
        if decode_job(job.text)[0] == "load":
            raise WorkerFailed(Why.ENDED, "it runs nothing")
        return self._change(self._compiler(job))

    def close(self) -> None:
        """Count how often the server ended the worker."""
        self.closed += 1


def _without_arrays(message: Message) -> Message:
    return Message(message.text)


def _of_other_shapes(message: Message) -> Message:
    return Message(message.text, tuple(array.reshape(-1)[:-1] for array in message.arrays))


def _of_other_types(message: Message) -> Message:
    return Message(message.text, tuple(array.astype(np.float64) for array in message.arrays))


def _of_another_model(message: Message) -> Message:
    """Rename the input in programs, not in facts."""
    return Message(message.text.replace(b"x", b"q"), message.arrays) if message.arrays else message


CHANGES: dict[str, Callable[[Message], Message]] = {
    "silence": lambda _: Message(b""),
    "garbage": lambda _: Message(b"\x00" + b"\xff" * 99),
    "no refusal": lambda _: Message(b"\x01{"),
    "deep refusal": lambda _: Message(b"\x01" + b"[" * 100_000),
    "long refusal": lambda _: Message(b'\x01{"reason": "' + b"x" * 7000 + b'", "node": 5}'),
    "no arrays": _without_arrays,
    "other shapes": _of_other_shapes,
    "other types": _of_other_types,
    "another model": _of_another_model,
}


def with_numbers() -> bytes:
    """Return a model with weights as they lie in memory, and one as variable-length numbers."""
    model = small_models.dense()
    numbers = helper.make_tensor("numbers", TensorProto.INT64, [3], [1000, 2000, 3000])
    model.graph.initializer.append(numbers)
    return model.SerializeToString()


def use(owner: Owner) -> None:
    """Import a model, compile it, and read its weights."""
    data = with_numbers()
    workers = Workers(owner, owner, allow, lambda: 1 << 30)
    plan = WorkerPlan(data, Guest(find_machine("telum1")), ImportOptions(), workers)
    plan.executor({})
    plan.weights()


@pytest.mark.parametrize(
    ("name", "honest"),
    [
        (name, honest)
        for name in CHANGES
        for honest in range(3)
        if (name, honest) != ("another model", 2)  # weights name no input
    ],
)
def test_a_worker_that_was_taken_over(name: str, honest: int) -> None:
    """Every changed answer, at every step, refuses the model with a bounded text."""
    answers = 0

    def change(message: Message) -> Message:
        nonlocal answers
        answers += 1
        return message if answers <= honest else CHANGES[name](message)

    with pytest.raises(ModelRefused) as error:
        use(TakenOver(change))
    assert len(error.value.reason) <= 1000


def test_no_changed_byte_is_an_error_of_ours() -> None:
    """A program with any changed byte is taken or refused, and nothing else."""
    rng = np.random.default_rng(3)
    refusals = 0
    for _ in range(300):
        place, byte = int(rng.integers(1 << 16)), int(rng.integers(256))

        def change(message: Message, at: int = place, byte: int = byte) -> Message:
            text = bytearray(message.text)
            text[1 + at % (len(text) - 1)] = byte
            return Message(bytes(text), message.arrays)

        try:
            use(TakenOver(change))
        except ModelRefused:
            refusals += 1
    assert refusals > 30


def test_a_server_that_requires_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--sandbox require` does not start on a kernel without Landlock; `auto` says it once."""
    monkeypatch.setattr(confinement, "missing", lambda: ("Landlock",))
    with pytest.raises(NotConfined, match="the kernel lacks Landlock"):
        Server(replace(CONFIG, sandbox="require"))
    assert make_pools("off") is None


def test_without_a_sandbox(caplog: pytest.LogCaptureFixture) -> None:
    """`--sandbox off` compiles in the server's process."""
    running = Running(replace(CONFIG, sandbox="off"))
    try:
        assert running.server.pools is None
        client = Client(running.channel)
        assert client.create(small_models.dense()).network.name
        client.close()
    finally:
        running.stop()
    assert "worker" not in caplog.text
