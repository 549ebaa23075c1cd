# SPDX-License-Identifier: Apache-2.0
"""`nnpa network validate` on all cores, or on a cluster: what is asked, and the report of it."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from nnpa_emulator import Guest, find_machine
from nnpa_files import external_data
from nnpa_network.client_api.creation import Caller, Options, Provenance
from nnpa_network.client_api.network import Network
from nnpa_network.client_api.report import Version
from nnpa_network.importing.onnx_import import ImportOptions
from nnpa_network.importing.onnx_plan import OnnxPlan
from nnpa_network.placements import PLACEMENTS, Placement
from nnpa_network.program import ModelRefused
from nnpa_network.reporting.accuracy import Report, Unmeasured
from nnpa_network.reporting.measuring import Settings

from nnpa_tools.evaluation.accuracy import batch_rows, save_rows
from nnpa_tools.evaluation.cluster import RayCluster, node_error
from nnpa_tools.evaluation.datasets.images import parse_preprocessing
from nnpa_tools.evaluation.datasets.opening import Source
from nnpa_tools.evaluation.gathering import Gathering
from nnpa_tools.evaluation.local import LocalPool
from nnpa_tools.evaluation.measuring import Evaluation, Evaluator, Measured, ports
from nnpa_tools.evaluation.rows import Rows, partition
from nnpa_tools.evaluation.survival import Done, Survival

Progress = Callable[[int, int], None]
"""Is told how many rows of how many are settled."""


@dataclass(frozen=True, slots=True)
class Request:
    """What `nnpa network validate` asks for: its options, resolved.

    `images` is JSON that says how images become an input; `jobs` None is one worker for each core,
    `ray` the address of a cluster that has the workers, None is this machine; `parts` is how many
    unions of batches there are, None one for each batch.
    """

    model: str
    machine: str
    strict: bool
    saturate: bool
    offload_integer: bool
    placement: str
    shapes: dict[str, list[int]]
    data: str | None
    labels: str | None
    samples: int | None
    seed: int
    images: str
    batch: int | None
    node_rows: int
    int8: bool
    max_drop: float | None
    html: bool
    worst: str | None
    about: dict[str, str]
    jobs: int | None
    ray: str | None
    parts: int | None

    def source(self) -> Source:
        """Return where rows come from."""
        data = None if self.data is None else Path(self.data).absolute()
        chosen = parse_preprocessing(json.loads(self.images), "options of images")
        return Source(data, self.labels, self.samples, self.seed, chosen, self.shapes)

    def options(self) -> ImportOptions:
        """Return how the model is placed; raise ValueError."""
        placements: dict[str, Placement] = {known: known for known in PLACEMENTS}
        placement = placements.get(self.placement)
        if placement is None:
            choices = ", ".join(PLACEMENTS)
            raise ValueError(f"placement: {self.placement!r}, expected one of {choices}")
        return ImportOptions(self.strict, self.saturate, self.offload_integer, placement)


class NotHosted(Exception):
    """The model cannot be hosted; the text says why."""


def validate(request: Request, progress: Progress) -> Report:
    """Measure a model over its data.

    Raise NotHosted, ValueError, and ModelRefused for rows over which the model does not run.
    """
    model, source, options = Path(request.model), request.source(), request.options()
    try:
        network = _network(external_data.read_model(model), request, options)
    except ModelRefused as refused:
        raise NotHosted(str(refused)) from refused
    inputs = ports(network.plan.inputs)
    dataset = source.open(inputs, ports(network.plan.outputs))
    size = request.batch or batch_rows(dataset, inputs, network.activations_size)
    del network
    evaluation = Evaluation(model, source, options, Settings(size, request.node_rows, request.int8))
    unions = partition(dataset.rows, size, request.parts)
    with _engine(request, evaluation, len(unions)) as engine:
        gathering = _gather(Survival(engine, size, unions), dataset.rows, progress)
    report = gathering.report({**request.about, **dataset.about}, request.max_drop)
    if request.worst is not None:
        rows = {worst.row for run in report.machines for worst in run.worst}
        save_rows(Path(request.worst), dataset, sorted(rows))
    return report


def _engine(
    request: Request, evaluation: Evaluation, unions: int
) -> LocalPool | RayCluster[Measured]:
    if request.ray is not None:
        shipped = replace(evaluation, model=evaluation.contents())
        begin = partial(begin_measuring, shipped)
        return RayCluster(request.ray, request.jobs, begin, lambda rows: rows)
    return LocalPool(evaluation, min(request.jobs or len(os.sched_getaffinity(0)), unions))


def begin_measuring(evaluation: Evaluation) -> Callable[[Rows], Measured]:
    """Return what measures rows on a node of a cluster; raise `ModelRefused`, `ClusterError`."""
    try:
        return Evaluator(evaluation).measure
    except ModelRefused:
        raise
    except (OSError, ValueError) as error:
        raise node_error(error, "every node reads the data, under the same path") from error


def _network(model: bytes, request: Request, options: ImportOptions) -> Network:
    """Return the network as a server hosts it, which tells what it takes; raise ModelRefused."""
    try:
        guest = Guest(find_machine(request.machine))
    except KeyError:
        raise ValueError(f"machine: {request.machine!r}: `nnpa info` lists the machines") from None
    shapes = {name: tuple(shape) for name, shape in request.shapes.items()}
    facts = Provenance("network", Version(1, 0, 0), "", "", "")
    return Network(OnnxPlan(model, guest, options), facts, Options(shapes=shapes), Caller())


def _gather(survival: Survival[Measured], rows: int, progress: Progress) -> Gathering:
    """Add up what becomes of rows."""
    gathering, settled = Gathering(), 0
    for outcome in survival.outcomes():
        if isinstance(outcome, Done):
            gathering.add(outcome.result)
        else:
            first, end = outcome.rows.first, outcome.rows.end
            gathering.lost.append(Unmeasured(first, end - 1, outcome.why))
        settled += len(outcome.rows)
        progress(settled, rows)
    return gathering
