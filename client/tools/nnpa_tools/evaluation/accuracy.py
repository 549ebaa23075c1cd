# SPDX-License-Identifier: Apache-2.0
"""Does a model keep its accuracy on the machine? Measured over a whole dataset, batch by batch."""

import html as markup
import json
import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
from nnpa.network.v1 import network_pb2 as pb
from nnpa_client._server.methods import MEASURE_ACCURACY
from nnpa_client.connection import connect
from nnpa_client.network.calls import Model, Options
from nnpa_client.network.hosted import Network, Port
from nnpa_client.session import Session

from nnpa_tools.evaluation.datasets import Dataset, Preprocessing, open_data
from nnpa_tools.evaluation.datasets.opening import Data, Labels
from nnpa_tools.jobs import Progress

__tracebackhide__ = True  # pytest shows the line that called, not these

_MIB = 1 << 20
_BATCH_BYTES, _SPACE_BYTES = 8 * _MIB, 512 * _MIB
_MAX_BATCH, _MIN_ROW = 4096, 1
MAX_MESSAGE = 60 * _MIB  # less than a server's limit, which is 64 MiB unless it says otherwise
_CPU = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class Measuring:
    """How to measure: as the fields of MeasureAccuracyRequest; `batch` None: by size of a row."""

    machines: Sequence[str] = ()
    batch: int | None = None
    node_rows: int = 16
    int8: bool = True
    max_drop: float | None = None
    html: bool = False


@dataclass(frozen=True, slots=True)
class Accuracy:
    """What DLFLOAT16 does to a model: the answer, figures side by side, and the whole report.

    `verdict` is one sentence. `table` has a row for FP32, each machine, and INT8. `report` is what
    `nnpa network validate --json` prints; `text` and `html` are for people.
    """

    report: Mapping[str, Any]
    text: str = field(repr=False)
    html: str = field(repr=False)

    @property
    def verdict(self) -> str:
        """The sentence that answers."""
        return str(self.report["verdict"])

    @property
    def drop(self) -> float:
        """What the worst machine loses: accuracy, or without labels the share of answers."""
        return max((run["drop"] for run in self._machines()), default=0.0)

    @property
    def table(self) -> list[dict[str, Any]]:
        """Figures side by side: a dict for each of FP32, the machines, and INT8."""
        rows: list[dict[str, Any]] = []
        fp32 = self.report["fp32"]
        if fp32 is not None:
            rows.append({"run": "FP32", "accuracy": fp32["accuracy"], "top5": fp32["top5"],
                         "drop": 0.0, "changed": 0, "l2r": 0.0})  # fmt: skip
        for run in self.report["runs"]:
            if run["drop"] is None:
                continue
            labels = run["labels"] or {"accuracy": None, "top5": None}
            name = run["machine"] if run["numbers"] == "dlfloat16" else f"{run['machine']} int8"
            errors = [output["l2r"] for output in run["outputs"] if output["l2r"] is not None]
            rows.append({"run": name, "accuracy": labels["accuracy"], "top5": labels["top5"],
                         "drop": run["drop"], "changed": run["changed"],
                         "l2r": max(errors, default=None)})  # fmt: skip
        return rows

    @property
    def worst(self) -> list[int]:
        """The rows that any machine lists as the worst, sorted."""
        return sorted({row["row"] for run in self._machines() for row in run["worst"]})

    def to_pandas(self) -> Any:
        """Return `table` as a pandas.DataFrame, which needs pandas."""
        pandas: Any = import_module("pandas")
        return pandas.DataFrame(self.table).set_index("run")

    def _machines(self) -> list[Any]:
        runs = self.report["runs"]
        return [run for run in runs if run["drop"] is not None and run["numbers"] == "dlfloat16"]

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        names = ("run", "accuracy", "top5", "drop", "changed", "l2r")
        head = "".join(f"<th>{name}</th>" for name in names)
        body = "".join(
            "<tr>" + "".join(f"<td>{_cell(row[name])}</td>" for name in names) + "</tr>"
            for row in self.table
        )
        return f"<p>{markup.escape(self.verdict)}</p><table><tr>{head}</tr>{body}</table>"


def _cell(figure: object) -> str:
    if figure is None:
        return "-"
    return f"{figure:.5g}" if isinstance(figure, float) else markup.escape(str(figure))


def accuracy(
    model: Model,
    data: Data,
    labels: Labels = None,
    *,
    target: str | Session | None = None,
    options: Options | None = None,
    preprocessing: Preprocessing | None = None,
    samples: int | None = None,
    machines: Sequence[str] = (),
    batch: int | None = None,
    node_rows: int = 16,
    int8: bool = True,
    max_drop: float | None = None,
    progress: Progress | None = None,
) -> Accuracy:
    """Measure a model over data on both Telums, or `machines`, beside FP32 and INT8.

        result = nnpa_client.accuracy("model.onnx", x, y)
        print(result.verdict)

    `data` are arrays by the inputs' names, one array for the only input, or the path of a .npz,
    .npy, .csv, .parquet or folder of images, which `preprocessing` turns into an input; `labels`
    are integers, a file of them, or the name of an array or column of the data. `target` is the
    address of a server, or a session; without one a private server is started. `samples` bounds
    the rows; `batch` are rows that run together, `node_rows` how many are measured node by node;
    `max_drop` is what the verdict compares with; `progress` is told rows done and in all. Raises
    ValueError for data that do not fit, `TransportError` for a model that cannot be hosted.
    """
    choice = Measuring(machines, batch, node_rows, int8, max_drop, html=True)
    opened = nullcontext(target) if isinstance(target, Session) else connect(target)
    with opened as session, session.load(model, options=options or Options()) as net:
        dataset = open_data(
            data, net.inputs, net.outputs, labels, preprocessing, (options or Options()).shapes
        ).first(samples)
        name = {"model": Path(fspath(model)).name} if isinstance(model, str | PathLike) else {}
        here = target is None or (isinstance(target, str) and target.startswith("unix:"))
        return evaluate(net, dataset, choice, {**name, **facts(here=here)}, progress)


def facts(*, here: bool) -> dict[str, str]:
    """Return lines of a report that only this side knows: date, versions, and the processor."""
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


def evaluate(
    net: Network,
    dataset: Dataset,
    choice: Measuring,
    about: Mapping[str, str],
    progress: Progress | None = None,
) -> Accuracy:
    """Measure a loaded network over a dataset; raise as `accuracy` does."""
    space = net.report().activations.channels
    size = choice.batch or batch_rows(dataset, net.inputs, space)
    measurements = b""
    for first in range(0, dataset.rows, size):
        last = min(first + size, dataset.rows)
        request = _request(net, choice, size)
        request.rows.extend(net.named_arrays(dataset.read(first, last)))
        request.first_row = first
        request.only_measurements = True
        request.measurements = measurements
        if dataset.labels is not None:
            labels = np.ascontiguousarray(dataset.labels[first:last].astype(np.int64))
            request.labels.CopyFrom(
                pb.NamedArray(dtype="int64", shape=labels.shape, data=labels.tobytes())
            )
        _require_size(request, last - first)
        answer = net.handle.session.transport.unary(MEASURE_ACCURACY, request)
        measurements = answer.measurements
        if progress is not None:
            progress(last, dataset.rows)
    request = _request(net, choice, size)
    request.measurements, request.html = measurements, choice.html
    if choice.max_drop is not None:
        request.max_drop = choice.max_drop
    request.about.update({name: text[:900] for name, text in {**about, **dataset.about}.items()})
    answer = net.handle.session.transport.unary(MEASURE_ACCURACY, request)
    return Accuracy(json.loads(answer.json), answer.text, answer.html)


def _request(net: Network, choice: Measuring, size: int) -> pb.MeasureAccuracyRequest:
    return pb.MeasureAccuracyRequest(
        session=net.handle.session.name,
        network=net.handle.name,
        machines=choice.machines,
        batch_rows=size,
        node_rows=choice.node_rows,
        int8=choice.int8,
    )


def _require_size(request: pb.MeasureAccuracyRequest, rows: int) -> None:
    size = request.ByteSize()
    if size > MAX_MESSAGE:
        text = f"a batch of {rows} rows has {size:,} bytes, a message takes {MAX_MESSAGE:,}"
        raise ValueError(f"{text}: give a smaller --batch")


def batch_rows(dataset: Dataset, inputs: Sequence[Port], activations: int) -> int:
    """Return a power of two by the size of a row, and by what a run of it takes for sticks.

    `activations` are the bytes that the network takes for a run over inputs as declared.
    """
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
