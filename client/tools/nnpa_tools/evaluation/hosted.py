# SPDX-License-Identifier: Apache-2.0
"""The engines that host the model themselves: this machine, and a Ray cluster."""

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
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


class HostedModel:
    """A model's file, hosted on a machine; `source` is where workers find the rows.

    Raise `TransportError` for a model that cannot be hosted, as a server does; ValueError.
    """

    def __init__(self, model: Path, source: Source, machine: str, options: Options) -> None:
        self.model, self.source = model, source
        self.contents = external_data.read_model(model)
        self.options = ImportOptions(
            options.strict_placement,
            options.overflow == "saturate",
            options.offload_integer,
            options.placement,
        )
        try:
            network = _network(self.contents, source, machine, self.options)
        except ModelRefused as refused:
            raise _refusal(f"the model cannot be hosted: {refused}") from refused
        self.inputs, self.outputs = ports(network.plan.inputs), ports(network.plan.outputs)
        self.activations = network.activations_size

    def settings(self, choice: Measuring) -> Settings:
        """Return how the rows of a choice, whose batch is known, are measured."""
        assert choice.batch is not None
        return Settings(choice.batch, choice.node_rows, choice.int8)


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
    """Measures in this process where `jobs` is 1, else in a pool: None, 0: one for each core."""

    def __init__(
        self, model: Path, source: Source, machine: str, options: Options, jobs: int | None
    ) -> None:
        super().__init__(model, source, machine, options)
        self._jobs = jobs

    def measure(
        self, dataset: Dataset, choice: Measuring, about: Mapping[str, str], progress: Progress
    ) -> Accuracy:
        """Measure all rows; raise ValueError, `TransportError` where the model cannot run."""
        settings, gathering = self.settings(choice), Gathering()
        batches = list(Rows(0, dataset.rows).batches(settings.batch_rows))
        with _refusals_as_of_a_server():
            if self._jobs == 1:
                model = MeasuredModel(self.contents, self.options, settings)
                for batch in batches:
                    gathering.add(model.measure(dataset, batch))
                    progress(batch.end, dataset.rows)
            else:
                cores = self._jobs or len(os.sched_getaffinity(0))
                evaluation = Evaluation(self.model, self.source, self.options, settings)
                with LocalPool(evaluation, min(cores, len(batches))) as pool:
                    gathering.add_all(pool, batches, progress)
        return as_result(gathering.report(about, choice.max_drop), choice)


class RayEngine(HostedModel):
    """Measures on a Ray cluster, whose nodes read the data: `jobs` tasks at a time."""

    def __init__(
        self,
        model: Path,
        source: Source,
        machine: str,
        options: Options,
        jobs: int | None,
        address: str,
    ) -> None:
        super().__init__(model, source, machine, options)
        self._jobs, self._address = jobs, address

    def measure(
        self, dataset: Dataset, choice: Measuring, about: Mapping[str, str], progress: Progress
    ) -> Accuracy:
        """Measure all rows; raise as `LocalEngine`, `ClusterError` for what no node can do."""
        settings, gathering = self.settings(choice), Gathering()
        batches = list(Rows(0, dataset.rows).batches(settings.batch_rows))
        begin = partial(
            begin_on_node, Evaluation(self.contents, self.source, self.options, settings)
        )
        with (
            _refusals_as_of_a_server(),
            RayCluster(self._address, self._jobs, begin, lambda rows: rows) as cluster,
        ):
            gathering.add_all(cluster, batches, progress)
        return as_result(gathering.report(about, choice.max_drop), choice)


def begin_on_node(evaluation: Evaluation) -> Callable[[Rows], Measured]:
    """Return what measures rows on a node of a cluster; raise `ModelRefused`, `ClusterError`."""
    try:
        return evaluation.begin()
    except ModelRefused:
        raise
    except (OSError, ValueError) as error:
        raise node_error(error, "every node reads the data, under the same path") from error


@contextmanager
def _refusals_as_of_a_server() -> Generator[None]:
    """Raise `ModelRefused` as a server's answer where a node refuses, else as ValueError."""
    try:
        yield
    except ModelRefused as refused:
        raise (_refusal(str(refused)) if refused.node else ValueError(str(refused))) from refused


def _refusal(why: str) -> TransportError:
    return TransportError("INVALID_ARGUMENT", why, "MODEL_INVALID")
