# SPDX-License-Identifier: Apache-2.0
"""Loads of published models do not wait for each other, and end with the client that wants them."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import grpc
import numpy as np
import pytest
from nnpa.oip import open_inference_grpc_pb2 as oip
from nnpa.oip.open_inference_grpc_pb2_grpc import GRPCInferenceServiceStub
from nnpa_server.open_inference.repository import State
from nnpa_server.sandbox import confinement

from tests.network import small_models
from tests.server.conftest import CONFIG, Running
from tests.server.network.test_host_nodes_in_workers import await_end, runners
from tests.server.network.test_sandboxed_models import (
    ROOM,
    await_fork_server,
    await_none,
    leased,
    slow,
)
from tests.server.network.worker_models import endless

pytestmark = pytest.mark.skipif(not confinement.is_linux(), reason="workers are Linux processes")


Call: TypeAlias = "grpc.Future[oip.RepositoryModelLoadResponse]"


@pytest.fixture
def server() -> Iterator[Running]:
    """A server whose models have room for a worker."""
    running = Running(replace(CONFIG, limits=ROOM))
    yield running
    running.stop()


def loading(name: str, data: bytes) -> oip.RepositoryModelLoadRequest:
    """Return the request that loads a model of this file."""
    request = oip.RepositoryModelLoadRequest(model_name=name)
    request.parameters["config"].string_param = "{}"
    request.parameters["file:1/model.onnx"].bytes_param = data
    return request


def begin_slow(server: Running, timeout: float) -> tuple[set[int], Call]:
    """Begin to load a model that takes long; return its worker, and the call."""
    stub, before = GRPCInferenceServiceStub(server.channel), leased(server)
    await_fork_server(server)
    request = loading("slow", slow().SerializeToString())
    call = stub.RepositoryModelLoad.future(request, timeout=timeout)
    deadline = time.monotonic() + 20
    while not (pids := leased(server) - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    return pids, call


@pytest.mark.heavy
def test_a_slow_load_keeps_nobody_waiting(server: Running) -> None:
    """While a model is compiled, another is loaded, answers and is unloaded."""
    stub = GRPCInferenceServiceStub(server.channel)
    pids, call = begin_slow(server, timeout=60)
    assert pids
    stub.RepositoryModelLoad(loading("dense", small_models.dense().SerializeToString()), timeout=30)
    assert stub.ModelReady(oip.ModelReadyRequest(name="dense")).ready
    stub.RepositoryModelUnload(oip.RepositoryModelUnloadRequest(model_name="dense"), timeout=5)
    assert not call.done()
    call.cancel()
    assert await_none(pids)


@pytest.mark.heavy
def test_a_load_ends_with_its_client(server: Running) -> None:
    """A deadline kills the compiler; the name is free for the next load, and says why."""
    stub = GRPCInferenceServiceStub(server.channel)
    pids, call = begin_slow(server, timeout=1.5)
    assert pids
    with pytest.raises(grpc.RpcError) as error:
        call.result()
    assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert await_none(pids)
    deadline, states = time.monotonic() + 3, set[tuple[str, str]]()
    while State.UNAVAILABLE not in {state for state, _ in states} and time.monotonic() < deadline:
        index = stub.RepositoryIndex(oip.RepositoryIndexRequest()).models
        states = {(entry.state, entry.reason) for entry in index if entry.name == "slow"}
    assert states == {(State.UNAVAILABLE, "its client left while it was loaded")}
    stub.RepositoryModelLoad(loading("slow", small_models.dense().SerializeToString()), timeout=30)
    assert stub.ModelReady(oip.ModelReadyRequest(name="slow")).ready


@pytest.mark.heavy
def test_a_run_ends_after_its_client(server: Running) -> None:
    """A host node of a published model goes on for a second without a client, and no longer."""
    stub = GRPCInferenceServiceStub(server.channel)
    stub.RepositoryModelLoad(loading("endless", endless(trips=None).SerializeToString()))
    (pid,) = runners(server)
    request = oip.ModelInferRequest(model_name="endless")
    request.inputs.add(name="x", datatype="FP32", shape=[400, 400])
    request.inputs.add(name="trips", datatype="INT64", shape=[])
    request.raw_input_contents.append(np.ones((400, 400), np.float32).tobytes())
    request.raw_input_contents.append(np.int64(10_000).tobytes())
    with pytest.raises(grpc.RpcError) as error:
        stub.ModelInfer(request, timeout=0.5)
    assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert Path(f"/proc/{pid}").exists()
    assert await_end(pid)
