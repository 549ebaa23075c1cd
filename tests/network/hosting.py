# SPDX-License-Identifier: Apache-2.0
"""Models in ONNX's text form, hosted, beside ONNX Runtime in FP32."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.parser
import onnxruntime
from nnpa_emulator import Guest, find_machine
from nnpa_network.importing.onnx_import import ImportOptions, OnnxModel, import_onnx
from nnpa_network.program import Node
from nnpa_network.running.results import Result

Array = npt.NDArray[Any]


def text_model(body: str, opset: int = 20) -> bytes:
    """Return a model from `name (inputs) => (outputs) {nodes}` in ONNX's text form."""
    header = f'<ir_version: 9, opset_import: ["" : {opset}]> '
    parser: Any = onnx.parser
    return bytes(parser.parse_model(header + body).SerializeToString())


def load(model: bytes, machine: str = "telum2", **options: Any) -> OnnxModel:
    """Import a model for a machine."""
    return import_onnx(model, Guest(find_machine(machine)), ImportOptions(**options))


def reference(model: bytes, feeds: Mapping[str, Array]) -> list[Array]:
    """Run a model with ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, dict(feeds))]


def nodes(model: OnnxModel, feeds: Mapping[str, Array]) -> tuple[Node, ...]:
    """Return where the nodes of a model went for these inputs."""
    return model.specialise({name: array.shape for name, array in feeds.items()}).nodes


def agree(
    body: str, feeds: Mapping[str, Array], machine: str = "telum2", opset: int = 20, **options: Any
) -> tuple[Result, tuple[Node, ...]]:
    """Run a model hosted and by ONNX Runtime; assert that they agree within the tolerances."""
    model = text_model(body, opset)
    hosted = load(model, machine, **options)
    result = hosted.run(feeds)
    for got, expected in zip(result.outputs.values(), reference(model, feeds), strict=True):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(got, expected, rtol=0.05, atol=0.01)
    return result, nodes(hosted, feeds)


def normal(*shape: int, seed: int = 0) -> npt.NDArray[np.float32]:
    """Return standard normal numbers."""
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)
