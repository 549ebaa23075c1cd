# SPDX-License-Identifier: Apache-2.0
"""Evaluation of a model: a data set is opened once, and an engine measures its rows."""

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from nnpa_client.network.hosted import Port

from nnpa_tools.evaluation.datasets import Dataset
from nnpa_tools.evaluation.results import Accuracy

_MIB = 1 << 20
_BATCH_BYTES, _SPACE_BYTES = 8 * _MIB, 512 * _MIB
_MAX_BATCH, _MIN_ROW = 4096, 1
_CPU = Path("/proc/cpuinfo")
Progress = Callable[[int, int], None]
"""Is called with the number of rows that are done, and of all rows."""


@dataclass(frozen=True, slots=True)
class Measuring:
    """How to measure: as the fields of MeasureAccuracyRequest; `batch` None: by size of a row."""

    machines: Sequence[str] = ()
    batch: int | None = None
    node_rows: int = 16
    int8: bool = True
    max_drop: float | None = None
    html: bool = False


class Engine(Protocol):
    """Measures a model: on this machine, on a Ray cluster, or at a server."""

    @property
    def inputs(self) -> Sequence[Port]:
        """The model's inputs."""
        ...

    @property
    def outputs(self) -> Sequence[Port]:
        """The model's outputs."""
        ...

    @property
    def activations(self) -> int:
        """Bytes of sticks of a run with the declared inputs."""
        ...

    def measure(
        self, dataset: Dataset, choice: Measuring, about: Mapping[str, str], progress: Progress
    ) -> Accuracy:
        """Measure all rows in batches of `choice.batch`; `about` has lines for the report."""
        ...


def evaluate(
    engine: Engine,
    dataset: Dataset,
    choice: Measuring,
    about: Mapping[str, str],
    progress: Progress | None = None,
) -> Accuracy:
    """Measure the model of an engine over a data set; raise as `accuracy` does."""
    size = choice.batch or batch_rows(dataset, engine.inputs, engine.activations)
    lines = {**about, **dataset.about}
    return engine.measure(dataset, replace(choice, batch=size), lines, progress or _ignore)


def _ignore(_done: int, _of: int) -> None:
    """Ignore progress."""


def batch_rows(dataset: Dataset, inputs: Sequence[Port], activations: int) -> int:
    """Return a batch size, a power of two, by the bytes of a row and of its sticks."""
    row = sum(array.nbytes for array in dataset.read(0, 1).values())
    declared = sum(
        max(int(np.prod([max(dim, 1) for dim in port.shape])), 1) * _itemsize(port.dtype)
        for port in inputs
    )
    space = activations * max(1, row // max(declared, 1))
    most = min(_MAX_BATCH, _BATCH_BYTES // max(row, 1), _SPACE_BYTES // max(space, 1))
    return 1 << max(most, _MIN_ROW).bit_length() - 1


def _itemsize(dtype: str) -> int:
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def facts(*, here: bool) -> dict[str, str]:
    """Return the lines of a report on this process: date, versions, and the processor."""
    lines = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "versions": f"nnpa {version('nnpa')}, Python {platform.python_version()}",
    }
    if here:
        lines["host CPU"] = f"{processor()}, {os.cpu_count()} CPUs, {platform.system()}"
    return lines


def processor() -> str:
    """Return the kind of this machine's processor."""
    try:
        lines = _CPU.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def save_rows(path: Path, dataset: Dataset, rows: Sequence[int]) -> None:
    """Write rows to a .npz: inputs by name, `row`, and `label` where there are labels."""
    parts = [dataset.read(row, row + 1) for row in rows]
    arrays: dict[str, Any] = {
        name: np.concatenate([part[name] for part in parts]) for name in (parts[0] if parts else ())
    }
    arrays["row"] = np.array(rows, np.int64)
    if dataset.labels is not None:
        arrays["label"] = dataset.labels[rows]
    np.savez(path, **arrays)
