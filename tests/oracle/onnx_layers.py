# SPDX-License-Identifier: Apache-2.0
"""Single layers computed by ONNX Runtime in FP32, NHWC in and out.

Source: ONNX operators Conv, MaxPool and AveragePool of opset 17, padding given element by element.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime

Singles = npt.NDArray[np.float32]
_IR_VERSION, _OPSET = 8, 17


def _run(kind: str, inputs: Mapping[str, Singles], **attributes: Any) -> Singles:
    """Run one node over named inputs."""
    make: Any = onnx.helper
    node = make.make_node(kind, list(inputs), ["y"], **attributes)
    single = onnx.TensorProto.FLOAT
    infos = [make.make_tensor_value_info(name, single, item.shape) for name, item in inputs.items()]
    result = make.make_tensor_value_info("y", single, None)
    graph = make.make_graph([node], "layer", infos, [result])
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", _OPSET)])
    model.ir_version = _IR_VERSION
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return np.asarray(session.run(None, dict(inputs))[0], np.float32)


def _pads(x: Singles, kernel: Sequence[int], stride: Sequence[int], same: bool) -> list[int]:
    """Return the explicit padding of (n, h, w, c): before both dimensions, then behind them."""
    totals = [
        max((-(-size // step) - 1) * step + window - size, 0) if same else 0
        for size, window, step in zip(x.shape[1:3], kernel, stride, strict=True)
    ]
    return [total // 2 for total in totals] + [total - total // 2 for total in totals]


def convolution(
    x: Singles, kernel: Singles, bias: Singles, stride: Sequence[int], same: bool
) -> Singles:
    """Convolve (n, h, w, c) with (kh, kw, c, k), bias (k,)."""
    inputs = {
        "x": np.ascontiguousarray(x.transpose(0, 3, 1, 2)),
        "w": np.ascontiguousarray(kernel.transpose(3, 2, 0, 1)),
        "b": bias,
    }
    pads = _pads(x, kernel.shape[:2], stride, same)
    result = _run("Conv", inputs, strides=list(stride), pads=pads)
    return result.transpose(0, 2, 3, 1)


def pooling(
    kind: str, x: Singles, kernel: Sequence[int], stride: Sequence[int], same: bool
) -> Singles:
    """Pool (n, h, w, c); `kind` is MaxPool or AveragePool, which counts no padding."""
    inputs = {"x": np.ascontiguousarray(x.transpose(0, 3, 1, 2))}
    shape = {"kernel_shape": list(kernel), "strides": list(stride)}
    result = _run(kind, inputs, **shape, pads=_pads(x, kernel, stride, same))
    return result.transpose(0, 2, 3, 1)
