# SPDX-License-Identifier: Apache-2.0
"""Models with nodes for the host, and their runs here and in a worker."""

import numpy as np
from nnpa_emulator import find_machine
from onnx import ModelProto, helper

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
