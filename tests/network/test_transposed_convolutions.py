# SPDX-License-Identifier: Apache-2.0
"""ConvTranspose beside ONNX Runtime: shapes and values over all attributes, 1-D to 3-D."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from nnpa_network.running.results import StepFailed
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
from packaging.version import Version

from tests.network.hosting import Array, load, nodes, normal, reference

SIZES = (4, 3, 2)
CHANNELS = 2
EVERY = {1: 1, 2: 3, 3: 8}
"""Of the cases of a rank every n-th is run."""
AUTO_PADS: dict[str, dict[str, Any]] = {
    "none": {},
    "pads": {"pads": [1, 0]},
    "SAME_UPPER": {"auto_pad": "SAME_UPPER"},
    "SAME_LOWER": {"auto_pad": "SAME_LOWER"},
    "VALID": {"auto_pad": "VALID"},
}


def cases(rank: int, padding: str) -> Iterator[dict[str, Any]]:
    """Yield attributes: strides, dilations, kernels, output_padding, output_shape, groups."""
    grid = product((1, 2, 3), (1, 2), (1, 3), (0, 1, 2), (None, -2, 0, 3), (1, 2))
    for number, (stride, dilation, kernel, extra, beyond, groups) in enumerate(grid):
        if number % EVERY[rank]:
            continue
        attributes: dict[str, Any] = {
            "strides": [stride] * rank,
            "dilations": [dilation] * rank,
            "kernel_shape": [kernel] * rank,
            "group": groups,
        }
        attributes |= {
            name: number * rank if name == "pads" else number
            for name, number in AUTO_PADS[padding].items()
        }
        if extra:
            attributes["output_padding"] = [extra] * rank
        if beyond is not None:
            attributes["output_shape"] = [max(1, size * stride + beyond) for size in SIZES[:rank]]
        yield attributes


def transposed(attributes: dict[str, Any], weights: Array) -> bytes:
    """Return a model of one ConvTranspose whose output's sizes are not declared."""
    rank = weights.ndim - 2
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], "up", **attributes)
    shape = (1, CHANNELS, *SIZES[:rank])
    graph = helper.make_graph(
        [node],
        "transposed",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * (rank + 2))],
        [numpy_helper.from_array(weights, "w")],
    )
    imports = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    return bytes(model.SerializeToString())


def compare(attributes: dict[str, Any]) -> str:
    """Run both; return "refused" where ONNX Runtime does not run it, else the node's device."""
    kernel = attributes["kernel_shape"]
    shape = (CHANNELS, CHANNELS // attributes["group"], *kernel)
    model = transposed(attributes, normal(*shape, seed=1))
    feeds: dict[str, Array] = {"x": normal(1, CHANNELS, *SIZES[: len(kernel)])}
    hosted = load(model, placement="all")
    try:
        (expected,) = reference(model, feeds)
    except InvalidArgument:
        with pytest.raises(StepFailed, match="up"):
            hosted.run(feeds)
        return "refused"
    got = hosted.run(feeds).outputs["y"]
    assert got.shape == expected.shape, attributes
    np.testing.assert_allclose(got, expected, rtol=0.05, atol=0.02, err_msg=str(attributes))
    assert hosted.outputs[0].shape in (expected.shape, (-1,) * expected.ndim), attributes
    return nodes(hosted, feeds)[0].device


@pytest.mark.parametrize(
    "rank", [pytest.param(1, marks=pytest.mark.heavy), 2, pytest.param(3, marks=pytest.mark.heavy)]
)
@pytest.mark.parametrize("padding", AUTO_PADS)
def test_transposed_convolution(rank: int, padding: str) -> None:
    """Shapes and values equal ONNX Runtime's; a node that it does not run fails by name."""
    if rank == 2 and Version(onnxruntime.__version__).release[:2] <= (1, 21):
        pytest.skip("ONNX Runtime 1.21 leaves a part of an output_shape unwritten")
    outcomes = [compare(attributes) for attributes in cases(rank, padding)]
    ran = len(outcomes) - outcomes.count("refused")
    assert ran >= len(outcomes) // 3
    assert ("accelerator" in outcomes) == (rank < 3)


def test_output_without_a_declared_shape() -> None:
    """The signature of a SAME_UPPER with output_padding has the sizes that ONNX Runtime makes."""
    attributes: dict[str, Any] = {"auto_pad": "SAME_UPPER", "strides": [2, 2]}
    model = onnx.ModelProto.FromString(
        transposed(attributes | {"output_padding": [1, 1]}, normal(2, 3, 3, 3))
    )
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    assert load(model.SerializeToString()).outputs[0].shape == (1, 3, 8, 6)
