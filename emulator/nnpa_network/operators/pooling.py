# SPDX-License-Identifier: Apache-2.0
"""Pooling: AveragePool, MaxPool, GlobalMaxPool.

Sources: ONNX operators of the names given; zDNN API Reference 1.2.0, zdnn_avgpool2d,
zdnn_maxpool2d.
"""

from nnpa_network.building.arrangement import NotMapped, channels_last
from nnpa_network.building.builder import Builder
from nnpa_network.building.type_inference import OnnxNode, Value
from nnpa_network.operators.table import Graph, operator, required_input, required_output
from nnpa_network.operators.windows import (
    SAME_PADDING,
    VALID_PADDING,
    Pair,
    Window,
    as_images,
    is_same,
    pair,
    read_window,
    require_images,
    skips_ends,
    strides_of,
    unfolded,
)

# Limits of zDNN API Reference 1.2.0: zdnn_avgpool2d, zdnn_maxpool2d.
MAX_POOL_STRIDE, MAX_IMAGE = 30, 1024


@operator("AveragePool", "MaxPool", functions=("avgpool2d", "maxpool2d"))
def pool(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operand of rank 4 (`all`: or 3, as images of height 1), dilation 1, kernel at most 64
    (1024 where it covers the whole image), stride at most 30, height and width at most 1024; no
    padding or SAME_UPPER, explicitly or by auto_pad, padding not counted in averages; ceil_mode
    only where it changes nothing; no Indices.
    """
    value = required_input(node, 0)
    verb = "maxpool2d" if node.op_type == "MaxPool" else "avgpool2d"
    require_images(value, graph)
    builder.require(verb)
    if graph.is_read(node.output(1)):
        raise NotMapped("output Indices is read, must be left out")
    value, output = as_images(value), unfolded(builder, required_output(node))
    kernel = pair(node, "kernel_shape", 1)
    size = value.dims[2], value.dims[3]
    if skips_ends(node, size, kernel):  # ONNX Runtime moves windows, or refuses them
        auto = node.attributes["auto_pad"]
        limit = "must be NOTSET where strides leave the last elements out"
        raise NotMapped(f"auto_pad is {auto}, {limit}")
    window = read_window(node, size, kernel)
    if node.attributes.get("count_include_pad", 0) and window.padded:
        raise NotMapped("count_include_pad is 1 with pads, must be 0")
    padding = SAME_PADDING if window.padded else VALID_PADDING
    if window.padded and not is_same(window, size):
        ends = [*window.before, *window.after]
        raise NotMapped(f"pads are {ends}, must be none or those of SAME_UPPER")
    _require_windows(window, size, output, padding)
    strides = strides_of(window, size, output, MAX_POOL_STRIDE, MAX_IMAGE)
    _pooled(builder, verb, window.kernel, strides, padding, value, output)


def _require_windows(window: Window, size: Pair, output: Value, padding: int) -> None:
    """Refuse an output that ceil_mode made larger than zDNN's, and images beyond the limit."""
    for axis in (0, 1):
        span = size[axis] if padding == SAME_PADDING else size[axis] - window.kernel[axis] + 1
        if -(-span // window.strides[axis]) != output.dims[2 + axis]:
            raise NotMapped("ceil_mode is 1 and adds a window, must be 0")
    _require_image(size)


def _require_image(size: Pair) -> None:
    if max(size) > MAX_IMAGE:
        raise NotMapped(f"height and width are {list(size)}, must be at most {MAX_IMAGE}")


def _pooled(
    builder: Builder,
    verb: str,
    kernel: Pair,
    strides: Pair,
    padding: int,
    value: Value,
    output: Value,
) -> None:
    """Emit a pooling of (N, C, H, W); strides of 0 mean one window over the image."""
    builder.call(
        verb,
        input=builder.tensor(value, channels_last(value.dims)),
        padding_type=padding,
        kernel_height=kernel[0],
        kernel_width=kernel[1],
        stride_height=strides[0],
        stride_width=strides[1],
        output=builder.new_tensor(output, channels_last(output.dims)),
    )


@operator("GlobalMaxPool", functions=("maxpool2d",), beyond="makes it one window of maxpool2d")
def global_maximum(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operand of rank 3 or 4, height and width at most 1024: one window over the image."""
    value = required_input(node, 0)
    require_images(value, graph)
    value, output = as_images(value), unfolded(builder, required_output(node))
    builder.require("maxpool2d")
    size = value.dims[2], value.dims[3]
    _require_image(size)
    _pooled(builder, "maxpool2d", size, (0, 0), VALID_PADDING, value, output)
