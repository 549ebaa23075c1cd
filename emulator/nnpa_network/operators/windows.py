# SPDX-License-Identifier: Apache-2.0
"""Images: Conv, ConvTranspose, pooling.

Sources: ONNX operators of the names given; zDNN API Reference 1.2.0, zdnn_conv2d,
zdnn_avgpool2d, zdnn_maxpool2d.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from nnpa_emulator.ztensor import (
    DataLayouts,
    generate_transformed_desc,
    init_pre_transformed_desc,
)

from nnpa_network.building.arrangement import ELEMENT_TYPES, NotMapped, channels_last, plain
from nnpa_network.building.builder import Builder
from nnpa_network.building.type_inference import OnnxNode, Value
from nnpa_network.operators.elementwise import clipping
from nnpa_network.operators.table import (
    Graph,
    operator,
    require_float,
    require_rank,
    required_input,
    required_output,
    reshaped,
)

# Limits and numbers of zDNN API Reference 1.2.0: zdnn_conv2d, zdnn_avgpool2d, zdnn_maxpool2d.
VALID_PADDING, SAME_PADDING = 0, 1
MAX_WINDOW, MAX_CONV_WHOLE, MAX_CONV_STRIDE = 64, 448, 13
MAX_POOL_STRIDE, MAX_IMAGE = 30, 1024
ACT_NONE, ACT_RELU = 0, 1
# Each group is a convolution of its own; beyond this a list of them is no use of an accelerator.
MAX_GROUPS = 32

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Window:
    """The geometry of a convolution or pooling, each (height, width)."""

    kernel: Pair
    strides: Pair
    before: Pair
    after: Pair

    @property
    def padded(self) -> bool:
        """Tell whether there is any padding."""
        return any(self.before) or any(self.after)


def _pair(node: OnnxNode, name: str, default: int) -> Pair:
    first, second = node.attributes.get(name) or (default, default)
    return int(first), int(second)


def _window(node: OnnxNode, size: Pair, kernel: Pair) -> Window:
    """Read strides and padding; auto_pad becomes explicit."""
    strides, auto = _pair(node, "strides", 1), node.attributes.get("auto_pad", "NOTSET")
    if _pair(node, "dilations", 1) != (1, 1):
        raise NotMapped(f"dilations are {list(_pair(node, 'dilations', 1))}, must be 1")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        totals = [_same(*sizes) for sizes in zip(size, kernel, strides, strict=True)]
        small = totals[0] // 2, totals[1] // 2
        large = totals[0] - small[0], totals[1] - small[1]
        ends = (small, large) if auto == "SAME_UPPER" else (large, small)
        return Window(kernel, strides, *ends)
    pads = node.attributes.get("pads") or [0, 0, 0, 0]
    if auto == "VALID":
        pads = [0, 0, 0, 0]
    top, left, bottom, right = (int(pad) for pad in pads)
    return Window(kernel, strides, (top, left), (bottom, right))


def _same(size: int, kernel: int, stride: int) -> int:
    """Return the whole padding that makes ceil(size / stride) windows."""
    return max((-(-size // stride) - 1) * stride + kernel - size, 0)


def _is_same(window: Window, size: Pair) -> bool:
    """Tell whether padding is what SAME_PADDING adds: the larger half behind."""
    for axis in (0, 1):
        total = _same(size[axis], window.kernel[axis], window.strides[axis])
        if (window.before[axis], window.after[axis]) != (total // 2, total - total // 2):
            return False
    return True


def _padding(builder: Builder, value: Value, window: Window) -> tuple[Value, int]:
    """Return the operand and the padding type; padding that zDNN has no name for is done here."""
    size = value.dims[2], value.dims[3]
    if not window.padded:
        return value, VALID_PADDING
    if _is_same(window, size):
        return value, SAME_PADDING
    ends = builder.integers(0, 0, *window.before, 0, 0, *window.after)
    return builder.host("Pad", [value, ends]), VALID_PADDING


def _strides(window: Window, size: Pair, output: Value, most: int, whole: int) -> Pair:
    """Return the strides for zDNN, 0 where one large window covers all; check the limits."""
    if max(window.kernel) > MAX_WINDOW:
        covers = window.kernel == size and not window.padded and output.dims[2:] == (1, 1)
        if not covers or max(window.kernel) > whole:
            raise NotMapped(f"the kernel is {list(window.kernel)}, at most {MAX_WINDOW}")
        return 0, 0
    if max(window.strides) > most:
        raise NotMapped(f"strides are {list(window.strides)}, at most {most}")
    return window.strides


@operator("Conv", functions=("conv2d",))
def conv(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operand of rank 4, dilation 1, stride at most 13, kernel at most 64 (448 where it
    covers the whole image). Padding other than none and SAME_UPPER is added by the host; groups,
    at most 32 and of more than one channel, are split and joined by the host. A Relu or Clip from
    0 that alone reads the result becomes part of it.
    """
    value, weights, output = required_input(node, 0), required_input(node, 1), required_output(node)
    require_float(value)
    require_rank(value, 4)
    builder.require("conv2d")
    groups = int(node.attributes.get("group", 1))
    if groups == value.dims[1] > 1:
        raise NotMapped("depthwise: the host convolves every channel by itself")
    if groups > MAX_GROUPS:
        raise NotMapped(f"group is {groups}, at most {MAX_GROUPS}")
    size, kernel = (value.dims[2], value.dims[3]), (weights.dims[2], weights.dims[3])
    window = _window(node, size, kernel)
    strides = _strides(window, size, output, MAX_CONV_STRIDE, MAX_CONV_WHOLE)
    value, padding = _padding(builder, value, window)
    bias = node.input(2)
    if bias is None:
        bias = builder.constant(np.zeros(weights.dims[0], value.dtype))
    act, clip, result = _activated(graph, output)
    scalars = {
        "padding_type": padding,
        "stride_height": strides[0],
        "stride_width": strides[1],
        "act_func": act,
        "clipping_value": clip,
    }
    if groups == 1:
        convolve(builder, (value, weights, bias), scalars, result)
    else:
        _grouped(builder, groups, (value, weights, bias), scalars, result)


def _activated(graph: Graph, output: Value) -> tuple[int, float | None, Value]:
    """Return activation and clipping of what follows, and whose result the convolution is."""
    follower = graph.follower(output)
    if follower is None or follower.op_type not in ("Relu", "Clip"):
        return ACT_NONE, None, output
    try:
        clip = clipping(follower)
    except NotMapped:
        return ACT_NONE, None, output
    graph.absorb(follower)
    return ACT_RELU, clip, required_output(follower)


def convolve(
    builder: Builder,
    operands: tuple[Value, Value, Value],
    scalars: Mapping[str, object],
    output: Value,
) -> None:
    """Emit a convolution of (N, C, H, W) with weights (K, C, kh, kw) and a bias (K,)."""
    value, weights, bias = operands
    arranged = {
        "input": builder.tensor(value, channels_last(value.dims)),
        "kernel": _kernel(builder, weights),
        "bias": builder.tensor(bias, plain(bias.dims)),
    }
    target = builder.new_tensor(output, channels_last(output.dims))
    builder.call("conv2d", **arranged, **scalars, output=target)


def _kernel(builder: Builder, weights: Value) -> int:
    turned = builder.host("Transpose", [weights], perm=[2, 3, 1, 0])
    assert weights.dtype is not None
    kind = ELEMENT_TYPES[weights.dtype]
    pre = init_pre_transformed_desc(DataLayouts.ZDNN_HWCK, kind, *turned.dims)
    return builder.sticks([turned], pre, generate_transformed_desc(pre))


def _grouped(
    builder: Builder,
    groups: int,
    operands: tuple[Value, Value, Value],
    scalars: Mapping[str, object],
    output: Value,
) -> None:
    """Convolve every group on its own and join the channels."""
    parts: list[Value] = []
    n, channels, high, wide = output.dims
    for group in range(groups):
        pieces = tuple(
            _part(builder, operand, axis, group, groups)
            for operand, axis in zip(operands, (1, 0, 0), strict=True)
        )
        part = Value(f"{output.name}_{group}", output.dtype, (n, channels // groups, high, wide))
        convolve(builder, (pieces[0], pieces[1], pieces[2]), scalars, part)
        parts.append(part)
    joined = builder.host("Concat", parts, axis=1)
    output.view = (joined, (0, 1, 2, 3))


def _part(builder: Builder, value: Value, axis: int, index: int, count: int) -> Value:
    """Return one of `count` equal parts of a value along an axis."""
    size = value.dims[axis] // count
    ends = [builder.integers(bound) for bound in (index * size, (index + 1) * size, axis)]
    return builder.host("Slice", [value, *ends])


@operator("ConvTranspose", functions=("conv2d",))
def conv_transpose(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operand of rank 4, one group, dilation 1, kernel at most 64. The host spreads the
    operand by the strides, pads or crops it, and turns the kernel round; conv2d with stride 1 does
    the rest.
    """
    value, weights, output = required_input(node, 0), required_input(node, 1), required_output(node)
    require_float(value)
    require_rank(value, 4)
    builder.require("conv2d")
    if int(node.attributes.get("group", 1)) != 1:
        raise NotMapped(f"group is {node.attributes['group']}, must be 1")
    if _pair(node, "dilations", 1) != (1, 1):
        raise NotMapped("dilations are not 1")
    kernel = weights.dims[2], weights.dims[3]
    if max(kernel) > MAX_WINDOW:
        raise NotMapped(f"the kernel is {list(kernel)}, at most {MAX_WINDOW}")
    strides = _pair(node, "strides", 1)
    before, after = _transposed_ends(node, value, output, kernel, strides)
    spread = _spread(builder, value, strides)
    moved = builder.integers(0, 0, *before, 0, 0, *after)
    spread = builder.host("Pad", [spread, moved])
    turned = builder.host("Transpose", [weights], perm=[1, 0, 2, 3])
    ends = [builder.integers(*bound) for bound in ((-1, -1), (-(1 << 62),) * 2, (2, 3), (-1, -1))]
    turned = builder.host("Slice", [turned, *ends])
    bias = node.input(2) or builder.constant(np.zeros(weights.dims[1], value.dtype))
    scalars: dict[str, object] = {
        "padding_type": VALID_PADDING,
        "stride_height": 1,
        "stride_width": 1,
        "act_func": ACT_NONE,
        "clipping_value": None,
    }
    convolve(builder, (spread, turned, bias), scalars, output)


def _transposed_ends(
    node: OnnxNode, value: Value, output: Value, kernel: Pair, strides: Pair
) -> tuple[Pair, Pair]:
    """Return what to add before and behind the spread operand, less than 0 to crop.

    Source: ONNX operator ConvTranspose, output_shape and auto_pad.
    """
    auto = node.attributes.get("auto_pad", "NOTSET")
    extra = _pair(node, "output_padding", 0)
    pads = [int(pad) for pad in node.attributes.get("pads") or [0, 0, 0, 0]]
    before: list[int] = []
    after: list[int] = []
    for axis in (0, 1):
        spread = (value.dims[2 + axis] - 1) * strides[axis] + 1
        whole = spread + kernel[axis] - 1 + extra[axis]
        cut = whole - output.dims[2 + axis]
        is_explicit = "output_shape" in node.attributes or auto in ("SAME_UPPER", "SAME_LOWER")
        start = pads[axis]
        if is_explicit:
            start = cut // 2 if auto == "SAME_UPPER" else cut - cut // 2
        before.append(kernel[axis] - 1 - start)
        after.append(output.dims[2 + axis] + kernel[axis] - 1 - spread - before[-1])
    return (before[0], before[1]), (after[0], after[1])


def _spread(builder: Builder, value: Value, strides: Pair) -> Value:
    """Put strides - 1 zeros behind every element but the last of a row or column."""
    if strides == (1, 1):
        return value
    n, c, h, w = value.dims
    apart = reshaped(value, (n, c, h, 1, w, 1))
    ends = builder.integers(*(0,) * 9, strides[0] - 1, 0, strides[1] - 1)
    wide = builder.host("Pad", [apart, ends])
    wide = reshaped(wide, (n, c, h * strides[0], w * strides[1]))
    crop = builder.integers(*(0,) * 6, 1 - strides[0], 1 - strides[1])
    return builder.host("Pad", [wide, crop])


@operator("AveragePool", "MaxPool", functions=("avgpool2d", "maxpool2d"))
def pool(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operand of rank 4, dilation 1, kernel at most 64 (1024 where it covers the whole
    image), stride at most 30, height and width at most 1024; no padding or SAME_UPPER, explicitly
    or by auto_pad, padding not counted in averages; ceil_mode only where it changes nothing; no
    Indices.
    """
    value, output = required_input(node, 0), required_output(node)
    verb = "maxpool2d" if node.op_type == "MaxPool" else "avgpool2d"
    require_float(value)
    require_rank(value, 4)
    builder.require(verb)
    if graph.is_read(node.output(1)):
        raise NotMapped("the output Indices")
    kernel = _pair(node, "kernel_shape", 1)
    size = value.dims[2], value.dims[3]
    window = _window(node, size, kernel)
    if node.attributes.get("count_include_pad", 0) and window.padded:
        raise NotMapped("count_include_pad")
    padding = SAME_PADDING if window.padded else VALID_PADDING
    if window.padded and not _is_same(window, size):
        ends = [*window.before, *window.after]
        raise NotMapped(f"pads are {ends}, must be none or those of SAME_UPPER")
    _require_windows(window, size, output, padding)
    _pooled(builder, verb, window, padding, value, output)


def _require_windows(window: Window, size: Pair, output: Value, padding: int) -> None:
    """Refuse an output that ceil_mode made larger than zDNN's, and images beyond the limit."""
    for axis in (0, 1):
        span = size[axis] if padding == SAME_PADDING else size[axis] - window.kernel[axis] + 1
        if -(-span // window.strides[axis]) != output.dims[2 + axis]:
            raise NotMapped("ceil_mode")
    if max(size) > MAX_IMAGE:
        raise NotMapped(f"the image is {list(size)}, at most {MAX_IMAGE}")


def _pooled(
    builder: Builder, verb: str, window: Window, padding: int, value: Value, output: Value
) -> None:
    size = value.dims[2], value.dims[3]
    strides = _strides(window, size, output, MAX_POOL_STRIDE, MAX_IMAGE)
    source = builder.tensor(value, channels_last(value.dims))
    builder.call(
        verb,
        input=source,
        padding_type=padding,
        kernel_height=window.kernel[0],
        kernel_width=window.kernel[1],
        stride_height=strides[0],
        stride_width=strides[1],
        output=builder.new_tensor(output, channels_last(output.dims)),
    )


@operator("GlobalMaxPool", functions=("maxpool2d",))
def global_maximum(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operand of rank 4, height and width at most 1024: one window over the whole image."""
    value, output = required_input(node, 0), required_output(node)
    require_float(value)
    require_rank(value, 4)
    builder.require("maxpool2d")
    size = value.dims[2], value.dims[3]
    if max(size) > MAX_IMAGE:
        raise NotMapped(f"the image is {list(size)}, at most {MAX_IMAGE}")
    window = Window(size, (0, 0), (0, 0), (0, 0))
    source = builder.tensor(value, channels_last(value.dims))
    builder.call(
        "maxpool2d",
        input=source,
        padding_type=VALID_PADDING,
        kernel_height=window.kernel[0],
        kernel_width=window.kernel[1],
        stride_height=0,
        stride_width=0,
        output=builder.new_tensor(output, channels_last(output.dims)),
    )
