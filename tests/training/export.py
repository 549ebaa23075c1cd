# SPDX-License-Identifier: Apache-2.0
"""Writes the digits CNN as an ONNX file: `python -m tests.training.export`.

The same weights as in digits.npz, in ONNX's own orders: images are (batch, 1, 8, 8), kernels OIHW.
"""

from pathlib import Path
from typing import Any

import numpy as np
from nnpa_client.networks import weights
from onnx import TensorProto, helper

TARGET = Path(__file__).parents[2] / "client/python/nnpa_client/networks/digits_cnn.onnx"
OPSET, IR_VERSION = 17, 8  # what runtimes of 2022 and later read


def digits_cnn() -> bytes:
    """Return the network: two convolutions with ReLU and pooling, then a dense layer."""
    trained = weights("cnn")
    constants = {
        "conv1_kernel": trained["conv1_kernel"].transpose(3, 2, 0, 1),
        "conv1_bias": trained["conv1_bias"],
        "conv2_kernel": trained["conv2_kernel"].transpose(3, 2, 0, 1),
        "conv2_bias": trained["conv2_bias"],
        # Rows are (height, width, channel) where they come from, (channel, height, width) here.
        "dense_weights": trained["dense_weights"]
        .reshape(2, 2, 16, 10)
        .transpose(2, 0, 1, 3)
        .reshape(64, 10),
        "dense_bias": trained["dense_bias"],
    }
    nodes: list[Any] = []
    before = "image"
    for stage in ("conv1", "conv2"):
        names = [before, f"{stage}_kernel", f"{stage}_bias"]
        nodes += (
            helper.make_node("Conv", names, [stage], stage, kernel_shape=[3, 3], pads=[1] * 4),
            helper.make_node("Relu", [stage], [f"{stage}_relu"], f"{stage}_relu"),
            helper.make_node(
                "MaxPool", [f"{stage}_relu"], [f"{stage}_pool"], f"{stage}_pool",
                kernel_shape=[2, 2], strides=[2, 2],
            ),
        )  # fmt: skip
        before = f"{stage}_pool"
    nodes += (
        helper.make_node("Flatten", [before], ["features"], "flatten"),
        helper.make_node("Gemm", ["features", "dense_weights", "dense_bias"], ["logits"], "dense"),
    )
    graph = helper.make_graph(
        nodes,
        "digits_cnn",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ("batch", 1, 8, 8))],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ("batch", 10))],
        [_constant(name, array) for name, array in constants.items()],
    )
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)
    return bytes(model.SerializeToString(deterministic=True))


def _constant(name: str, array: Any) -> Any:
    dense = np.ascontiguousarray(array, np.float32)
    return helper.make_tensor(name, TensorProto.FLOAT, dense.shape, dense.tobytes(), raw=True)


if __name__ == "__main__":
    TARGET.write_bytes(digits_cnn())
