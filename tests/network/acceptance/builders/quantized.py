# SPDX-License-Identifier: Apache-2.0
"""Models as ONNX Runtime's own tools write them: quantised in four ways, and optimised."""

import logging
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime import quantization

from tests.network.acceptance.builders.attention import distilbert
from tests.network.acceptance.builders.export import export, floats
from tests.network.real_models import Net, encoder, images, residual_cnn

MICROSOFT = "com.microsoft"


class _Pictures(quantization.CalibrationDataReader):  # type: ignore[misc]
    """Four batches of pictures, for the ranges of static quantisation."""

    def __init__(self) -> None:
        self._rest: Iterator[Any] = iter([images(2) for _ in range(4)])

    def get_next(self) -> Any:
        return next(self._rest, None)


@contextmanager
def _quiet() -> Generator[None]:
    """Leave out what the tools log about their own use."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)


def _rewritten(model: bytes, rewrite: Callable[[str, str], object]) -> bytes:
    """Return the output file of a tool that reads and writes files."""
    with _quiet(), tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "source.onnx", Path(folder) / "target.onnx"
        source.write_bytes(model)
        rewrite(str(source), str(target))
        return target.read_bytes()


def _static(form: Any, **options: Any) -> bytes:
    def rewrite(source: str, target: str) -> None:
        quantization.quantize_static(
            source, target, _Pictures(), quant_format=form, op_types_to_quantize=None, **options
        )

    return _rewritten(_fixed(), rewrite)


def _fixed() -> bytes:
    """The residual CNN with its normalisation folded, as ONNX Runtime's first pass leaves it."""
    return _optimised(residual_cnn(), onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC)


def static_qdq() -> bytes:
    """Static, QDQ: pairs of QuantizeLinear and DequantizeLinear around every layer, int8."""
    return _static(quantization.QuantFormat.QDQ)


def static_qdq_per_channel() -> bytes:
    """The same with a scale per channel of the weights."""
    return _static(quantization.QuantFormat.QDQ, per_channel=True)


def static_qoperator() -> bytes:
    """Static, QOperator: QLinearConv, and QLinearAdd and more of com.microsoft."""
    return _static(
        quantization.QuantFormat.QOperator,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
    )


def dynamic_encoder() -> bytes:
    """Dynamic: DynamicQuantizeLinear and MatMulInteger in an encoder."""
    return _rewritten(
        encoder(),
        lambda source, target: quantization.quantize_dynamic(
            source, target, weight_type=quantization.QuantType.QInt8
        ),
    )


def _optimised(model: bytes, level: Any) -> bytes:
    def rewrite(source: str, target: str) -> None:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        options.optimized_model_filepath = target
        options.log_severity_level = 4
        onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])

    return _rewritten(model, rewrite)


def optimised_cnn() -> bytes:
    """A CNN with FusedConv of com.microsoft, as ONNX Runtime saves what it has optimised."""
    return _optimised(residual_cnn(), onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED)


def optimised_encoder() -> bytes:
    """An encoder with SkipLayerNormalization, BiasGelu, FusedMatMul and the like."""
    return _optimised(distilbert(), onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED)


def four_bits() -> bytes:
    """MatMulNBits of com.microsoft: weights of four bits in blocks of 32."""
    net, inputs, outputs, block = Net(91), 64, 32, 32
    blocks = inputs // block
    packed = net.rng.integers(0, 256, (outputs, blocks, block // 2), dtype=np.uint8)
    scales = net.rng.uniform(0.01, 0.03, outputs * blocks).astype(np.float32)
    weights = net.constant(packed), net.constant(scales)
    value = net.node(
        "MatMulNBits",
        "x",
        *weights,
        domain=MICROSOFT,
        K=inputs,
        N=outputs,
        bits=4,
        block_size=block,
    )
    last = net.weights(outputs, 8, fan=outputs), net.weights(8, fan=9)
    value = net.node("FusedGemm", value, *last, domain=MICROSOFT, activation="Relu")
    ends = [floats("x", 2, inputs)]
    return export(net, ends, {value: floats("y", 2, 8)}, 17, {MICROSOFT: 1})


MODELS = {
    "static_qdq": static_qdq,
    "static_qdq_per_channel": static_qdq_per_channel,
    "static_qoperator": static_qoperator,
    "dynamic_encoder": dynamic_encoder,
    "optimised_cnn": optimised_cnn,
    "optimised_encoder": optimised_encoder,
    "four_bits": four_bits,
}
