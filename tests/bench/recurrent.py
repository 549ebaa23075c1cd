# SPDX-License-Identifier: Apache-2.0
"""Row 11: an LSTM layer on sticks against the FP32 LSTM of ONNX Runtime, one thread each."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
from nnpa_emulator import MACHINES, Guest, Ztensor, stick
from nnpa_emulator.ztensor import DataLayouts, DataTypes, TensorDesc, getsize_ztensor
from onnx import helper
from threadpoolctl import threadpool_limits

from tests.bench.local import repeated
from tests.bench.report import Figure, ratio, row

Shape = tuple[int, int, int, int]
SHAPES: tuple[Shape, ...] = ((16, 64, 256, 256), (7, 128, 64, 200), (7, 1, 64, 200))


def tensor(scale: float, *dims: int) -> Ztensor:
    """Return sticks of normal data."""
    d4, d3, d2, d1 = dims
    desc = TensorDesc(DataLayouts.ZDNN_NHWC, 0, DataTypes.ZDNN_DLFLOAT16, d4, d3, d2, d1)
    buffer = np.zeros(getsize_ztensor(desc), np.uint8)
    values = np.random.default_rng(dims).normal(0, scale, dims).astype(np.float32)
    stick.stickify(values, desc, buffer)
    return Ztensor(desc, desc, buffer.nbytes, buffer, True)


def on_sticks(shape: Shape) -> Callable[[], object]:
    """Return a call of lstm, forward, all timesteps."""
    timesteps, batch, features, hidden = shape
    width = 4 * (-(-hidden // 64) * 64)
    arguments: dict[str, Any] = {
        "input": tensor(1, timesteps, 1, batch, features),
        "h0": tensor(1, 1, 1, batch, hidden),
        "c0": tensor(1, 1, 1, batch, hidden),
        "weights": tensor(features**-0.5, 1, 1, features, width),
        "biases": tensor(1, 1, 1, 1, width),
        "hidden_weights": tensor(hidden**-0.5, 1, 1, hidden, width),
        "hidden_biases": tensor(1, 1, 1, 1, width),
        "direction": 0,
        "hn_output": tensor(1, timesteps, 1, batch, hidden),
        "cf_output": tensor(1, 1, 1, batch, hidden),
    }
    guest = Guest(MACHINES["telum2"])
    return repeated(guest, "lstm", arguments)


def on_runtime(shape: Shape) -> Callable[[], object]:
    """Return a run of an ONNX model of the same layer, its weights constant."""
    timesteps, batch, features, hidden = shape
    random = np.random.default_rng(1)
    weights = {
        "W": random.normal(0, features**-0.5, (1, 4 * hidden, features)),
        "R": random.normal(0, hidden**-0.5, (1, 4 * hidden, hidden)),
        "B": random.normal(0, 1, (1, 8 * hidden)),
    }
    constants = [
        helper.make_tensor(name, 1, array.shape, array.astype(np.float32).ravel().tolist())
        for name, array in weights.items()
    ]
    node = helper.make_node("LSTM", ["X", *weights], ["Y"], hidden_size=hidden)
    inputs = [helper.make_tensor_value_info("X", 1, None)]
    outputs = [helper.make_tensor_value_info("Y", 1, None)]
    graph = helper.make_graph([node], "layer", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    feed = {"X": random.normal(0, 1, (timesteps, batch, features)).astype(np.float32)}

    def once() -> None:
        session.run(None, feed)

    return once


@row("11", "lstm rounded to DLFLOAT16, time over the FP32 LSTM of ONNX Runtime")
def layers() -> list[Figure]:
    """Floor 2.0, moonshot 1.1; weights are widened in the first calls and kept."""
    figures: list[Figure] = []
    for shape in SHAPES:
        with threadpool_limits(1):
            figure = ratio(on_sticks(shape), on_runtime(shape))
        figures.append(Figure("T{} B{} I{} H{}".format(*shape), figure, 2.0, 1.1))
    return figures
