# SPDX-License-Identifier: Apache-2.0
"""Pictures in and pictures or boxes out: U-Net, generators, style transfer, YOLO."""

import numpy as np

from tests.network.acceptance.builders.export import (
    conv,
    dim,
    export,
    floats,
    nodes,
    number,
    silu,
    words,
)
from tests.network.real_models import Net


def _double(net: Net, value: str, inputs: int, outputs: int) -> str:
    inner = net.node("Relu", conv(net, value, inputs, outputs))
    return net.node("Relu", conv(net, inner, outputs, outputs))


def _pool(net: Net, value: str) -> str:
    return net.node("MaxPool", value, kernel_shape=[2, 2], strides=[2, 2])


def _up(net: Net, value: str, inputs: int, outputs: int) -> str:
    """ConvTranspose that doubles height and width."""
    weights, bias = net.weights(inputs, outputs, 2, 2, fan=inputs), net.weights(outputs, fan=100)
    return net.node(
        "ConvTranspose", value, weights, bias, kernel_shape=[2, 2], strides=[2, 2], pads=[0] * 4
    )


def unet() -> bytes:
    """U-Net with batch, height and width free, ConvTranspose on the way up (torch)."""
    net = Net(21)
    first = _double(net, "image", 1, 8)
    second = _double(net, _pool(net, first), 8, 16)
    bottom = _double(net, _pool(net, second), 16, 32)
    value = net.node("Concat", second, _up(net, bottom, 32, 16), axis=1)
    value = _double(net, value, 32, 16)
    value = net.node("Concat", first, _up(net, value, 16, 8), axis=1)
    out = net.node("Sigmoid", conv(net, _double(net, value, 16, 8), 8, 1, 1))
    free = ("batch", 1, "height", "width")
    return export(net, [floats("image", *free)], {out: floats("mask", *free)})


def segmenter_interpolate() -> bytes:
    """F.interpolate to the input's size: Shape, Slice, Concat, and Resize by computed sizes."""
    net = Net(22)
    value = net.node("Relu", conv(net, "image", 3, 16, 3, stride=2))
    value = net.node("Relu", conv(net, value, 16, 32, 3, stride=2))
    value = conv(net, value, 32, 4, 1)
    size = net.node("Concat", dim(net, "image", 2), dim(net, "image", 3), axis=0)
    kept = net.node("Slice", net.node("Shape", value), net.integers(0), net.integers(2))
    sizes = net.node("Concat", kept, size, axis=0)
    out = net.node(
        "Resize",
        value,
        "",
        "",
        sizes,
        mode="linear",
        coordinate_transformation_mode="half_pixel",
    )
    free = ("height", "width")
    return export(net, [floats("image", 1, 3, *free)], {out: floats("logits", 1, 4, *free)}, 13)


def generator() -> bytes:
    """DCGAN: four ConvTranspose, BatchNormalization, Relu and Tanh, batch free (torch)."""
    net, value = Net(23), "z"
    for inputs, outputs, stride, pad in ((32, 32, 1, 0), (32, 16, 2, 1), (16, 8, 2, 1)):
        weights = net.weights(inputs, outputs, 4, 4, fan=4 * inputs)
        ends = {"strides": [stride] * 2, "pads": [pad] * 4}
        value = net.node("ConvTranspose", value, weights, kernel_shape=[4, 4], **ends)
        units = net.constant(np.ones(outputs, np.float32))
        shift, mean = net.weights(outputs, fan=100), net.weights(outputs, fan=100)
        value = net.node("Relu", net.node("BatchNormalization", value, units, shift, mean, units))
    weights = net.weights(8, 3, 4, 4, fan=32)
    ends = {"strides": [2, 2], "pads": [1] * 4}
    out = net.node("Tanh", net.node("ConvTranspose", value, weights, kernel_shape=[4, 4], **ends))
    return export(net, [floats("z", "n", 32, 1, 1)], {out: floats("picture", "n", 3, 32, 32)})


def super_resolution() -> bytes:
    """Sub-pixel convolution: PixelShuffle as DepthToSpace, batch free (torch)."""
    net = Net(24)
    value = net.node("Relu", conv(net, "input", 1, 32, 5))
    value = net.node("Relu", conv(net, value, 32, 16))
    out = net.node("DepthToSpace", conv(net, value, 16, 9), blocksize=3, mode="CRD")
    ends = [floats("input", "batch_size", 1, 24, 24)]
    return export(net, ends, {out: floats("output", "batch_size", 1, 72, 72)})


def style_transfer() -> bytes:
    """Reflecting Pad, InstanceNormalization, Upsample by a Resize of constant scales (opset 11)."""
    net, value, width = Net(25), "input1", 3
    pads = net.integers(0, 0, 1, 1, 0, 0, 1, 1)

    def layer(value: str, inputs: int, outputs: int) -> str:
        weights = net.weights(outputs, inputs, 3, 3, fan=9 * inputs)
        value = net.node("Pad", value, pads, mode="reflect")
        value = net.node("Conv", value, weights, kernel_shape=[3, 3], pads=[0] * 4)
        scale = net.constant(net.rng.uniform(0.8, 1.2, outputs).astype(np.float32))
        shift = net.weights(outputs, fan=100)
        return net.node("InstanceNormalization", value, scale, shift, epsilon=1e-5)

    for outputs in (8, 16):
        value, width = net.node("Relu", layer(value, width, outputs)), outputs
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    value = net.node(
        "Resize",
        value,
        net.constant(np.zeros(0, np.float32)),
        scales,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    out = layer(value, width, 3)
    ends = [floats("input1", 1, 3, 24, 24)]
    return export(net, ends, {out: floats("output1", 1, 3, 48, 48)}, 11)


def _yolo(net: Net) -> tuple[str, str]:
    """Return boxes (1, 4, cells) and scores (1, classes, cells)."""
    value = silu(net, conv(net, "images", 3, 16, 3, stride=2))
    value = silu(net, conv(net, value, 16, 32, 3, stride=2))
    left, right = nodes(net, "Split", [value, net.integers(16, 16)], 2, axis=1)
    right = net.node("Add", right, silu(net, conv(net, right, 16, 16)))
    value = silu(net, conv(net, net.node("Concat", left, right, axis=1), 32, 32, 1))
    deep = silu(net, conv(net, value, 32, 32, 3, stride=2))
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    up = net.node("Resize", deep, "", scales, mode="nearest", nearest_mode="floor")
    both = [net.node("Concat", up, value, axis=1), deep]
    heads = [conv(net, both[0], 64, 8, 1), conv(net, both[1], 32, 8, 1)]
    flat = [net.node("Reshape", head, net.integers(1, 8, -1)) for head in heads]
    joined = net.node("Concat", *flat, axis=2)
    boxes, scores = nodes(net, "Split", [joined, net.integers(4, 4)], 2, axis=1)
    centre, size = nodes(net, "Split", [boxes, net.integers(2, 2)], 2, axis=1)
    grid = net.constant(net.rng.uniform(0, 8, (1, 2, 80)).astype(np.float32))
    centre = net.node("Add", centre, grid)
    size = net.node("Exp", net.node("Mul", size, number(net, 0.25)))
    return net.node("Concat", centre, size, axis=1), net.node("Sigmoid", scores)


def yolo() -> bytes:
    """YOLO's head: SiLU, Split, Resize of nearest, grid, boxes and scores together (torch)."""
    net = Net(26)
    out = net.node("Concat", *_yolo(net), axis=1)
    return export(net, [floats("images", 1, 3, 32, 32)], {out: floats("output0", 1, 8, 80)})


def yolo_nms() -> bytes:
    """The same with NonMaxSuppression, whose number of boxes only the data tells."""
    net = Net(27)
    boxes, scores = _yolo(net)
    turned = net.node("Transpose", boxes, perm=[0, 2, 1])
    limits = (net.integers(10), number(net, 0.5), number(net, 0.4))
    chosen = net.node("NonMaxSuppression", turned, scores, *limits, center_point_box=1)
    outputs = {
        boxes: floats("boxes", 1, 4, 80),
        scores: floats("scores", 1, 4, 80),
        chosen: words("selected", "found", 3),
    }
    return export(net, [floats("images", 1, 3, 32, 32)], outputs)


MODELS = {
    "unet": unet,
    "segmenter_interpolate": segmenter_interpolate,
    "generator": generator,
    "super_resolution": super_resolution,
    "style_transfer": style_transfer,
    "yolo": yolo,
    "yolo_nms": yolo_nms,
}
