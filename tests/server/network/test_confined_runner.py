# SPDX-License-Identifier: Apache-2.0
"""A confined worker can run every operation that it offers: nothing opens a file late."""

import json
from collections.abc import Iterator

import numpy as np
import pytest
from nnpa_emulator import Guest, find_machine
from nnpa_network.importing.onnx_plan import OnnxPlan
from nnpa_network.program import ModelRefused
from nnpa_network.running.executor import ProgramRunner
from nnpa_network.running.results import StepFailed
from nnpa_network.shortcuts import SHORTCUTS
from nnpa_server.network.worker_executor import WorkerExecutor
from nnpa_server.network.workers import Workers
from nnpa_server.sandbox import confinement
from nnpa_server.sandbox.frames import Message
from nnpa_server.sandbox.pool import Owner
from nnpa_server.sandbox.process import JobLimits, WorkerProcess, allow

from tests.network import real_models, small_models
from tests.network.backend_cases import Case, cases_by_operator
from tests.server.network.confined_runner import ALL, LACKED
from tests.server.network.test_runs_in_workers import facts
from tests.server.sandbox.forked import Forked
from tests.server.tuning.compiled_kernels import kernels

pytestmark = [
    pytest.mark.skipif(not confinement.is_linux(), reason="workers are Linux processes"),
    pytest.mark.heavy,  # every kernel is compiled first
]
LIMITS = JobLimits(memory=1 << 30, seconds=300, cpu_seconds=300)
GUEST = find_machine("telum2")
RANDOM = ("Bernoulli", "Dropout")
"""Operators whose results differ from run to run."""


class Confined(Owner):
    """An owner whose worker is the test's."""

    def __init__(self, worker: WorkerProcess) -> None:
        self._process = worker

    def run(self, job: Message, limits: JobLimits) -> Message:
        """Return the worker's answer."""
        return self._process.run(job, limits)


@pytest.fixture(scope="module", params=["references", "compiled"])
def runner(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Owner]:
    """A worker whose cache has no kernel, or all."""
    is_compiled = request.param == "compiled"
    place = kernels() if is_compiled else tmp_path_factory.mktemp("empty")
    environment = {"ORT_DISABLE_TELEMETRY": "1", "NUMBA_CACHE_DIR": str(place)}
    worker = Forked("tests.server.network.confined_runner:start", environment)
    yield Confined(worker)
    worker.end()


def test_every_operation(runner: Owner, request: pytest.FixtureRequest) -> None:
    """Operations run by compiled kernels, and by references where nothing is compiled."""
    answer = runner.run(Message(ALL), LIMITS)
    assert (int(answer.text) > 20) == ("compiled" in request.node.name)


MODELS = {
    "image": lambda: small_models.image().SerializeToString(),
    "quantised": lambda: small_models.quantised().SerializeToString(),
    "residual_cnn": real_models.residual_cnn,
    "encoder": real_models.encoder,
    "tagger": real_models.tagger,
}


def test_models_have_their_kernels(runner: Owner, request: pytest.FixtureRequest) -> None:
    """A worker loads all kernels of models before it is confined: no slow reference runs."""
    workers = Workers(runner, runner, allow, lambda: 1 << 30)
    for model in MODELS.values():
        here = OnnxPlan(model(), Guest(GUEST)).executor({})
        in_worker = WorkerExecutor(here.program, Guest(GUEST), SHORTCUTS, workers)
        feeds = {port.name: np.ones(port.shape, port.dtype) for port in here.program.inputs}
        assert facts(in_worker.run(feeds)) == facts(here.run(feeds))
    answer = runner.run(Message(LACKED), LIMITS)
    assert bool(json.loads(answer.text)) == ("references" in request.node.name)


def outcome(executor: ProgramRunner, case: Case, operator: str) -> object:
    """Run a case's first data; return its outputs, or how it fails."""
    feeds = {name: np.asarray(array) for name, array in case.data[0][0].items()}
    try:
        result = executor.run(feeds)
    except ModelRefused as refused:
        return refused.reason
    except StepFailed as failed:
        return failed.node, failed.verb, failed.reason
    if operator in RANDOM:
        return [(name, array.dtype, array.shape) for name, array in result.outputs.items()]
    return facts(result)


def test_every_operator(runner: Owner) -> None:
    """A node of each operator of ONNX that is hosted runs as it does here."""
    workers = Workers(runner, runner, allow, lambda: 1 << 30)
    tried, different = set[str](), dict[str, object]()
    for operator, cases in cases_by_operator().items():
        for case in cases[:3]:
            feeds = case.data[0][0]
            if any(isinstance(array, list) for array in feeds.values()):
                continue  # sequences are no inputs of networks
            try:
                shapes = {name: np.shape(array) for name, array in feeds.items()}
                here = OnnxPlan(case.model, Guest(GUEST)).executor(shapes)
            except ModelRefused:
                continue
            in_worker = WorkerExecutor(here.program, Guest(GUEST), SHORTCUTS, workers)
            expected, got = outcome(here, case, operator), outcome(in_worker, case, operator)
            tried.add(operator)
            if got != expected:
                different[case.name] = got, expected
    assert not different
    assert len(tried) > 120
