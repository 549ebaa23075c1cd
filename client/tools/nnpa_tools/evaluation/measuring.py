# SPDX-License-Identifier: Apache-2.0
"""A model that measures rows in one process, and the sum of what several processes measured."""

import json
import platform
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from nnpa_client.network.hosted import Port
from nnpa_emulator.machine import TELUMS
from nnpa_files import external_data
from nnpa_network import program
from nnpa_network.importing.onnx_import import ImportOptions
from nnpa_network.reporting.accuracy import Report, Unmeasured, WorkerKind, as_json
from nnpa_network.reporting.accuracy_page import as_html
from nnpa_network.reporting.accuracy_text import as_text
from nnpa_network.reporting.measurements import Measurements
from nnpa_network.reporting.measuring import Measurer, Settings

from nnpa_tools.evaluation.datasets import Dataset
from nnpa_tools.evaluation.datasets.opening import Source
from nnpa_tools.evaluation.engine import Measuring, Progress, processor
from nnpa_tools.evaluation.results import Accuracy
from nnpa_tools.evaluation.rows import Rows
from nnpa_tools.evaluation.survival import Done, Survival, Workers

_LIBRARIES = ("nnpa", "numpy", "numba", "onnxruntime")


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of a process, its kind, and the name of its machine."""

    measurements: Measurements
    kind: WorkerKind
    machine: str


class MeasuredModel:
    """A model that measures rows, imported once in a process."""

    def __init__(self, model: bytes, options: ImportOptions, settings: Settings) -> None:
        self._measurer = Measurer(model, TELUMS, options, settings)
        self._size = settings.batch_rows
        self.inputs, self.outputs = ports(self._measurer.inputs), ports(self._measurer.outputs)

    def measure(self, data: Dataset, rows: Rows, begin: int = 0) -> Measured:
        """Measure rows, batch by batch; the data's first row is row `begin`.

        Raises ValueError, `ModelRefused`.
        """
        total, *parts = (self._measure(data, batch, begin) for batch in rows.batches(self._size))
        for part in parts:
            total.merge(part)
        return Measured(total, worker_kind(), socket.gethostname())

    def _measure(self, data: Dataset, rows: Rows, begin: int) -> Measurements:
        first, end = rows.first - begin, rows.end - begin
        labels = None if data.labels is None else np.asarray(data.labels[first:end], np.int64)
        return self._measurer.measure(rows.first, data.read(first, end), labels, part=True)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The task of workers: the model's file or contents, the source of rows, the settings."""

    model: Path | bytes
    source: Source
    options: ImportOptions
    settings: Settings

    def begin(self) -> Callable[[Rows], Measured]:
        """Open the data, and return the function that measures rows; raise as `measure`."""
        contents = (
            external_data.read_model(self.model) if isinstance(self.model, Path) else self.model
        )
        model = MeasuredModel(contents, self.options, self.settings)
        data = self.source.open(model.inputs, model.outputs)
        return lambda rows: model.measure(data, rows)


@dataclass(slots=True)
class Gathering:
    """Exact sums over batches, the kinds of workers that measured them, and rows that are lost."""

    total: Measurements | None = None
    kinds: dict[WorkerKind, set[str]] = field(default_factory=dict[WorkerKind, set[str]])
    lost: list[Unmeasured] = field(default_factory=list[Unmeasured])

    def add(self, measured: Measured) -> None:
        """Add the measurements of a worker; raise `ModelRefused` for batches added before."""
        self.kinds.setdefault(measured.kind, set()).add(measured.machine)
        if self.total is None:
            self.total = measured.measurements
        else:
            self.total.merge(measured.measurements)

    def add_all(
        self, workers: Workers[Measured], batches: Sequence[Rows], progress: Progress
    ) -> None:
        """Have workers measure batches, and add their results and losses."""
        settled = 0
        for outcome in Survival(workers, batches).outcomes():
            rows = outcome.rows
            if isinstance(outcome, Done):
                self.add(outcome.result)
            else:
                self.lost.append(Unmeasured(rows.first, rows.end - 1, outcome.why))
            settled += len(rows)
            progress(settled, batches[-1].end)

    def report(self, about: Mapping[str, str], max_drop: float | None = None) -> Report:
        """Return the report; raise ValueError if nothing was measured."""
        if self.total is None:
            raise ValueError(f"nothing was measured: {'; '.join(map(str, sorted(self.lost)))}")
        return Report(self.total, about, max_drop, self._workers(), sorted(self.lost))

    def _workers(self) -> list[WorkerKind]:
        """Return the kinds of workers, by the names of their machines where they differ."""
        if len(self.kinds) == 1:
            return list(self.kinds)
        return sorted(replace(kind, names=tuple(sorted(n))) for kind, n in self.kinds.items())


def as_result(report: Report, choice: Measuring) -> Accuracy:
    """Return a report as an evaluation gives it."""
    page = as_html(report) if choice.html else ""
    return Accuracy(json.loads(as_json(report)), as_text(report), page)


def ports(own: Sequence[program.Port]) -> tuple[Port, ...]:
    """Return inputs or outputs as ports of the client."""
    return tuple(Port(port.name, port.dtype.name, port.shape) for port in own)


@lru_cache(maxsize=1)
def worker_kind() -> WorkerKind:
    """Return the kind of this process: processor and versions."""
    names = " ".join(f"{name} {_version(name)}" for name in _LIBRARIES)
    return WorkerKind(processor(), f"{names} Python {platform.python_version()}")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # Numba may be left out
        return "none"
