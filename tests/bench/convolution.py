# SPDX-License-Identifier: Apache-2.0
"""Row 10: convolution on sticks and ONNX Runtime in FP32 on one thread, and the cost of fp64."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnxruntime
import threadpoolctl
from nnpa_emulator import MACHINES, Guest, run
from nnpa_emulator.ztensor import DataFormats

from tests.bench.report import Figure, Work, ratio, row
from tests.emulator.operands import blank, tensor
from tests.oracle.rounding import decoded, rounded


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution with SAME padding: input (h, w, c), square kernel, channels, stride, bounds."""

    size: tuple[int, int, int]
    kernel: int
    channels: int
    stride: int
    floor: float
    moonshot: float

    @property
    def label(self) -> str:
        """Name the layer."""
        sizes = "x".join(str(size) for size in self.size)
        slide = f"/{self.stride}" if self.stride > 1 else ""
        return f"{self.kernel}x{self.kernel}{slide} {sizes}->{self.channels}"


LAYERS = (
    Layer((56, 56, 64), 3, 64, 1, 0.6, 0.85),
    Layer((224, 224, 3), 7, 64, 2, 0.4, 0.75),
    Layer((56, 56, 64), 1, 256, 1, 0.6, 0.9),
)


def _session(layer: Layer, weights: Any, bias: Any) -> onnxruntime.InferenceSession:
    """Return one Conv in ONNX Runtime, weights as constants, one thread."""
    make: Any = onnx.helper
    single, (high, wide, inputs) = onnx.TensorProto.FLOAT, layer.size
    node = make.make_node(
        "Conv", ["x", "w", "b"], ["y"], strides=[layer.stride] * 2, auto_pad="SAME_UPPER"
    )
    source = make.make_tensor_value_info("x", single, (1, inputs, high, wide))
    result = make.make_tensor_value_info("y", single, None)
    constants = [
        onnx.numpy_helper.from_array(weights, "w"),
        onnx.numpy_helper.from_array(bias, "b"),
    ]
    graph = make.make_graph([node], "layer", [source], [result], constants)
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)])
    model.ir_version = 8
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _works(layer: Layer) -> dict[str, Work]:
    """Return the convolution on sticks in FP32 and in float64, ONNX Runtime, and a bare sgemm."""
    random = np.random.default_rng(1)
    depth = layer.kernel**2 * layer.size[2]
    x = rounded(random.standard_normal((1, *layer.size)))
    shape = (layer.kernel, layer.kernel, layer.size[2], layer.channels)
    weights = rounded(random.standard_normal(shape) / np.sqrt(depth))
    bias = rounded(random.standard_normal((1, 1, 1, layer.channels)))
    high, wide = (-(-size // layer.stride) for size in layer.size[:2])
    arguments = {
        "input": tensor(x),
        "kernel": tensor(weights, DataFormats.ZDNN_FORMAT_4DKERNEL),
        "bias": tensor(bias),
        "padding_type": 1,
        "stride_height": layer.stride,
        "stride_width": layer.stride,
        "act_func": 0,
        "output": blank((1, high, wide, layer.channels)),
    }
    exact, single = Guest(MACHINES["telum2"]), Guest(MACHINES["telum2"])
    exact.accumulate = "fp64"
    values = [decoded(tensor).astype(np.float32) for tensor in (x, weights, bias)]
    order = np.ascontiguousarray(values[1].transpose(3, 2, 0, 1))
    session = _session(layer, order, values[2].reshape(-1))
    feed = {"x": np.ascontiguousarray(values[0].transpose(0, 3, 1, 2))}
    left = random.standard_normal((high * wide, depth)).astype(np.float32)
    right = random.standard_normal((depth, layer.channels)).astype(np.float32)
    sums = np.empty((high * wide, layer.channels), np.float32)
    return {
        "fp32": partial(run, single, "conv2d", arguments),
        "fp64": partial(run, exact, "conv2d", arguments),
        "onnx": partial(session.run, None, feed),
        "sgemm": partial(np.dot, left, right, out=sums),
    }


@row("10", "conv2d on sticks, share of ONNX Runtime's speed, one thread")
def convolution() -> list[Figure]:
    """Measure the three layers, and for each layer a bare matrix product of its size."""
    figures: list[Figure] = []
    with threadpoolctl.threadpool_limits(1):
        for layer in LAYERS:
            works = _works(layer)
            share = ratio(works["onnx"], works["fp32"])
            bare = ratio(works["onnx"], works["sgemm"])
            note = f"bare sgemm {bare:.2f}"
            figures.append(
                Figure(layer.label, share, layer.floor, layer.moonshot, more=True, note=note)
            )
            cost = ratio(works["fp64"], works["fp32"])
            figures.append(Figure(f"{layer.label}, fp64 / fp32 (time)", cost))
    return figures
