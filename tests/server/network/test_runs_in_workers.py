# SPDX-License-Identifier: Apache-2.0
"""Runs of whole programs in a worker equal runs in this process."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import grpc
import numpy as np
import pytest
from nnpa.network.v1 import network_pb2 as pb
from nnpa_emulator import Guest
from nnpa_network.importing.onnx_import import ImportOptions
from nnpa_network.importing.onnx_plan import OnnxPlan
from nnpa_network.importing.plan import ForeignExecutor
from nnpa_network.program import ModelRefused
from nnpa_network.running.executor import ProgramRunner
from nnpa_network.running.observed import NodeEvent
from nnpa_network.running.results import Result, StepFailed
from nnpa_network.shortcuts import SHORTCUTS
from nnpa_server.network import Pools, make_pools
from nnpa_server.network.compiling import decode_job
from nnpa_server.network.worker_executor import WorkerExecutor, program_loader
from nnpa_server.network.worker_plan import WorkerPlan
from nnpa_server.network.workers import Worker, Workers, make_workers
from nnpa_server.sandbox import confinement
from nnpa_server.sandbox.frames import Message
from nnpa_server.sandbox.process import JobLimits
from onnx import ModelProto, TensorProto, helper

from tests.network import real_models, small_models
from tests.network.test_declared_steps import DECLARED
from tests.server.conftest import CONFIG, Running
from tests.server.network.service_client import Client
from tests.server.network.test_sandboxed_models import ROOM
from tests.server.network.worker_models import GUEST, mixed
from tests.server.wire import refused

pytestmark = pytest.mark.skipif(not confinement.is_linux(), reason="workers are Linux processes")


def lettered() -> ModelProto:
    """Return a model from text to text, without nodes for the accelerator."""
    node = helper.make_node("Concat", ["x", "x"], ["y"], "twice", axis=0)
    ends = ("x", [2]), ("y", [4])
    info = [helper.make_tensor_value_info(name, TensorProto.STRING, shape) for name, shape in ends]
    graph = helper.make_graph([node], "text", info[:1], info[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


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


def both(model: bytes, workers: Workers) -> tuple[ProgramRunner, ProgramRunner]:
    """Return two runners of a model: in this process and in a worker."""
    plan = OnnxPlan(model, Guest(GUEST))
    here = plan.executor({})
    in_worker = WorkerPlan(model, Guest(GUEST), ImportOptions(), workers).executor({})
    assert isinstance(in_worker, WorkerExecutor)
    return here, in_worker


def facts(result: Result) -> tuple[object, ...]:
    """Return everything that a run tells a client."""
    outputs = [
        (name, array.dtype, array.shape, array.tolist() if array.dtype == object
         else array.tobytes())
        for name, array in result.outputs.items()
    ]  # fmt: skip
    warnings = [replace(warned, violation=None) for warned in result.violations]
    return outputs, warnings, dict(result.nans), dict(result.calls)


@pytest.mark.parametrize("value", [0.5, -3.0, np.nan, np.inf, 3e38])
def test_a_run_in_a_worker_is_a_run_here(value: float, workers: Workers) -> None:
    """Outputs, warnings with their counts, NaN counts and calls are the same, bit by bit."""
    here, in_worker = both(mixed().SerializeToString(), workers)
    feeds = {"x": np.array([[value, 1, -2, 0.25]], np.float32)}
    for _ in range(3):
        assert facts(in_worker.run(feeds)) == facts(here.run(feeds))


def test_text_goes_both_ways(workers: Workers) -> None:
    """Arrays of text cross as bytes, those that are empty and those beyond ASCII too."""
    here, in_worker = both(lettered().SerializeToString(), workers)
    feeds = {"x": np.array(["", "Zürich \N{SNOWMAN}"], object)}
    assert facts(in_worker.run(feeds)) == facts(here.run(feeds))


def test_text_has_its_locale_in_a_worker(workers: Workers) -> None:
    """C.UTF-8 lowers letters of all words in a worker, which can open none of its files."""
    here, in_worker = both(small_models.lowered("C.UTF-8"), workers)
    feeds = {"x": np.array(["ÄRGER"], object)}
    assert in_worker.run(feeds).outputs["y"].tolist() == ["ärger"]
    assert facts(in_worker.run(feeds)) == facts(here.run(feeds))


def test_wrong_inputs_are_refused_before_they_cross(workers: Workers) -> None:
    """A run in a worker refuses wrong inputs with the same reasons as one in this process."""
    here, in_worker = both(mixed().SerializeToString(), workers)
    for feeds in ({}, {"x": np.ones((1, 5), np.float32)}, {"x": np.ones((1, 4), np.int64)}):
        with pytest.raises(ModelRefused) as expected:
            here.run(feeds)
        with pytest.raises(ModelRefused) as got:
            in_worker.run(feeds)
        assert got.value.reason == expected.value.reason


def test_a_failed_step_says_which(workers: Workers) -> None:
    """A node that fails fails the run by its name, and the worker goes on."""
    node = helper.make_node("GatherElements", ["w", "at"], ["y"], "pick")
    model = small_models.model(
        [node], [("at", np.int64, [1])], [("y", np.float32, [1])], {"w": np.ones(3, np.float32)}
    )
    here, in_worker = both(model.SerializeToString(), workers)
    for feeds in ({"at": np.array([7])}, {"at": np.array([2])}):
        outcomes: list[object] = []
        for executor in (here, in_worker):
            try:
                outcomes.append(facts(executor.run(feeds)))
            except StepFailed as failed:
                outcomes.append((failed.node, failed.verb, failed.status, failed.reason))
        assert outcomes[0] == outcomes[1]


def test_observed_runs_are_the_same(workers: Workers) -> None:
    """Events come in order, values can be read while their event lasts, the result is the same."""
    feeds = {"x": np.array([[0.5, 1, -2, 0.25]], np.float32)}
    seen: list[list[object]] = []
    for executor in both(mixed().SerializeToString(), workers):
        events: list[object] = []

        def observe(event: NodeEvent, events: list[object] = events) -> None:
            values = [event.read(name) for name in ("x", "product", "positive", "y", "nothing")]
            events.append((event.node, event.phase))
            events.append([None if value is None else value.tolist() for value in values])

        events.append(facts(executor.run(feeds, observe)))
        seen.append(events)
    assert seen[0] == seen[1]
    assert len(seen[0]) == 2 * 6 + 1


def test_an_observer_may_end_a_run(workers: Workers) -> None:
    """An exception of an observer ends the run and leaves the next one undisturbed."""
    here, in_worker = both(mixed().SerializeToString(), workers)
    feeds = {"x": np.ones((1, 4), np.float32)}

    def fail(event: NodeEvent) -> None:
        if event.node == 1:
            raise StepFailed("act", "failing_node", 0, "it was created to fail")

    with pytest.raises(StepFailed, match="created to fail"):
        in_worker.run(feeds, fail)
    assert facts(in_worker.run(feeds)) == facts(here.run(feeds))


def test_a_new_worker_takes_the_program_again(workers: Workers) -> None:
    """A worker that ended is replaced, and the run does not notice."""
    here, in_worker = both(mixed().SerializeToString(), workers)
    feeds = {"x": np.ones((1, 4), np.float32)}
    workers.runner.close()
    assert facts(in_worker.run(feeds)) == facts(here.run(feeds))


@pytest.mark.parametrize(
    "model",
    [
        lambda: small_models.dense(1).SerializeToString(),
        lambda: small_models.image().SerializeToString(),
        real_models.residual_cnn,
    ],
)
def test_models_without_host_nodes_stay_in_the_server(
    model: Callable[[], bytes], workers: Workers
) -> None:
    """Host steps that lowering adds only move or scale elements, so that runs need no worker."""
    plan = WorkerPlan(model(), Guest(GUEST), ImportOptions(), workers)
    executor = plan.executor({})
    assert "host" not in {node.device for node in executor.program.nodes}
    assert isinstance(executor, ForeignExecutor)


def test_programs_that_declare_too_much_go_to_a_worker(workers: Workers) -> None:
    """A run that declares more than the limit goes to a worker, not to the server."""
    program = DECLARED["add"]
    assert isinstance(program_loader(workers, SHORTCUTS, 1 << 20)(program, Guest(GUEST)),
                      ForeignExecutor)  # fmt: skip
    assert isinstance(program_loader(workers, SHORTCUTS, 10)(program, Guest(GUEST)), WorkerExecutor)


@pytest.mark.heavy
def test_reports_are_made_by_a_worker(server: Running) -> None:
    """Accuracy and edge sizes equal this process's; a sample without an input is refused."""
    client = Client(server.channel)
    handle = client.ready(mixed())
    names = {"session": client.session, "network": handle}
    without = Running(replace(CONFIG, limits=ROOM, sandbox="off"))
    try:
        unconfined = Client(without.channel)
        unconfined_names = {"session": unconfined.session, "network": unconfined.ready(mixed())}
        for method, fields in (
            ("MeasureAccuracy", {"made_up": 3, "seed": 5, "html": True}),
            ("ProbeNetwork", {"sizes": [1, 2]}),
        ):
            request = getattr(pb, f"{method}Request")
            got = getattr(client.stub, method)(request(**names, **fields))
            assert got == getattr(unconfined.stub, method)(request(**unconfined_names, **fields))
    finally:
        without.stop()
    lacking = pb.MeasureAccuracyRequest(
        session=client.session, network=handle, samples=[pb.Sample()]
    )
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID"):
        client.stub.MeasureAccuracy(lacking)
    client.close()


def test_jobs_are_the_same_without_a_sandbox(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `--sandbox off` the server itself does the same jobs as workers."""
    verbs, ask = list[str](), vars(Workers)["_ask"]

    def record(workers: Workers, worker: Worker, job: Message, limits: JobLimits) -> object:
        verbs.append(decode_job(job.text)[0])
        return ask(workers, worker, job, limits)

    monkeypatch.setattr(Workers, "_ask", record)
    without = Running(replace(CONFIG, limits=ROOM, sandbox="off"))
    try:
        jobs = [_jobs_of(Client(running.channel), verbs) for running in (server, without)]
    finally:
        without.stop()
    assert jobs[0] == jobs[1]
    assert {"facts", "program", "load", "run", "measure"} <= set(jobs[0])


def _jobs_of(client: Client, verbs: list[str]) -> list[str]:
    """Return the verbs of the jobs by which a server hosts, runs and measures a network."""
    verbs.clear()
    handle = client.ready(mixed())
    client.infer(handle, x=np.ones((2, 4), np.float32))
    request = pb.MeasureAccuracyRequest(session=client.session, network=handle, made_up=1)
    client.stub.MeasureAccuracy(request)
    client.close()
    return verbs.copy()
