# SPDX-License-Identifier: Apache-2.0
"""The engines that host the model themselves: this machine, and a Ray cluster."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from functools import partial
from pathlib import Path

from nnpa_client.errors import TransportError
from nnpa_client.network.calls import Options
from nnpa_emulator import Guest, find_machine
from nnpa_files import external_data
from nnpa_network.client_api.creation import Caller, Provenance
from nnpa_network.client_api.creation import Options as BatchOptions
from nnpa_network.client_api.network import Network
from nnpa_network.client_api.report import Version
from nnpa_network.importing.onnx_import import ImportOptions
from nnpa_network.importing.onnx_plan import OnnxPlan
from nnpa_network.program import ModelRefused
from nnpa_network.reporting.measuring import Settings

from nnpa_tools.evaluation.cluster import RayCluster, node_error
from nnpa_tools.evaluation.datasets import Dataset
from nnpa_tools.evaluation.datasets.opening import Source
from nnpa_tools.evaluation.engine import Measuring, Progress
from nnpa_tools.evaluation.local import LocalPool
from nnpa_tools.evaluation.measuring import (
    Evaluation,
    Gathering,
    Measured,
    MeasuredModel,
    as_result,
    ports,
)
from nnpa_tools.evaluation.results import Accuracy
from nnpa_tools.evaluation.rows import Rows


@dataclass
class HostedModel(ABC):
    """A model's file, hosted on a machine; workers read the rows of `source`.

    `jobs` is the number of parallel workers, None or 0 for one for each core, on a cluster two.
    Raises `TransportError` for a model that cannot be hosted, as a server does, and ValueError.
    """

    model: Path
    source: Source
    machine: str
    compiled: InitVar[Options]
    jobs: int | None

    def __post_init__(self, compiled: Options) -> None:
        self.contents = external_data.read_model(self.model)
        self.options = ImportOptions(
            compiled.strict_placement,
            compiled.overflow == "saturate",
            compiled.offload_integer,
            compiled.placement,
        )
        try:
            network = _network(self.contents, self.source, self.machine, self.options)
        except ModelRefused as refused:
            raise _refusal(f"the model cannot be hosted: {refused}") from refused
        self.inputs, self.outputs = ports(network.plan.inputs), ports(network.plan.outputs)
        self.activations = network.activations_size

    @abstractmethod
    def gather(
        self, settings: Settings, dataset: Dataset, batches: Sequence[Rows], progress: Progress
    ) -> Gathering:
        """Measure batches of a data set; raise ValueError, `ModelRefused`."""

    def measure(
        self, dataset: Dataset, choice: Measuring, about: Mapping[str, str], progress: Progress
    ) -> Accuracy:
        """Measure all rows; raise ValueError, `TransportError` where the model cannot run."""
        assert choice.batch is not None
        settings = Settings(choice.batch, choice.node_rows, choice.int8)
        batches = list(Rows(0, dataset.rows).batches(settings.batch_rows))
        try:
            gathering = self.gather(settings, dataset, batches, progress)
        except ModelRefused as refused:
            if refused.node:
                raise _refusal(str(refused)) from refused
            raise ValueError(str(refused)) from refused
        return as_result(gathering.report(about, choice.max_drop), choice)


def _network(model: bytes, source: Source, machine: str, options: ImportOptions) -> Network:
    """Return the network as a server hosts it; raise ModelRefused."""
    try:
        guest = Guest(find_machine(machine))
    except KeyError:
        raise ValueError(f"machine: {machine!r}: `nnpa info` lists the machines") from None
    shapes = {name: tuple(shape) for name, shape in source.shapes.items()}
    facts = Provenance("network", Version(1, 0, 0), "", "", "")
    return Network(OnnxPlan(model, guest, options), facts, BatchOptions(shapes=shapes), Caller())


class LocalEngine(HostedModel):
    """Measures in this process where `jobs` is 1, else in a pool."""

    def gather(
        self, settings: Settings, dataset: Dataset, batches: Sequence[Rows], progress: Progress
    ) -> Gathering:
        """Measure batches here, each worker of a pool with a data set of its own."""
        gathering = Gathering()
        if self.jobs == 1:
            model = MeasuredModel(self.contents, self.options, settings)
            for batch in batches:
                gathering.add(model.measure(dataset, batch))
                progress(batch.end, dataset.rows)
            return gathering
        evaluation = Evaluation(self.model, self.source, self.options, settings)
        cores = self.jobs or len(os.sched_getaffinity(0))
        with LocalPool(evaluation, min(cores, len(batches))) as pool:
            gathering.add_all(pool, batches, progress)
        return gathering


@dataclass
class RayEngine(HostedModel):
    """Measures on the Ray cluster at an address, whose nodes read the data."""

    address: str = field(kw_only=True)

    def gather(
        self, settings: Settings, dataset: Dataset, batches: Sequence[Rows], progress: Progress
    ) -> Gathering:
        """Measure batches on the cluster; raise also `ClusterError` if no node can do it."""
        del dataset
        gathering = Gathering()
        evaluation = Evaluation(self.contents, self.source, self.options, settings)
        begin = partial(begin_on_node, evaluation)
        with RayCluster(self.address, self.jobs, begin, lambda rows: rows) as cluster:
            gathering.add_all(cluster, batches, progress)
        return gathering


def begin_on_node(evaluation: Evaluation) -> Callable[[Rows], Measured]:
    """Return the worker of a node of a cluster; raise `ModelRefused`, `ClusterError`."""
    try:
        return evaluation.begin()
    except ModelRefused:
        raise
    except (OSError, ValueError) as error:
        raise node_error(error, "every node reads the data, under the same path") from error


def _refusal(why: str) -> TransportError:
    return TransportError("INVALID_ARGUMENT", why, "MODEL_INVALID")
