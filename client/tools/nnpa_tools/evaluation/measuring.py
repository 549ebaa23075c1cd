# SPDX-License-Identifier: Apache-2.0
"""A model over rows of a dataset, in a worker: what it is told, and what it answers."""

import platform
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from nnpa_client.network.hosted import Port
from nnpa_emulator import Guest, find_machine
from nnpa_emulator.machine import TELUMS
from nnpa_files import external_data
from nnpa_network import program
from nnpa_network.importing.onnx_import import ImportOptions, import_onnx
from nnpa_network.reporting.accuracy import WorkerKind
from nnpa_network.reporting.measurements import Measurements
from nnpa_network.reporting.measuring import Measurer, Settings

from nnpa_tools.evaluation.accuracy import processor
from nnpa_tools.evaluation.datasets import Dataset
from nnpa_tools.evaluation.datasets.opening import Source
from nnpa_tools.evaluation.rows import Rows

_LIBRARIES = ("nnpa", "numpy", "numba", "onnxruntime")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What workers are told: the model's file, or its contents, where rows are, how to measure."""

    model: Path | bytes
    source: Source
    options: ImportOptions
    settings: Settings
    machines: Sequence[str] = TELUMS

    def contents(self) -> bytes:
        """Return the model's contents, external data among them."""
        return self.model if isinstance(self.model, bytes) else external_data.read_model(self.model)


@dataclass(frozen=True, slots=True)
class Measured:
    """What a worker measured, what it is, and the name of its machine."""

    measurements: Measurements
    kind: WorkerKind
    machine: str


class MeasuredModel:
    """A model that measures rows, imported once in a process."""

    def __init__(
        self,
        model: bytes,
        options: ImportOptions,
        settings: Settings,
        machines: Sequence[str] = TELUMS,
    ) -> None:
        self._measurer = Measurer(model, machines, options, settings)
        self._size = settings.batch_rows
        imported = import_onnx(model, Guest(find_machine(machines[0])), options)
        self.inputs, self.outputs = ports(imported.inputs), ports(imported.outputs)

    def measure(self, data: Dataset, rows: Rows, begin: int = 0) -> Measured:
        """Measure rows, batch by batch, of data that begin with row `begin`.

        Raise ValueError, `ModelRefused`.
        """
        batches = rows.batches(self._size)
        total = self._measure(data, next(batches), begin)
        for batch in batches:
            total.merge(self._measure(data, batch, begin))
        return Measured(total, worker_kind(), socket.gethostname())

    def _measure(self, data: Dataset, rows: Rows, begin: int) -> Measurements:
        first, end = rows.first - begin, rows.end - begin
        labels = None if data.labels is None else np.asarray(data.labels[first:end], np.int64)
        return self._measurer.measure(rows.first, data.read(first, end), labels, part=True)


class Evaluator:
    """A worker's model and data, kept for one union of batches after another."""

    def __init__(self, evaluation: Evaluation) -> None:
        self._model = MeasuredModel(
            evaluation.contents(), evaluation.options, evaluation.settings, evaluation.machines
        )
        self._data = evaluation.source.open(self._model.inputs, self._model.outputs)

    def measure(self, rows: Rows) -> Measured:
        """Measure rows; raise as `MeasuredModel.measure`."""
        return self._model.measure(self._data, rows)


def ports(own: Sequence[program.Port]) -> tuple[Port, ...]:
    """Return inputs or outputs as those who read data know them."""
    return tuple(Port(port.name, port.dtype.name, port.shape) for port in own)


@lru_cache(maxsize=1)
def worker_kind() -> WorkerKind:
    """Return what this process is."""
    names = " ".join(f"{name} {_version(name)}" for name in _LIBRARIES)
    return WorkerKind(processor(), f"{names} Python {platform.python_version()}")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # Numba may be left out
        return "none"
