# SPDX-License-Identifier: Apache-2.0
"""Convolutions: Conv, ConvTranspose.

Sources: ONNX operators of the names given; zDNN API Reference 1.2.0, zdnn_conv2d.
"""

from collections.abc import Mapping

import numpy as np
from nnpa_emulator.ztensor import (
    DataLayouts,
    generate_transformed_desc,
    init_pre_transformed_desc,
)

from nnpa_network.building.arrangement import ELEMENT_TYPES, NotMapped, channels_last, plain
from nnpa_network.building.builder import Builder
from nnpa_network.building.runtime_shapes import TransposedAxis, transposed_axes
from nnpa_network.building.type_inference import OnnxNode, Value
from nnpa_network.operators.elementwise import clipping
from nnpa_network.operators.table import (
    Graph,
    become,
    operator,
    part,
    required_input,
    required_output,
    reshaped,
)
from nnpa_network.operators.windows import (
    MAX_WINDOW,
    SAME_PADDING,
    VALID_PADDING,
    Pair,
    Window,
    as_images,
    is_same,
    pair,
    read_window,
    require_images,
    strides_of,
    unfolded,
)

# Limits and numbers of zDNN API Reference 1.2.0: zdnn_conv2d.
MAX_CONV_WHOLE, MAX_CONV_STRIDE = 448, 13
ACT_NONE, ACT_RELU = 0, 1
# Each group is a convolution of its own; beyond this a list of them is no use of an accelerator.
MAX_GROUPS = 32


def _padding(builder: Builder, value: Value, window: Window) -> tuple[Value, int]:
    """Return the operand and the padding type; padding that zDNN has no name for is done here."""
    size = value.dims[2], value.dims[3]
    if not window.padded:
        return value, VALID_PADDING
    if is_same(window, size):
        return value, SAME_PADDING
    ends = builder.integers(0, 0, *window.before, 0, 0, *window.after)
    return builder.host("Pad", [value, ends]), VALID_PADDING


@operator("Conv", functions=("conv2d",))
def conv(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operand of rank 4, group 1, dilation 1, stride at most 13, kernel at most 64 (448 where
    it covers the whole image). Padding other than none and SAME_UPPER is added by the host. A Relu
    or Clip from 0 that alone reads the result becomes part of it. `all`: rank 3 as images of height
    1; there a wider kernel that is a multiple of its stride, whose steps the host makes channels;
    and groups, at most 32 but not of one channel each, which the host splits and joins.
    """
    value, weights, output = required_input(node, 0), required_input(node, 1), required_output(node)
    require_images(value, graph)
    builder.require("conv2d")
    groups = int(node.attributes.get("group", 1))
    _require_groups(groups, value, graph)
    value, weights = as_images(value), as_images(weights)
    size, kernel = (value.dims[2], value.dims[3]), (weights.dims[2], weights.dims[3])
    window = read_window(node, size, kernel)
    if groups == 1 and _is_in_steps(window, size):
        graph.beyond(
            f"the kernel is {list(kernel)}, at most {MAX_WINDOW}", "makes its steps channels"
        )
        value, weights, window = _steps_as_channels(builder, value, weights, window, output)
    strides = strides_of(window, size, output, MAX_CONV_STRIDE, MAX_CONV_WHOLE)
    value, padding = _padding(builder, value, window)
    bias = node.input(2)
    if bias is None:
        bias = builder.constant(np.zeros(weights.dims[0], value.dtype))
    act, clip, result = _activated(graph, output)
    result = unfolded(builder, result)
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


def _is_in_steps(window: Window, size: Pair) -> bool:
    """Tell whether a kernel is too wide for zDNN, and a multiple of its stride over rows."""
    width, step = window.kernel[1], window.strides[1]
    return (
        (size[0], window.kernel[0], any(window.before[:1] + window.after[:1])) == (1, 1, False)
        and width > MAX_WINDOW
        and (width > MAX_CONV_WHOLE or window.kernel != size)
        and width % step == 0
        and width // step <= MAX_WINDOW
    )


def _steps_as_channels(
    builder: Builder, value: Value, weights: Value, window: Window, output: Value
) -> tuple[Value, Value, Window]:
    """Return operands and window of the same sums, each stride of elements turned into channels.

    `value` is (N, C, 1, W), `weights` (K, C, 1, kw) with kw a multiple of the stride s; they become
    (N, C * s, 1, W / s), padded or cropped, and (K, C * s, 1, kw / s), the stride 1.
    """
    step, start = window.strides[1], window.before[1]
    steps = window.kernel[1] // step
    (n, channels, _, width), columns = value.dims, output.dims[-1] + steps - 1
    ends = builder.integers(0, 0, 0, start, 0, 0, 0, columns * step - width - start)
    value = builder.host("Pad", [value, ends])
    folded = [
        reshaped(
            builder.host(
                "Transpose", [reshaped(operand, (rows, channels, count, step))], perm=[0, 1, 3, 2]
            ),
            (rows, channels * step, 1, count),
        )
        for operand, rows, count in ((value, n, columns), (weights, weights.dims[0], steps))
    ]
    return folded[0], folded[1], Window((1, steps), (1, 1), (0, 0), (0, 0))


def _require_groups(groups: int, value: Value, graph: Graph) -> None:
    if groups == 1:
        return
    if groups == value.dims[1]:
        raise NotMapped(f"group is {groups}, one for each channel (depthwise), must be fewer")
    if groups > MAX_GROUPS:
        raise NotMapped(f"group is {groups}, must be at most {MAX_GROUPS}")
    graph.beyond(f"group is {groups}, must be 1", "splits it")


def _activated(graph: Graph, output: Value) -> tuple[int, float | None, Value]:
    """Return the activation and clipping that follow, and the node whose result they make."""
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
        pieces: list[Value] = []
        for operand, axis in zip(operands, (1, 0, 0), strict=True):
            size = operand.dims[axis] // groups
            pieces.append(part(builder, operand, axis, group * size, (group + 1) * size))
        result = Value(f"{output.name}_{group}", output.dtype, (n, channels // groups, high, wide))
        convolve(builder, (pieces[0], pieces[1], pieces[2]), scalars, result)
        parts.append(result)
    joined = builder.host("Concat", parts, axis=1)
    become(builder, output, joined)


@operator("ConvTranspose", functions=("conv2d",))
def conv_transpose(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operand of rank 4 (`all`: or 3, as images of height 1), one group, dilation 1, kernel
    at most 64. The host spreads the operand by the strides, pads or crops it, and turns the kernel
    round; conv2d with stride 1 does the rest.
    """
    value, weights = required_input(node, 0), required_input(node, 1)
    require_images(value, graph)
    value, weights = as_images(value), as_images(weights)
    output = unfolded(builder, required_output(node))
    builder.require("conv2d")
    if int(node.attributes.get("group", 1)) != 1:
        raise NotMapped(f"group is {node.attributes['group']}, must be 1")
    if pair(node, "dilations", 1) != (1, 1):
        raise NotMapped(f"dilations are {list(pair(node, 'dilations', 1))}, must be 1")
    kernel = weights.dims[2], weights.dims[3]
    if max(kernel) > MAX_WINDOW:
        raise NotMapped(f"the kernel is {list(kernel)}, must be at most {MAX_WINDOW}")
    strides = pair(node, "strides", 1)
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
    """Return the padding before and behind the spread operand, below 0 to crop.

    Refuse the same as ONNX Runtime, so that the host reports it.
    """
    rank = len(required_input(node, 0).dims) - 2
    extra, before, after = pair(node, "output_padding", 0), [0, 0], [0, 0]
    geometry = transposed_axes(node.attributes, value.dims[-rank:], kernel[-rank:])
    for axis, along in enumerate([TransposedAxis(0, 0, 1), *geometry][-2:]):
        if extra[axis] >= strides[axis] and extra[axis]:
            raise NotMapped(
                f"output_padding is {extra[axis]}, must be less than the stride {strides[axis]}"
            )
        spread, size = (value.dims[2 + axis] - 1) * strides[axis] + 1, output.dims[2 + axis]
        span = size + along.before + along.after - kernel[axis]
        if span // strides[axis] + 1 != value.dims[2 + axis]:
            limit = f"must be one whose windows are the {value.dims[2 + axis]} of the input"
            raise NotMapped(f"output_shape is {list(output.dims[2:])}, {limit}")
        before[axis] = kernel[axis] - 1 - along.before
        after[axis] = size + kernel[axis] - 1 - spread - before[axis]
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
