# SPDX-License-Identifier: Apache-2.0
"""Measure the accuracy of a network against its model in FP32, and probe edge sizes."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from nnpa.network.v1 import network_pb2 as pb
from nnpa_emulator import find_machine
from nnpa_emulator.machine import TELUMS
from nnpa_network.client_api.network import Network
from nnpa_network.program import Array, Port
from nnpa_network.reporting.measuring import MAX_BATCH_ROWS, Settings
from nnpa_network.reporting.probe import EDGE_SIZES

from nnpa_server.errors import invalid
from nnpa_server.network.memory import NetworkMemory, require_message
from nnpa_server.network.messages import read_array, read_feeds, text_bytes
from nnpa_server.network.reports import Batch
from nnpa_server.network.worker_plan import WorkerPlan

MAX_SAMPLES, MAX_SIZES = 1000, 32
MAX_NODE_ROWS, MAX_ROWS = 1024, 1 << 48
MAX_LINES, MAX_LINE = 32, 1000  # of `about`; source: nnpa/network/v1/network.proto
_MADE_UP = 16


def measure_accuracy(
    request: pb.MeasureAccuracyRequest, plan: WorkerPlan, network: Network, memory: NetworkMemory
) -> pb.MeasureAccuracyResponse:
    """Measure a network over the data of a request; raise `ModelRefused`, `StepFailed`."""
    machines = _machines(request.machines)
    if request.rows or request.measurements:
        return _measure_batch(request, plan, machines, memory)
    samples = _samples(request, plan, network, memory)
    names = [port.name for port in plan.inputs]
    arrays = [sample[name] for sample in samples for name in names]
    parts = plan.report(
        "measure", arrays, machines=machines, inputs=names, samples=len(samples), html=request.html
    )
    as_json, text, html = map(str, parts)
    return pb.MeasureAccuracyResponse(json=as_json, html=html, text=text)


def _measure_batch(
    request: pb.MeasureAccuracyRequest,
    plan: WorkerPlan,
    machines: tuple[str, ...],
    memory: NetworkMemory,
) -> pb.MeasureAccuracyResponse:
    """Measure rows of a dataset, merge earlier measurements, and report them if asked."""
    memory.require(2 * request.ByteSize() + text_bytes(request.rows))
    rows = _named(request.rows, "rows", plan) if request.rows else {}
    labels = read_array(request.labels, "labels") if request.HasField("labels") else None
    if labels is not None and labels.dtype.kind not in "biu":
        raise invalid("labels.dtype", labels.dtype.name, "integers")
    earlier = np.frombuffer(request.measurements, np.uint8)
    arrays = [*rows.values(), *([] if labels is None else [labels]), earlier]
    batch = _batch(request, plan, machines, tuple(rows))
    parts = [str(part) for part in plan.report("batch", arrays, batch=batch)]
    require_message(sum(map(len, parts)))
    measurements, as_json, text, html = parts
    return pb.MeasureAccuracyResponse(
        json=as_json, html=html, text=text, measurements=measurements.encode()
    )


def _batch(
    request: pb.MeasureAccuracyRequest,
    plan: WorkerPlan,
    machines: tuple[str, ...],
    inputs: tuple[str, ...],
) -> Batch:
    """Return the batch of a request; refuse settings beyond the contract's limits."""
    batch_rows = request.batch_rows or Settings().batch_rows
    node_rows = request.node_rows if request.HasField("node_rows") else Settings().node_rows
    for name, value, most in (
        ("batch_rows", batch_rows, MAX_BATCH_ROWS),
        ("node_rows", node_rows, MAX_NODE_ROWS),
        ("first_row", request.first_row, MAX_ROWS),
        ("about", len(request.about), MAX_LINES),
    ):
        if value > most:
            raise invalid(name, value, f"at most {most}")
    if long := [name for name, line in request.about.items() if len(name + line) > MAX_LINE]:
        raise invalid("about", repr(long[0][:64]), f"at most {MAX_LINE} characters each")
    max_drop = request.max_drop if request.HasField("max_drop") else None
    if max_drop is not None and not 0 <= max_drop <= 1:
        raise invalid("max_drop", max_drop, "a share, 0 to 1")
    return Batch(
        model=plan.digest,
        machines=machines,
        inputs=inputs,
        has_labels=request.HasField("labels"),
        first=request.first_row,
        settings=Settings(batch_rows, node_rows, request.int8),
        report=not request.only_measurements,
        html=request.html,
        about=dict(sorted(request.about.items())),
        max_drop=max_drop,
    )


def probe_network(request: pb.ProbeNetworkRequest, plan: WorkerPlan) -> pb.ProbeNetworkResponse:
    """Run a model at edge sizes over inputs without meaning; raise `ModelRefused`."""
    sizes = tuple(request.sizes) or EDGE_SIZES
    if len(sizes) > MAX_SIZES or min(sizes) < 1:
        raise invalid("sizes", list(sizes[:8]), f"at most {MAX_SIZES} numbers above 0")
    rows = plan.report("probe", machines=_machines(request.machines), sizes=sizes)
    return pb.ProbeNetworkResponse(json=json.dumps(rows))


def _machines(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of a request's machines; all Telums if it names none."""
    machines: list[str] = []
    for name in names:
        try:
            machine = find_machine(name)
        except KeyError:
            machine = None
        if machine is None or not machine.nnpa_installed:
            raise invalid("machines", repr(name[:64]), "a machine with NNPA")
        machines.append(machine.name)
    return tuple(dict.fromkeys(machines)) or TELUMS


def _samples(
    request: pb.MeasureAccuracyRequest, plan: WorkerPlan, network: Network, memory: NetworkMemory
) -> list[Mapping[str, Array]]:
    if len(request.samples) > MAX_SAMPLES or request.made_up > MAX_SAMPLES:
        most = max(len(request.samples), request.made_up)
        raise invalid("samples", most, f"at most {MAX_SAMPLES}")
    if request.samples:
        memory.require(sum(text_bytes(sample.inputs) for sample in request.samples))
        return [
            _named(sample.inputs, f"samples[{index}].inputs", plan)
            for index, sample in enumerate(request.samples)
        ]
    network.require_sizes()
    rng = np.random.default_rng(request.seed)
    shapes = {port.name: port.shape for port in network.executor.program.inputs}
    count = request.made_up or _MADE_UP
    elements = sum(math.prod(shape) for shape in shapes.values())
    memory.require(count * elements * np.dtype(np.float64).itemsize)
    return [
        {port.name: _made_up(rng, port, shapes[port.name]) for port in plan.inputs}
        for _ in range(count)
    ]


def _named(arrays: Iterable[pb.NamedArray], path: str, plan: WorkerPlan) -> Mapping[str, Array]:
    """Return arrays by name; refuse them if their names are not exactly the model's inputs."""
    feeds, names = read_feeds(arrays, path), {port.name for port in plan.inputs}
    if wrong := sorted(names ^ feeds.keys()):
        verb = "absent" if wrong[0] in names else "no input"
        allowed = ", ".join(name[:64] for name in sorted(names)[:8])
        raise invalid(path, f"with {wrong[0][:64]!r} {verb}", f"one array for each of {allowed}")
    return feeds


def _made_up(rng: np.random.Generator, port: Port, shape: tuple[int, ...]) -> Array:
    """Return random inputs: normal floats, integers and booleans of 0 and 1, empty texts."""
    if port.dtype.kind == "O":
        return np.full(shape, "", port.dtype)
    drawn = rng.integers(0, 2, shape) if port.dtype.kind in "iub" else rng.standard_normal(shape)
    array: Array = np.asarray(drawn).astype(port.dtype)
    return array
