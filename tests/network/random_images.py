# SPDX-License-Identifier: Apache-2.0
"""Random nodes over images: convolutions and poolings."""

from collections.abc import Sequence
from typing import Any

from onnx import NodeProto

from tests.network.random_sketch import Sketch, draw


def _window(sketch: Sketch, rank: int, kernel: Sequence[int]) -> dict[str, Any]:
    """Return strides, dilations and paddings over a number of axes."""
    auto = sketch.pick(None, None, None, "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    pads = [sketch.number(0, 2) for _ in range(2 * rank)] if sketch.flag(0.4) else None
    explicit = auto in (None, "NOTSET")
    return {
        "strides": [sketch.number(1, 3)] * rank if sketch.flag() else None,
        "dilations": [sketch.number(1, 2)] * rank if sketch.flag(0.2) else None,
        "kernel_shape": list(kernel),
        "auto_pad": auto,
        "pads": pads if explicit else None,
    }


def _image(sketch: Sketch) -> tuple[str, tuple[int, ...], list[int]]:
    """Return an operand with channels, its shape, and a kernel that mostly fits."""
    value = sketch.any_of(3, 4, 4, 4, 5)
    shape = sketch.shape(value)
    beyond = 40 if sketch.flag(0.03) else 0
    kernel = [sketch.number(1, max(1, min(size, 3))) + beyond for size in shape[2:]]
    return value, shape, kernel


@draw("Conv")
def conv(sketch: Sketch, op_type: str) -> NodeProto:
    """Images of one to three axes, groups, biases."""
    value, shape, kernel = _image(sketch)
    groups = sketch.pick(1, 1, *(n for n in (2, 3, shape[1]) if n and shape[1] % n == 0))
    outputs = groups * sketch.number(1, 3)
    weights = sketch.operand(outputs, shape[1] // groups, *kernel)
    bias = [sketch.operand(outputs)] if sketch.flag() else []
    window = _window(sketch, len(kernel), kernel)
    return sketch.node(op_type, [value, weights, *bias], group=groups, **window)


@draw("ConvTranspose")
def conv_transpose(sketch: Sketch, op_type: str) -> NodeProto:
    """As Conv, with output_padding and output_shape."""
    value, shape, kernel = _image(sketch)
    rank, outputs = len(kernel), sketch.number(1, 3)
    weights = sketch.operand(shape[1], outputs, *kernel)
    bias = [sketch.operand(outputs)] if sketch.flag() else []
    window = _window(sketch, rank, kernel)
    window["output_padding"] = [sketch.number(0, 1)] * rank if sketch.flag(0.3) else None
    sizes = [size + sketch.number(-1, 3) for size in shape[2:]]
    window["output_shape"] = sizes if sketch.flag(0.1) else None
    return sketch.node(op_type, [value, weights, *bias], **window)


@draw("AveragePool", "MaxPool")
def pool(sketch: Sketch, op_type: str) -> NodeProto:
    """Windows, ceil_mode, Indices, padding that counts."""
    value, _, kernel = _image(sketch)
    window = _window(sketch, len(kernel), kernel)
    if sketch.opset < (19 if op_type == "AveragePool" else 10):
        del window["dilations"]
    if sketch.opset >= 10 and sketch.flag(0.3) and window["auto_pad"] is None:
        window["ceil_mode"] = 1  # with auto_pad ONNX Runtime reads what lies beyond the image
    outputs = 2 if op_type == "MaxPool" and sketch.flag(0.2) else 1
    if op_type == "AveragePool" and sketch.flag(0.3):
        window["count_include_pad"] = 1
    return sketch.node(op_type, [value], outputs, **window)


@draw("GlobalAveragePool", "GlobalMaxPool")
def global_pool(sketch: Sketch, op_type: str) -> NodeProto:
    """Images of one to three axes."""
    return sketch.node(op_type, [sketch.any_of(3, 4, 4, 5)])
