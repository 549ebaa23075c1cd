# SPDX-License-Identifier: Apache-2.0
"""Row 27: accuracy over a dataset, beside ONNX Runtime doing the FP32 half alone.

One process, one machine, no INT8, one thread: batches are measured in turns with ONNX Runtime
running the same rows. What is done once (import, compilation, the nodes of the first rows) is told
apart, with the time of both machines.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median

import numpy as np
import onnx
from nnpa_network.program import Array
from nnpa_network.reporting.measuring import Measurer, Settings

from tests.bench.full_size import resnet18
from tests.bench.models import perceptron
from tests.bench.report import Figure, row, seconds_of
from tests.network.acceptance.trial import on_one_thread

_ROUNDS = 7
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
    digits = {"x": rng.standard_normal((256, 64)).astype(np.float32)}
    images = {"image": rng.standard_normal((8, 3, 224, 224)).astype(np.float32)}
    return [
        _compared("MLP of 11 nodes", with_free_batch(perceptron()), digits, 256),
        _compared("ResNet-18", with_free_batch(resnet18()), images, 8),
    ]
