# SPDX-License-Identifier: Apache-2.0
"""Models of rows 23 and 24 in the sizes of their papers, with fixed random weights.

Layers follow torchvision and timm, with batch normalisation folded into convolutions.
"""

from collections.abc import Callable, Mapping

from tests.network.acceptance.builders.export import (
    conv,
    erf_gelu,
    floats,
    gemm,
    layer_norm,
    linear,
    nodes,
    number,
    silu,
    words,
)
from tests.network.real_models import Net

_IMAGE = [floats("image", 1, 3, 224, 224)]
_CLASSES = 1000


def _classified(net: Net, value: str, width: int, name: str) -> bytes:
    """Add logits of the means of channels, and return the model."""
    means = net.node("Flatten", net.node("GlobalAveragePool", value), axis=1)
    logits = gemm(net, means, width, _CLASSES)
    return net.model(name, _IMAGE, logits, [1, _CLASSES])


def _excited(net: Net, value: str, width: int, squeezed: int) -> str:
    """Weigh channels by a small network over their means."""
    inner = silu(net, conv(net, net.node("GlobalAveragePool", value), width, squeezed, 1))
    return net.node("Mul", value, net.node("Sigmoid", conv(net, inner, squeezed, width, 1)))


def resnet18() -> bytes:
    """Return ResNet-18 as torchvision has it: 1.8 G multiply-accumulates, 11.7 M weights."""
    net = Net(20240118)
    value = net.node("Relu", conv(net, "image", 3, 64, 7, stride=2))
    value = net.node("MaxPool", value, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    inputs, widths = 64, (64, 64, 128, 128, 256, 256, 512, 512)
    for width in widths:
        stride = width // inputs
        inner = net.node("Relu", conv(net, value, inputs, width, 3, stride=stride))
        inner = conv(net, inner, width, width, 3)
        short = value if stride == 1 else conv(net, value, inputs, width, 1, stride=stride)
        value, inputs = net.node("Relu", net.node("Add", inner, short)), width
    return _classified(net, value, inputs, "resnet18")


def efficientnet_b0() -> bytes:
    """EfficientNet-B0 (M. Tan, Q. Le, 2019): 0.39 G multiply-accumulates, 5.3 M weights."""
    net, width = Net(20240201), 32
    value = silu(net, conv(net, "image", 3, width, 3, stride=2))
    stages = (
        (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5), (6, 320, 1, 1, 3),
    )  # fmt: skip
    for expansion, outputs, count, first_stride, kernel in stages:
        for block in range(count):
            stride, wide, inner = (1 if block else first_stride), width * expansion, value
            if expansion > 1:
                inner = silu(net, conv(net, inner, width, wide, 1))
            inner = silu(net, conv(net, inner, wide, wide, kernel, stride=stride, group=wide))
            inner = conv(net, _excited(net, inner, wide, max(1, width // 4)), wide, outputs, 1)
            joined = stride == 1 and width == outputs
            value, width = (net.node("Add", inner, value) if joined else inner), outputs
    value = silu(net, conv(net, value, width, 1280, 1))
    return _classified(net, value, 1280, "efficientnet_b0")


def shufflenet_v2() -> bytes:
    """ShuffleNet V2 1.0x (N. Ma and others, 2018): 0.15 G multiply-accumulates, 2.3 M weights."""
    net, width, side = Net(20240202), 24, 56
    value = net.node("Relu", conv(net, "image", 3, width, 3, stride=2))
    value = net.node("MaxPool", value, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    for outputs, count in ((116, 4), (232, 8), (464, 4)):
        half, side = outputs // 2, side // 2
        left = conv(net, value, width, width, 3, stride=2, group=width)
        left = net.node("Relu", conv(net, left, width, half, 1))
        right = _shuffle_branch(net, value, width, half, 2)
        value = _shuffled(net, left, right, half, side)
        for _ in range(count - 1):
            left, right = nodes(net, "Split", [value, net.integers(half, half)], 2, axis=1)
            right = _shuffle_branch(net, right, half, half, 1)
            value = _shuffled(net, left, right, half, side)
        width = outputs
    value = net.node("Relu", conv(net, value, width, 1024, 1))
    return _classified(net, value, 1024, "shufflenet_v2")


def _shuffle_branch(net: Net, value: str, inputs: int, half: int, stride: int) -> str:
    """Pointwise, depthwise, pointwise."""
    value = net.node("Relu", conv(net, value, inputs, half, 1))
    value = conv(net, value, half, half, 3, stride=stride, group=half)
    return net.node("Relu", conv(net, value, half, half, 1))


def _shuffled(net: Net, left: str, right: str, half: int, side: int) -> str:
    """Join two branches, their channels in turns."""
    both = net.node("Concat", left, right, axis=1)
    apart = net.node("Reshape", both, net.integers(1, 2, half, side, side))
    turned = net.node("Transpose", apart, perm=[0, 2, 1, 3, 4])
    return net.node("Reshape", turned, net.integers(1, -1, side, side))


_TOKENS, _WIDTH, _HEADS, _LAYERS = 197, 192, 3, 12


def vit_tiny() -> bytes:
    """ViT-Tiny with patches of 16 (H. Touvron and others, 2021): 1.1 G multiply-accumulates."""
    net = Net(20240203)
    weights, bias = net.weights(_WIDTH, 3, 16, 16, fan=768), net.weights(_WIDTH, fan=100)
    value = net.node("Conv", "image", weights, bias, kernel_shape=[16, 16], strides=[16, 16])
    value = net.node("Reshape", value, net.integers(0, _WIDTH, -1))
    value = net.node("Transpose", value, perm=[0, 2, 1])
    value = net.node("Concat", net.weights(1, 1, _WIDTH, fan=4), value, axis=1)
    value = net.node("Add", value, net.weights(1, _TOKENS, _WIDTH, fan=4))
    for _ in range(_LAYERS):
        value = net.node("Add", _attended(net, layer_norm(net, value, _WIDTH)), value)
        inner = linear(net, layer_norm(net, value, _WIDTH), _WIDTH, 4 * _WIDTH)
        inner = linear(net, erf_gelu(net, inner), 4 * _WIDTH, _WIDTH)
        value = net.node("Add", inner, value)
    first = net.node("Gather", layer_norm(net, value, _WIDTH), net.integers(0), axis=1)
    logits = gemm(net, net.node("Flatten", first, axis=1), _WIDTH, _CLASSES)
    return net.model("vit_tiny", _IMAGE, logits, [1, _CLASSES])


def _attended(net: Net, value: str) -> str:
    """Attention of three heads."""
    apart = net.integers(1, _TOKENS, _HEADS, _WIDTH // _HEADS)
    query, key, content = (
        net.node("Transpose", net.node("Reshape", each, apart), perm=order)
        for each, order in (
            (linear(net, value, _WIDTH, _WIDTH), [0, 2, 1, 3]),
            (linear(net, value, _WIDTH, _WIDTH), [0, 2, 3, 1]),
            (linear(net, value, _WIDTH, _WIDTH), [0, 2, 1, 3]),
        )
    )
    scaled = net.node("Mul", query, number(net, (_WIDTH // _HEADS) ** -0.5))
    scores = net.node("Softmax", net.node("MatMul", scaled, key), axis=-1)
    mixed = net.node("Transpose", net.node("MatMul", scores, content), perm=[0, 2, 1, 3])
    joined = net.node("Reshape", mixed, net.integers(1, _TOKENS, _WIDTH))
    return linear(net, joined, _WIDTH, _WIDTH)


_LONG, _SENTENCES, _WORDS, _EMBEDDED, _HIDDEN, _TAGS = 48, 8, 10000, 100, 200, 9


def bilstm() -> bytes:
    """A tagger of words with 200 hidden units each way: sentences of 48 words, eight at a time."""
    net = Net(20240204)
    value = net.node("Gather", net.weights(_WORDS, _EMBEDDED, fan=1), "words")
    gates = (
        net.weights(2, 4 * _HIDDEN, _EMBEDDED, fan=_EMBEDDED),
        net.weights(2, 4 * _HIDDEN, _HIDDEN, fan=_HIDDEN),
        net.weights(2, 8 * _HIDDEN, fan=100),
    )
    value = net.node("LSTM", value, *gates, direction="bidirectional", hidden_size=_HIDDEN)
    value = net.node("Transpose", value, perm=[0, 2, 1, 3])
    value = net.node("Reshape", value, net.integers(_LONG, _SENTENCES, 2 * _HIDDEN))
    tags = linear(net, value, 2 * _HIDDEN, _TAGS)
    inputs = [words("words", _LONG, _SENTENCES)]
    return net.model("bilstm", inputs, tags, [_LONG, _SENTENCES, _TAGS])


FULL_SIZE: Mapping[str, Callable[[], bytes]] = {
    "bilstm": bilstm,
    "efficientnet_b0": efficientnet_b0,
    "resnet18": resnet18,
    "shufflenet_v2": shufflenet_v2,
    "vit_tiny": vit_tiny,
}
"""Builders by name."""
