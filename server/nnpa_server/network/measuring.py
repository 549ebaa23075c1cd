# SPDX-License-Identifier: Apache-2.0
"""How far a network is from its model in FP32, and where it leaves the range of numbers."""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict

import numpy as np
from nnpa.network.v1 import network_pb2 as pb
from nnpa_emulator import find_machine
from nnpa_network.client_api.network import Network
from nnpa_network.importing.onnx_plan import OnnxPlan
from nnpa_network.program import Array, Port
from nnpa_network.reporting.accuracy import MACHINES, as_json, as_text, measure
from nnpa_network.reporting.accuracy_page import as_html
from nnpa_network.reporting.probe import EDGE_SIZES, probe

from nnpa_server.errors import invalid
from nnpa_server.network.compiling import option_facts
from nnpa_server.network.memory import NetworkMemory
from nnpa_server.network.messages import read_feeds, text_bytes
from nnpa_server.network.remote_plan import RemotePlan
from nnpa_server.network.running import ReportJob

MAX_SAMPLES, MAX_SIZES = 1000, 32
_MADE_UP = 16


def measure_accuracy(
    request: pb.MeasureAccuracyRequest,
    plan: OnnxPlan | RemotePlan,
    network: Network,
    memory: NetworkMemory,
) -> pb.MeasureAccuracyResponse:
    """Measure a network over a request's data; raise `ModelRefused`, `StepFailed`."""
    machines = _machines(request.machines)
    samples = _samples(request, plan, network, memory)
    if isinstance(plan, RemotePlan):
        job = _job("measure", plan, machines, html=request.html)
        job["inputs"], job["samples"] = [port.name for port in plan.inputs], len(samples)
        arrays = [sample[name] for sample in samples for name in job["inputs"]]
        as_json_text, text, html = map(str, plan.report(job, arrays))
        return pb.MeasureAccuracyResponse(json=as_json_text, html=html, text=text)
    report = measure(plan.data, samples, machines, plan.options, memory.allocate)
    return pb.MeasureAccuracyResponse(
        json=as_json(report),
        html=as_html(report) if request.html else "",
        text=as_text(report),
    )


def probe_network(
    request: pb.ProbeNetworkRequest, plan: OnnxPlan | RemotePlan, memory: NetworkMemory
) -> pb.ProbeNetworkResponse:
    """Probe a model with inputs that carry nothing; raise `ModelRefused`."""
    sizes = tuple(request.sizes) or EDGE_SIZES
    if len(sizes) > MAX_SIZES or min(sizes) < 1:
        raise invalid("sizes", list(sizes[:8]), f"at most {MAX_SIZES} numbers above 0")
    machines = _machines(request.machines)
    if isinstance(plan, RemotePlan):
        job = _job("probe", plan, machines)
        job["sizes"] = list(sizes)
        return pb.ProbeNetworkResponse(json=json.dumps(plan.report(job)))
    rows = probe(plan.data, machines, sizes, plan.options, memory.allocate)
    return pb.ProbeNetworkResponse(json=json.dumps([asdict(row) for row in rows]))


def _job(verb: str, plan: RemotePlan, machines: Sequence[str], *, html: bool = False) -> ReportJob:
    """Return a report's job for a worker, without samples and sizes."""
    return ReportJob(
        verb=verb,
        machines=list(machines),
        options=option_facts(plan.options),
        inputs=[],
        samples=0,
        texts={},
        sizes=[],
        html=html,
    )


def _machines(names: Sequence[str]) -> tuple[str, ...]:
    """Return the machines of a request by their own names; both Telums without any."""
    machines: list[str] = []
    for name in names:
        try:
            machine = find_machine(name)
        except KeyError:
            machine = None
        if machine is None or not machine.nnpa_installed:
            raise invalid("machines", repr(name[:64]), "a machine with NNPA")
        machines.append(machine.name)
    return tuple(dict.fromkeys(machines)) or MACHINES


def _samples(
    request: pb.MeasureAccuracyRequest,
    plan: OnnxPlan | RemotePlan,
    network: Network,
    memory: NetworkMemory,
) -> list[Mapping[str, Array]]:
    if len(request.samples) > MAX_SAMPLES or request.made_up > MAX_SAMPLES:
        most = max(len(request.samples), request.made_up)
        raise invalid("samples", most, f"at most {MAX_SAMPLES}")
    if request.samples:
        memory.require(sum(text_bytes(sample.inputs) for sample in request.samples))
        return [
            _sample(sample, f"samples[{index}].inputs", plan)
            for index, sample in enumerate(request.samples)
        ]
    rng = np.random.default_rng(request.seed)
    shapes = {port.name: port.shape for port in network.executor.program.inputs}
    count = request.made_up or _MADE_UP
    elements = sum(math.prod(shape) for shape in shapes.values())
    memory.require(count * elements * np.dtype(np.float64).itemsize)
    return [
        {port.name: _made_up(rng, port, shapes[port.name]) for port in plan.inputs}
        for _ in range(count)
    ]


def _sample(sample: pb.Sample, path: str, plan: OnnxPlan | RemotePlan) -> Mapping[str, Array]:
    """Return a sample's arrays by name; refuse one that is not of exactly the model's inputs."""
    feeds, names = read_feeds(sample.inputs, path), {port.name for port in plan.inputs}
    if wrong := sorted(names ^ feeds.keys()):
        verb = "absent" if wrong[0] in names else "no input"
        raise invalid(
            path, f"with {wrong[0][:64]!r} {verb}", f"one array for each of {_list(names)}"
        )
    return feeds


def _list(names: Collection[str]) -> str:
    return ", ".join(name[:64] for name in sorted(names)[:8])


def _made_up(rng: np.random.Generator, port: Port, shape: tuple[int, ...]) -> Array:
    """Return normal numbers for floats, 0 and 1 for integers and truths, empty texts."""
    if port.dtype.kind == "O":
        return np.full(shape, "", port.dtype)
    drawn = rng.integers(0, 2, shape) if port.dtype.kind in "iub" else rng.standard_normal(shape)
    array: Array = np.asarray(drawn).astype(port.dtype)
    return array
