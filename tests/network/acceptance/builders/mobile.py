# SPDX-License-Identifier: Apache-2.0
"""Networks for telephones: depthwise convolutions, squeeze and excitation, hard activations."""

import numpy as np

from tests.network.acceptance.builders.export import (
    conv,
    end,
    export,
    floats,
    gemm,
    nodes,
    number,
    silu,
)
from tests.network.real_models import Net


def _excited(net: Net, value: str, width: int, hard: bool) -> str:
    """Weigh channels by what a small network says of their means."""
    mean = (
        net.node("GlobalAveragePool", value)
        if hard
        else net.node("ReduceMean", value, axes=[2, 3], keepdims=1)
    )
    inner = conv(net, mean, width, width // 4, 1)
    inner = net.node("Relu", inner) if hard else silu(net, inner)
    inner = conv(net, inner, width // 4, width, 1)
    share = net.node("HardSigmoid", inner, alpha=1 / 6) if hard else net.node("Sigmoid", inner)
    return net.node("Mul", value, share)


def _inverted(net: Net, value: str, width: int, hard: bool) -> str:
    """Widen, depthwise, excite, narrow, add."""

    def act(inner: str) -> str:
        return net.node("HardSwish", inner) if hard else silu(net, inner)

    inner = act(conv(net, value, width, 4 * width, 1))
    inner = act(conv(net, inner, 4 * width, 4 * width, 5 if hard else 3, group=4 * width))
    inner = conv(net, _excited(net, inner, 4 * width, hard), 4 * width, width, 1)
    return net.node("Add", inner, value)


def mobilenet_v3() -> bytes:
    """MobileNetV3 small in short, HardSwish as a node (torch, opset 17)."""
    net = Net(11)
    value = net.node("HardSwish", conv(net, "input", 3, 16, 3, stride=2))
    for _ in range(3):
        value = _inverted(net, value, 16, hard=True)
    value = net.node("HardSwish", conv(net, value, 16, 64, 1))
    value = net.node("Flatten", net.node("GlobalAveragePool", value), axis=1)
    out = gemm(net, net.node("HardSwish", gemm(net, value, 64, 64)), 64, 10)
    ends = [floats("input", "batch_size", 3, 48, 48)]
    return export(net, ends, {out: floats("output", "batch_size", 10)})


def mobilenet_v2_clip() -> bytes:
    """ReLU6 as Clip with its limits as inputs (tf2onnx: channels last, Transpose around)."""
    net = Net(12)
    value = net.node("Transpose", "input_1", perm=[0, 3, 1, 2])
    low, high = number(net, 0), number(net, 6)
    value = net.node("Clip", conv(net, value, 3, 16, 3, stride=2), low, high)
    for _ in range(2):
        inner = net.node("Clip", conv(net, value, 16, 64, 1), low, high)
        inner = net.node("Clip", conv(net, inner, 64, 64, 3, group=64), low, high)
        value = net.node("Add", conv(net, inner, 64, 16, 1), value)
    mean = net.node("ReduceMean", value, axes=[2, 3], keepdims=0)
    product = net.node("MatMul", mean, net.weights(16, 10, fan=16))
    out = net.node("Softmax", net.node("Add", product, net.weights(10, fan=100)), axis=1)
    ends = [floats("input_1", "unk__1", 32, 32, 3)]
    return export(net, ends, {out: floats("dense", "unk__2", 10)}, 13)


def efficientnet() -> bytes:
    """EfficientNet in short: SiLU as Sigmoid and Mul, excitation over ReduceMean (timm)."""
    net = Net(13)
    value = silu(net, conv(net, "x", 3, 16, 3, stride=2))
    for _ in range(2):
        value = _inverted(net, value, 16, hard=False)
    value = silu(net, conv(net, value, 16, 64, 1))
    out = gemm(net, net.node("Flatten", net.node("GlobalAveragePool", value)), 64, 10)
    return export(net, [floats("x", 1, 3, 40, 40)], {out: floats("logits", 1, 10)})


def shufflenet() -> bytes:
    """Halves of channels, shuffled by Reshape, Transpose and Reshape (torch)."""
    net, width = Net(14), 32
    value = net.node("Relu", conv(net, "input", 3, width, 3, stride=2))
    for _ in range(2):
        left, right = nodes(net, "Split", [value, net.integers(16, 16)], 2, axis=1)
        right = net.node("Relu", conv(net, right, 16, 16, 1))
        right = conv(net, right, 16, 16, 3, group=16)
        right = net.node("Relu", conv(net, right, 16, 16, 1))
        both = net.node("Concat", left, right, axis=1)
        apart = net.node("Reshape", both, net.integers(1, 2, 16, 20, 20))
        turned = net.node("Transpose", apart, perm=[0, 2, 1, 3, 4])
        value = net.node("Reshape", turned, net.integers(1, -1, 20, 20))
    out = gemm(net, net.node("ReduceMean", value, axes=[2, 3], keepdims=0), width, 10)
    return export(net, [floats("input", 1, 3, 40, 40)], {out: floats("output", 1, 10)})


def uint8_camera() -> bytes:
    """Bytes of a camera, channels last: Cast, Div, Sub, Transpose before the first layer."""
    net = Net(15)
    value = net.node("Div", net.node("Cast", "frame", to=1), number(net, 255))
    means = net.constant(np.array([0.485, 0.456, 0.406], np.float32))
    value = net.node("Transpose", net.node("Sub", value, means), perm=[0, 3, 1, 2])
    value = net.node("Relu", conv(net, value, 3, 16, 3, stride=2))
    value = net.node("LeakyRelu", conv(net, value, 16, 32, 3, stride=2), alpha=0.1)
    out = gemm(net, net.node("Flatten", net.node("GlobalMaxPool", value)), 32, 10)
    label = net.node("ArgMax", out, axis=1, keepdims=0)
    outputs = {out: floats("scores", 1, 10), label: end("label", np.int64, 1)}
    return export(net, [end("frame", np.uint8, 1, 32, 32, 3)], outputs)


MODELS = {
    "mobilenet_v3": mobilenet_v3,
    "mobilenet_v2_clip": mobilenet_v2_clip,
    "efficientnet": efficientnet,
    "shufflenet": shufflenet,
    "uint8_camera": uint8_camera,
}
