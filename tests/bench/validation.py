# SPDX-License-Identifier: Apache-2.0
"""Accuracy over a dataset. Row 27: beside ONNX Runtime doing the FP32 half alone.

One process, one machine, no INT8, one thread: batches are measured in turns with ONNX Runtime
running the same rows. Work that is done once (import, compilation, the nodes of the first rows) is
reported separately, with the time of both machines.

Row 28b: two worker processes over this one, as in `nnpa network validate --jobs`, both machines.
Rows per second count from the first settled batch: work that each process does once comes before,
and is reported separately.
"""

import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import onnx
from nnpa_network.program import Array
from nnpa_network.reporting.measuring import Measurer, Settings
from threadpoolctl import threadpool_limits

from tests.bench.full_size import resnet18
from tests.bench.models import perceptron
from tests.bench.report import Figure, row, seconds_of
from tests.network.acceptance.trial import on_one_thread
from tests.tools.evaluation.requests import evaluate_rows, evaluation

_ROUNDS, _PAIRS = 7, 5
MACHINE = ("telum2",)


def with_free_batch(model: bytes) -> bytes:
    """Return a model whose first axis is free."""
    proto = onnx.ModelProto.FromString(model)
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    return proto.SerializeToString()


def _compared(name: str, model: bytes, rows: Mapping[str, Array], size: int) -> Figure:
    """Compare samples per second of both, over batches behind the first."""
    settings = Settings(size, node_rows=4)
    began = time.perf_counter()
    measurer = Measurer(model, MACHINE, settings=settings)
    measurer.measure(0, rows)
    once = time.perf_counter() - began
    both = Measurer(model, settings=settings)
    runtime = on_one_thread(model)
    fp32: Callable[[], object] = partial(runtime.run, None, dict(rows))
    ratios: list[float] = []
    rates: list[float] = []
    pairs: list[float] = []
    for number in range(_ROUNDS + 1):
        first = (8 + number) * size  # behind the batches whose turned answers are looked at
        ours = seconds_of(partial(measurer.measure, first, rows))
        theirs = seconds_of(fp32)
        two = seconds_of(partial(both.measure, first, rows))
        if number:  # the first one compiles
            ratios.append(theirs / ours)
            rates.append(size / ours)
            pairs.append(size / two)
    note = f"{median(rates):.4g} samples/s, both machines {median(pairs):.4g}; once {once:.2g} s"
    return Figure(name, median(ratios), 0.25, 0.45, more=True, note=note)


@row("27", "samples per second of validate over those of ONNX Runtime's FP32 half")
def samples_per_second() -> list[Figure]:
    """Floor 0.25, moonshot 0.45."""
    rng = np.random.default_rng(27)
    digits = {"x": rng.standard_normal((4096, 64)).astype(np.float32)}  # as validate chooses
    images = {"image": rng.standard_normal((8, 3, 224, 224)).astype(np.float32)}
    return [
        _compared("MLP of 11 nodes", with_free_batch(perceptron()), digits, 4096),
        _compared("ResNet-18", with_free_batch(resnet18()), images, 8),
    ]


def _rows_per_second(model: Path, data: Path, batch: int, jobs: int) -> tuple[float, float]:
    """Return rows per second after the first batch, and the seconds before it was settled."""
    settled: list[tuple[float, int]] = []

    def note(done: int, _rows: int) -> None:
        settled.append((time.perf_counter(), done))

    began = time.perf_counter()
    with threadpool_limits(limits=1, user_api="blas"):  # as workers have it
        job = evaluation(model, data, batch=batch, jobs=jobs, int8=False, node_rows=0)
        evaluate_rows(job, note)
    (first, some), (last, rows) = settled[0], settled[-1]
    return (rows - some) / (last - first), first - began


def _spread(name: str, model: bytes, rows: Array, batch: int) -> Figure:
    """Compare one process and two, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        file, data = Path(folder) / "model.onnx", Path(folder) / "rows.npy"
        file.write_bytes(model)
        np.save(data, rows)
        pairs = [
            [_rows_per_second(file, data, batch, jobs) for jobs in (1, 2)]
            for _number in range(_PAIRS + 1)
        ][1:]  # the first one compiles
    value = median(by_two[0] / by_one[0] for by_one, by_two in pairs)
    rates = [median(pair[at][0] for pair in pairs) for at in (0, 1)]
    start = median(by_two[1] for _by_one, by_two in pairs)
    note = f"{rates[0]:.4g} and {rates[1]:.4g} rows/s, two start in {start:.2g} s"
    return Figure(name, value, 1.7, 1.9, more=True, note=note)


@row("28b", "two processes over one: evaluation over a dataset (rows per second)")
def two_processes() -> list[Figure]:
    """Floor 1.7, moonshot 1.9."""
    rng = np.random.default_rng(28)
    digits = rng.standard_normal((4096 * 40, 64)).astype(np.float32)
    images = rng.standard_normal((4 * 24, 3, 224, 224)).astype(np.float32)
    return [
        _spread("MLP of 11 nodes", with_free_batch(perceptron()), digits, 4096),
        _spread("ResNet-18", with_free_batch(resnet18()), images, 4),
    ]
