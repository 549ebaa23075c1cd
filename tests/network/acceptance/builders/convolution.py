# SPDX-License-Identifier: Apache-2.0
"""Classifiers of torch and timm: ResNet, DenseNet, SqueezeNet, ConvNeXt, VGG of opset 9."""

from tests.network.acceptance.builders.export import (
    conv,
    erf_gelu,
    export,
    floats,
    gemm,
    layer_norm,
    linear,
    number,
)
from tests.network.real_models import Net, residual_cnn


def _bottleneck(net: Net, value: str, inputs: int, width: int, stride: int) -> str:
    inner = net.node("Relu", conv(net, value, inputs, width, 1))
    inner = net.node("Relu", conv(net, inner, width, width, 3, stride=stride, group=4))
    inner = conv(net, inner, width, width * 2, 1)
    short = conv(net, value, inputs, width * 2, 1, stride=stride)
    return net.node("Relu", net.node("Add", inner, short))


def resnext() -> bytes:
    """Bottlenecks with grouped convolutions, batch free (torch)."""
    net = Net(1)
    value = net.node("Relu", conv(net, "input", 3, 16, 7, stride=2))
    value = net.node(
        "MaxPool", value, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2], ceil_mode=0
    )
    for inputs, width, stride in ((16, 16, 1), (32, 32, 2)):
        value = _bottleneck(net, value, inputs, width, stride)
    value = net.node("Flatten", net.node("GlobalAveragePool", value), axis=1)
    out = gemm(net, value, 64, 10)
    ends = [floats("input", "batch_size", 3, 64, 64)]
    return export(net, ends, {out: floats("output", "batch_size", 10)})


def densenet() -> bytes:
    """Layers that read all before them: Concat, and AveragePool in transitions (torch)."""
    net = Net(2)
    value, channels = conv(net, "input", 3, 16), 16
    for _ in range(2):
        for _ in range(3):
            grown = conv(net, net.node("Relu", conv(net, value, channels, 32, 1)), 32, 8)
            value, channels = net.node("Concat", value, grown, axis=1), channels + 8
        value = net.node("Relu", conv(net, value, channels, channels // 2, 1))
        value = net.node("AveragePool", value, kernel_shape=[2, 2], strides=[2, 2])
        channels //= 2
    pooled = net.node("ReduceMean", value, axes=[2, 3], keepdims=0)
    out = gemm(net, pooled, channels, 10)
    return export(net, [floats("input", 1, 3, 32, 32)], {out: floats("output", 1, 10)}, 13)


def squeezenet() -> bytes:
    """Fire modules, MaxPool with ceil mode, Dropout of training left in (torch, opset 12)."""
    net = Net(3)
    value = net.node("Relu", conv(net, "input", 3, 16, 3, stride=2))
    for inputs in (16, 32):
        value = net.node("MaxPool", value, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
        squeezed = net.node("Relu", conv(net, value, inputs, 8, 1))
        wide = [net.node("Relu", conv(net, squeezed, 8, 16, size)) for size in (1, 3)]
        value = net.node("Concat", *wide, axis=1)
    value = net.node("Relu", conv(net, net.node("Dropout", value), 32, 10, 1))
    out = net.node("Reshape", net.node("GlobalAveragePool", value), net.integers(1, -1))
    return export(net, [floats("input", 1, 3, 49, 49)], {out: floats("output", 1, 10)}, 12)


def convnext() -> bytes:
    """Depthwise 7x7, LayerNormalization over channels last, Gelu by Erf, layer scale (timm)."""
    net, width = Net(4), 32
    weights, bias = net.weights(width, 3, 4, 4, fan=48), net.weights(width, fan=100)
    value = net.node("Conv", "input", weights, bias, kernel_shape=[4, 4], strides=[4, 4])
    for _ in range(2):
        inner = conv(net, value, width, width, 7, group=width)
        inner = layer_norm(net, net.node("Transpose", inner, perm=[0, 2, 3, 1]), width)
        inner = erf_gelu(net, linear(net, inner, width, 4 * width))
        inner = net.node("Mul", linear(net, inner, 4 * width, width), number(net, 0.5))
        inner = net.node("Transpose", inner, perm=[0, 3, 1, 2])
        value = net.node("Add", value, inner)
    out = gemm(net, net.node("Flatten", net.node("GlobalAveragePool", value)), width, 10)
    ends = [floats("input", "batch", 3, 32, 32)]
    return export(net, ends, {out: floats("output", "batch", 10)})


def vgg_opset9() -> bytes:
    """Convolutions, BatchNormalization left in, Flatten, Gemm and Softmax over axis 1 (opset 9)."""
    net, value = Net(5), "data"
    for inputs, outputs in ((3, 16), (16, 32)):
        value = conv(net, value, inputs, outputs)
        scale, shift = (net.constant(net.rng.uniform(0.5, 1.5, outputs).astype("f4")) for _ in "ab")
        mean, spread = net.weights(outputs, fan=100), scale
        value = net.node("BatchNormalization", value, scale, shift, mean, spread, epsilon=1e-5)
        value = net.node("MaxPool", net.node("Relu", value), kernel_shape=[2, 2], strides=[2, 2])
    hidden = net.node("Relu", gemm(net, net.node("Flatten", value, axis=1), 32 * 64, 64))
    out = net.node("Softmax", gemm(net, hidden, 64, 10), axis=1)
    return export(net, [floats("data", 1, 3, 32, 32)], {out: floats("prob", 1, 10)}, 9)


MODELS = {
    "resnet": residual_cnn,
    "resnext": resnext,
    "densenet": densenet,
    "squeezenet": squeezenet,
    "convnext": convnext,
    "vgg_opset9": vgg_opset9,
}
