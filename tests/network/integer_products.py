# SPDX-License-Identifier: Apache-2.0
"""Prints how far products of UINT8 and INT8 at full scale are from exact integers, as JSON.

A program of its own, for processors that an emulator stands for: python -m
tests.network.integer_products. Exact results are NumPy's sums of int64.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from nnpa_emulator import Guest, find_machine
from nnpa_network.importing.onnx_import import import_onnx
from nnpa_network.reporting.fp32_values import all_values
from nnpa_network.reporting.interpreter import Interpreter
from nnpa_network.running import host
from onnx import helper, numpy_helper

from tests.network.hosting import Array

ROWS, DEPTH, COLUMNS = 4, 64, 16
STEP = np.float32(DEPTH * 255)  # of the quantised outputs
MIDDLE = 128
_UINT8, _FLOAT, _INT32 = onnx.TensorProto.UINT8, onnx.TensorProto.FLOAT, onnx.TensorProto.INT32
_RNG = np.random.default_rng(0)
X = _RNG.integers(0, 256, (ROWS, DEPTH)).astype(np.uint8)
X[0] = 255
W = _RNG.integers(-128, 128, (DEPTH, COLUMNS)).astype(np.int8)
W[:, 0], W[:, 1] = 127, -128
SUMS = X.astype(np.int64) @ W.astype(np.int64)
CODES = np.clip(np.rint(SUMS / STEP) + MIDDLE, 0, 255)
_CONSTANTS = {
    "w": W, "u": np.uint8(0), "s": np.int8(0), "one": np.float32(1), "step": STEP,
    "middle": np.uint8(MIDDLE),
}  # fmt: skip
_QDQ = (
    ("QuantizeLinear", "x one u", "q"),
    ("DequantizeLinear", "q one u", "xf"),
    ("DequantizeLinear", "w one s", "wf"),
)
_LINEAR = "x one u w one s step middle"


def models() -> Iterator[tuple[str, onnx.ModelProto, Array, Array]]:
    """Yield models of a product: a name, the model, what it is fed and what it must give."""
    images, codes = X.T.reshape(1, DEPTH, ROWS, 1), CODES.T.reshape(1, COLUMNS, ROWS, 1)
    kernels = {"w": W.T.reshape(COLUMNS, DEPTH, 1, 1)}
    floats, back = X.astype(np.float32), ("QuantizeLinear", "m step middle", "y")
    product = ("MatMul", "xf wf", "m")
    yield "MatMulInteger", _model([("MatMulInteger", "x w u s", "y")], X, _INT32), X, SUMS
    yield "QLinearMatMul", _model([("QLinearMatMul", _LINEAR, "y")], X), X, CODES
    yield (
        "QLinearConv",
        _model([("QLinearConv", _LINEAR, "y")], images, constants=kernels),
        images,
        codes,
    )
    yield "QDQ", _model([*_QDQ, product, back], floats), floats, CODES
    to_float = _model([*_QDQ, ("MatMul", "xf wf", "y")], floats, _FLOAT)
    yield "QDQ to FP32", to_float, floats, SUMS
    shared = [*_QDQ, product, ("MatMul", "xf wf", "n"), ("Max", "m n", "k")]
    repeated = ("QuantizeLinear", "k step middle", "y")
    yield "QDQ of shared weights", _model([*shared, repeated], floats), floats, CODES


def _model(
    nodes: list[tuple[str, str, str]],
    x: Array,
    kind: int = _UINT8,
    constants: Mapping[str, Array] | None = None,
) -> onnx.ModelProto:
    arrays = {**_CONSTANTS, **(constants or {})}
    used = {name for _, inputs, _ in nodes for name in inputs.split()}
    graph = helper.make_graph(
        [helper.make_node(op, inputs.split(), [output]) for op, inputs, output in nodes],
        "product",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(np.asarray(arrays[name]), name) for name in used & arrays.keys()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def errors() -> dict[str, float]:
    """Return the largest error of each model: as a baseline, node by node, and on the host."""
    result: dict[str, float] = {}
    for name, proto, x, exact in models():
        data = proto.SerializeToString()
        model, feeds = import_onnx(data, Guest(find_machine("telum2"))), {"x": x}
        results: dict[str, Any] = {
            "baseline": host.results(host.load(data), ["y"], feeds)[0],
            "all values": all_values(data)(feeds)["y"],
            "node by node": Interpreter(model).run(feeds, 0)["y"],
        }
        if "QDQ" not in name:  # whose products are the accelerator's, in DLFLOAT16
            results["hosted"] = model.run(feeds).outputs["y"]
        for where, got in results.items():
            result[f"{name}, {where}"] = float(np.abs(np.asarray(got, np.float64) - exact).max())
    return result


if __name__ == "__main__":
    print(json.dumps(errors()))
