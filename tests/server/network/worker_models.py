# SPDX-License-Identifier: Apache-2.0
"""Models with nodes for the host alone, for tests of workers."""

from itertools import pairwise

import numpy as np
from nnpa_emulator import find_machine
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.network import small_models

GUEST = find_machine("telum1")


def mixed() -> ModelProto:
    """Return y = cumsum(relu(x @ w)), of which the sum runs on the host; NaN is a warning."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], "product"),
        helper.make_node("Relu", ["product"], ["positive"], "act"),
        helper.make_node("CumSum", ["positive", "axis"], ["y"], "sums"),
    ]
    constants = {"w": small_models.WEIGHT, "axis": np.array(1, np.int64)}
    return small_models.model(
        nodes, [("x", np.float32, ["N", 4])], [("y", np.float32, ["N", 3])], constants
    )


def looped(trips: int, doublings: int) -> ModelProto:
    """Return a Loop that doubles an array `doublings` times each of `trips` times, from 1 on."""
    names = ["v", *(f"d{index}" for index in range(doublings))]
    nodes = [helper.make_node("Identity", ["go"], ["on"])]
    nodes += [helper.make_node("Concat", [a, a], [b], axis=0) for a, b in pairwise(names)]
    nodes.append(helper.make_node("Identity", [names[-1]], ["o"]))
    body = helper.make_graph(
        nodes,
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, [None]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("o", TensorProto.FLOAT, [None]),
        ],
    )
    loop = helper.make_node("Loop", ["trips", "", "x"], ["grown"], "loop", body=body)
    total = helper.make_node("ReduceSum", ["grown"], ["y"], "total", keepdims=0)
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [loop, total],
        "looped",
        [info("x", TensorProto.FLOAT, [1])],
        [info("y", TensorProto.FLOAT, [])],
        [numpy_helper.from_array(np.array(trips, np.int64), "trips")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def endless(trips: int | None = 10_000) -> ModelProto:
    """Return a Loop that takes long in little memory; without `trips` these are an input."""
    nodes = [helper.make_node("Identity", ["go"], ["on"])]
    nodes += [
        helper.make_node("MatMul", ["v" if not index else f"m{index}", "v"], [f"m{index + 1}"])
        for index in range(8)
    ]
    nodes.append(helper.make_node("Tanh", ["m8"], ["o"]))
    info = helper.make_tensor_value_info
    sides = [400, 400]
    body = helper.make_graph(
        nodes,
        "body",
        [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []),
         info("v", TensorProto.FLOAT, sides)],
        [info("on", TensorProto.BOOL, []), info("o", TensorProto.FLOAT, sides)],
    )  # fmt: skip
    loop = helper.make_node("Loop", ["trips", "", "x"], ["y"], "loop", body=body)
    graph = helper.make_graph(
        [loop],
        "endless",
        [info("x", TensorProto.FLOAT, sides)]
        + [info("trips", TensorProto.INT64, []) for _ in range(trips is None)],
        [info("y", TensorProto.FLOAT, sides)],
        [] if trips is None else [numpy_helper.from_array(np.array(trips, np.int64), "trips")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
