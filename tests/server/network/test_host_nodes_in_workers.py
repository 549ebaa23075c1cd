# SPDX-License-Identifier: Apache-2.0
"""Programs with nodes that only the host can run go whole to a worker: the same, and bounded."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import grpc
import numpy as np
import pytest
from nnpa.network.v1 import network_pb2 as pb
from nnpa.oip import open_inference_grpc_pb2 as oip
from nnpa.oip.open_inference_grpc_pb2_grpc import GRPCInferenceServiceStub
from nnpa_emulator import Guest, find_machine
from nnpa_network.importing.onnx_plan import OnnxPlan
from nnpa_network.program import Array, ArrayInfo, HostStep, ModelRefused, Port, Program
from nnpa_network.running.results import StepFailed
from nnpa_network.shortcuts import SHORTCUTS
from nnpa_server.network import Pools, make_pools
from nnpa_server.network.compiling import decode_job
from nnpa_server.network.programs import encode_program
from nnpa_server.network.running import Runner
from nnpa_server.network.worker_executor import WorkerExecutor
from nnpa_server.network.workers import Workers, make_workers
from nnpa_server.sandbox import confinement
from nnpa_server.sandbox.frames import Message
from nnpa_server.sandbox.pool import Owner, Pool
from nnpa_server.sandbox.process import JobLimits, allow
from onnx import ModelProto, NodeProto, TensorProto, helper

from tests.network import small_models
from tests.network.test_declared_steps import numbers
from tests.server.conftest import CONFIG, Running
from tests.server.network.service_client import Client
from tests.server.network.test_sandboxed_models import ROOM, Bystander, resident
from tests.server.network.worker_models import GUEST, endless, looped, mixed
from tests.server.wire import refused

pytestmark = pytest.mark.skipif(not confinement.is_linux(), reason="workers are Linux processes")
FLOATS = np.dtype(np.float32)
Call: TypeAlias = "grpc.Future[pb.InferNetworkResponse]"


def _sized_nodes() -> tuple[NodeProto, NodeProto]:
    node = helper.make_node("ConstantOfShape", ["n"], ["ones"])
    node.attribute.append(
        helper.make_attribute("value", helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0]))
    )
    return node, helper.make_node("ReduceSum", ["ones"], ["y"], keepdims=0)


def sized_model() -> ModelProto:
    """Return a model whose ConstantOfShape has a size that only a run tells."""
    ends = [("n", np.int64, (1,))], [("y", np.float32, ())]
    return small_models.model(_sized_nodes(), *ends)


def sized() -> Program:
    """Return the same as a compiled program."""
    node, total = _sized_nodes()
    int64 = np.dtype(np.int64)
    steps = (
        HostStep(-1, node.SerializeToString(), (1,), (2,), 17),
        HostStep(-1, total.SerializeToString(), (2,), (3,), 17),
    )
    arrays = {1: ArrayInfo(int64, (1,)), 2: ArrayInfo(FLOATS, (-1,)), 3: ArrayInfo(FLOATS, ())}
    ends = (Port("n", int64, (1,), ("",)),), (Port("y", FLOATS, ()),)
    return Program("sized", "telum2", *ends, (1,), (3,), arrays, {}, {}, steps)


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


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    """A server whose sessions have room for a worker."""
    running = Running(replace(CONFIG, limits=ROOM))
    yield running
    running.stop()


def infer(client: Client, handle: str, timeout: float = 60, **arrays: Array) -> Call:
    """Begin to run a network once over named arrays."""
    inputs = [
        pb.NamedArray(name=name, dtype=array.dtype.name, shape=array.shape, data=array.tobytes())
        for name, array in arrays.items()
    ]
    request = pb.InferNetworkRequest(session=client.session, network=handle, inputs=inputs)
    return client.stub.InferNetwork.future(request, timeout=timeout)


@pytest.mark.heavy
def test_a_growing_loop_harms_no_other_client(server: Running) -> None:
    """A Loop of few bytes that would take gigabytes fails its call, and health answers."""
    client, before = Client(server.channel), resident()
    handle = client.ready(looped(16, 2))
    failed = refused(grpc.StatusCode.ABORTED, "NETWORK_FAILED")
    with Bystander(server.channel) as bystander, failed:
        client.infer(handle, x=np.ones(1, np.float32))
    assert bystander.longest < 2
    assert resident() - before < 256 << 20
    client.close()


def _upload_program(client: Client) -> str:
    data = encode_program(sized()).SerializeToString()
    created = client.stub.CreateNetwork(client.upload(data, program_bytes=len(data)))
    assert client.init(created.network.name)
    return created.network.name


def _upload_model(client: Client) -> str:
    return client.ready(sized_model())


@pytest.mark.parametrize("create", [_upload_program, _upload_model])
def test_a_result_sized_by_an_input_harms_no_other_client(
    server: Running, create: Callable[[Client], str]
) -> None:
    """Where an input sets the size of a result, a small one runs and a large one fails alone."""
    client, before = Client(server.channel), resident()
    handle = create(client)
    (output,) = client.infer(handle, n=numbers(1000)).outputs
    assert np.frombuffer(output.data, np.float32).tolist() == [1000]
    failed = refused(grpc.StatusCode.ABORTED, "NETWORK_FAILED")
    with Bystander(server.channel) as bystander, failed:
        client.infer(handle, n=numbers(1 << 30))
    assert bystander.longest < 2
    assert resident() - before < 256 << 20
    (output,) = client.infer(handle, n=numbers(7)).outputs
    assert np.frombuffer(output.data, np.float32).tolist() == [7]
    client.close()


def runners(server: Running) -> set[int]:
    """Return the process ids of workers that run programs."""
    assert server.server.pools is not None
    pool = server.server.pools.runners
    return {worker.pid for worker in getattr(pool, "_leased")}  # noqa: B009


def await_end(pid: int) -> bool:
    """Wait until a process has ended; tell whether it has."""
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        if not Path(f"/proc/{pid}").exists():
            return True
        time.sleep(0.01)
    return False


def begin_endless(server: Running, client: Client, timeout: float) -> tuple[int, Call]:
    """Begin a run that takes minutes; return its worker, and the call."""
    before = runners(server)
    handle = client.ready(endless())
    (pid,) = runners(server) - before
    call = infer(client, handle, timeout, x=np.ones((400, 400), np.float32))
    time.sleep(0.5)
    assert not call.done()
    return pid, call


def test_a_deadline_ends_a_run(server: Running) -> None:
    """A host node whose call has passed its deadline is killed, and the session goes on."""
    client = Client(server.channel)
    pid, call = begin_endless(server, client, timeout=1.5)
    with pytest.raises(grpc.RpcError) as error:
        call.result()
    assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert await_end(pid)
    handle = client.ready(mixed(), c_name="second")
    (output,) = client.infer(handle, x=np.ones((1, 4), np.float32)).outputs
    assert output.shape == [1, 3]
    client.close()


def test_the_end_of_a_session_ends_its_run(server: Running) -> None:
    """DeleteSession kills a host node that runs, and disturbs no other session."""
    client, bystander = Client(server.channel), Client(server.channel)
    handle = bystander.ready(mixed())
    pid, call = begin_endless(server, client, timeout=60)
    client.close()
    with refused(grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND"):
        call.result(timeout=5)
    assert await_end(pid)
    assert bystander.infer(handle, x=np.ones((1, 4), np.float32)).outputs
    bystander.close()


def test_workers_end_with_the_last_network(server: Running) -> None:
    """A session without networks has no worker; the next network has one of its own."""
    client, before = Client(server.channel), runners(server)
    handles = [client.ready(mixed(), c_name=name) for name in ("first", "second")]
    assert client.infer(handles[0], x=np.ones((1, 4), np.float32)).outputs
    (pid,) = runners(server) - before
    client.destroy(handles[0])
    assert client.infer(handles[1], x=np.ones((1, 4), np.float32)).outputs
    assert runners(server) - before == {pid}
    client.destroy(handles[1])
    assert await_end(pid)
    handle = client.ready(mixed())
    assert client.infer(handle, x=np.ones((1, 4), np.float32)).outputs
    assert runners(server) - before
    client.close()


def test_a_published_model_has_a_worker_that_ends_with_it(server: Running) -> None:
    """A model with host nodes serves all clients from one worker, until it is unloaded."""
    stub, before = GRPCInferenceServiceStub(server.channel), runners(server)
    request = oip.RepositoryModelLoadRequest(model_name="mixed")
    request.parameters["config"].string_param = "{}"
    request.parameters["file:1/model.onnx"].bytes_param = mixed().SerializeToString()
    stub.RepositoryModelLoad(request, timeout=60)
    (pid,) = runners(server) - before
    infer_request = oip.ModelInferRequest(model_name="mixed")
    infer_request.inputs.add(name="x", datatype="FP32", shape=[1, 4])
    infer_request.raw_input_contents.append(np.ones((1, 4), np.float32).tobytes())
    (raw,) = stub.ModelInfer(infer_request, timeout=60).raw_output_contents
    here = OnnxPlan(mixed().SerializeToString(), Guest(find_machine("telum2"))).executor({})
    assert raw == here.run({"x": np.ones((1, 4), np.float32)}).outputs["y"].tobytes()
    stub.RepositoryModelUnload(oip.RepositoryModelUnloadRequest(model_name="mixed"))
    assert await_end(pid)


class TakenOver(Owner):
    """A worker whose answers are changed by `change`."""

    def __init__(self, change: Callable[[Message], Message]) -> None:
        self._change, self._runner = change, Runner()
        self.closed = 0

    def run(self, job: Message, limits: JobLimits) -> Message:
        """Return a changed answer."""
        del limits
        answer = self._runner(job)
        return answer if decode_job(job.text)[0] == "load" else self._change(answer)

    def close(self) -> None:
        """Count how often the server ended the worker."""
        self.closed += 1


def _with(text: bytes) -> Callable[[Message], Message]:
    return lambda message: Message(b"\x00" + text, message.arrays)


CHANGES: dict[str, Callable[[Message], Message]] = {
    "silence": lambda _: Message(b""),
    "garbage": lambda message: Message(b"\x00" + b"\xff" * 99, message.arrays),
    "deep": lambda message: Message(b"\x00" + b"[" * 100_000, message.arrays),
    "failure of no form": lambda _: Message(b"\x02{}"),
    "another program": lambda _: Message(b"\x03"),
    "no outputs": lambda message: Message(message.text),
    "other shapes": lambda message: Message(
        message.text, tuple(array.reshape(-1) for array in message.arrays)
    ),
    "other types": lambda message: Message(
        message.text, tuple(array.astype(np.float64) for array in message.arrays)
    ),
    "counts that are none": _with(b'{"violations": [], "nans": ["1"], "texts": {}}'),
    "text that is none": _with(b'{"violations": [], "nans": [0], "texts": {"0": [9]}}'),
    "calls that are none": _with(b'{"violations": [[0, "tanh", 1, 1]], "nans": [0], "texts": {}}'),
    "a node that is none": _with(b'{"violations": [[99, "relu", 1, 1]], "nans": [0], "texts": {}}'),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_worker_that_was_taken_over(name: str) -> None:
    """Every changed answer fails the run and ends the worker."""
    program = OnnxPlan(mixed().SerializeToString(), Guest(GUEST)).executor({}).program
    owner = TakenOver(CHANGES[name])
    bad = Workers(owner, owner, allow, lambda: 1 << 30)
    executor = WorkerExecutor(program, Guest(GUEST), SHORTCUTS, bad)
    with pytest.raises(StepFailed) as failed:
        executor.run({"x": np.ones((1, 4), np.float32)})
    assert len(failed.value.reason) <= 1000
    assert owner.closed


@pytest.mark.parametrize(
    ("death", "text"),
    [
        ("segfault", "its worker was ended by SIGSEGV; it may take 201326592 bytes and 3600 s"),
        ("abort", "its worker was ended by SIGABRT; it may take 201326592 bytes and 3600 s"),
        ("exit", "its worker ended with exit code 3; it may take 201326592 bytes and 3600 s"),
        ("memory", "its worker takes more than 201326592 bytes"),
        ("garbage", "its worker gave an answer of no known form"),
    ],
)
def test_a_worker_that_dies_says_how(death: str, text: str) -> None:
    """The caller reads the signal or exit code, and the limits of the worker."""
    pool = Pool("tests.server.sandbox.sandbox_jobs:start", {})
    owner = Owner(pool)
    try:
        workers = Workers(owner, owner, allow, lambda: 320 << 20)
        with pytest.raises(StepFailed) as failed:
            workers.run(Message(f"answer {death}".encode()))
        assert str(failed.value) == f"host: {text}"
    finally:
        pool.close()


def test_a_worker_that_cannot_start_is_no_fault_of_the_model() -> None:
    """Where no process can be made the caller reads that, and the next run is served."""
    pool = Pool("tests.server.sandbox.sandbox_jobs:start_late", {})
    owner = Owner(pool)
    try:
        workers = Workers(owner, owner, allow, lambda: 320 << 20)
        with pytest.raises(StepFailed, match="no worker could be started"):
            workers.run(Message(b"echo"))
        assert workers.run(Message(b"echo")) == (b"e", Message(b"cho"))
    finally:
        pool.close()


def test_no_changed_byte_is_an_error_of_ours() -> None:
    """A result with any changed byte is taken, or fails the run, and nothing else."""
    rng, failures = np.random.default_rng(5), 0
    program = OnnxPlan(mixed().SerializeToString(), Guest(GUEST)).executor({}).program

    def change(message: Message) -> Message:
        text = bytearray(message.text)
        text[int(rng.integers(len(text)))] = int(rng.integers(256))
        return Message(bytes(text), message.arrays)

    owner = TakenOver(change)
    bad = Workers(owner, owner, allow, lambda: 1 << 30)
    executor = WorkerExecutor(program, Guest(GUEST), SHORTCUTS, bad)
    for _ in range(500):
        try:
            executor.run({"x": np.full((1, 4), np.nan, np.float32)})
        except (StepFailed, ModelRefused):
            failures += 1
    assert failures > 100
