# SPDX-License-Identifier: Apache-2.0
"""Windows over images, for convolutions and poolings.

Rows (N, C, W) are images of height 1. Sources: ONNX operators Conv, AveragePool, MaxPool; zDNN API
Reference 1.2.0, zdnn_conv2d, zdnn_avgpool2d, zdnn_maxpool2d.
"""

import math
from dataclasses import dataclass

from nnpa_network.building.arrangement import NotMapped, Shape
from nnpa_network.building.builder import Builder
from nnpa_network.building.type_inference import OnnxNode, Value
from nnpa_network.operators.table import Graph, become, require_float, require_rank, reshaped

# Numbers of zDNN API Reference 1.2.0: zdnn_conv2d, zdnn_avgpool2d, zdnn_maxpool2d.
VALID_PADDING, SAME_PADDING = 0, 1
MAX_WINDOW = 64

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


def pair(node: OnnxNode, name: str, default: int) -> Pair:
    """Return an attribute's two numbers; of rows its one, with the default for the height."""
    numbers = node.attributes.get(name) or (default, default)
    first, second = (default, *numbers)[-2:]
    return int(first), int(second)


def pads_of(node: OnnxNode) -> list[int]:
    """Return the pads: top, left, bottom, right."""
    pads = [int(pad) for pad in node.attributes.get("pads") or [0, 0, 0, 0]]
    return pads if len(pads) == 4 else [0, pads[0], 0, pads[1]]


def as_images(value: Value) -> Value:
    """Return a value of rank 3, (N, C, W), as images of height 1, one of rank 4 as it is."""
    return reshaped(value, _rank_4(value.dims))


def _rank_4(dims: Shape) -> Shape:
    return dims if len(dims) == 4 else (dims[0], dims[1], 1, dims[2])


def require_images(value: Value, graph: Graph) -> None:
    """Refuse other ranks than 4, and 3, which only the placement `all` folds into 4."""
    require_float(value)
    if len(value.dims) == 3:
        graph.beyond("rank 3, must be 4", "folds it")
    else:
        require_rank(value, 4)


def unfolded(builder: Builder, output: Value) -> Value:
    """Return the value to compute for an output: itself, or its rows as images."""
    if len(output.dims) == 4:
        return output
    images = Value(f"{output.name}_part", output.dtype, _rank_4(output.dims))
    become(builder, output, images)
    return images


def read_window(node: OnnxNode, size: Pair, kernel: Pair) -> Window:
    """Read strides and padding; auto_pad becomes explicit."""
    strides, auto = pair(node, "strides", 1), node.attributes.get("auto_pad", "NOTSET")
    if pair(node, "dilations", 1) != (1, 1):
        raise NotMapped(f"dilations are {list(pair(node, 'dilations', 1))}, must be 1")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        totals = [_same(*sizes) for sizes in zip(size, kernel, strides, strict=True)]
        small = totals[0] // 2, totals[1] // 2
        large = totals[0] - small[0], totals[1] - small[1]
        ends = (small, large) if auto == "SAME_UPPER" else (large, small)
        return Window(kernel, strides, *ends)
    top, left, bottom, right = [0, 0, 0, 0] if auto == "VALID" else pads_of(node)
    window = Window(kernel, strides, (top, left), (bottom, right))
    for axis in (0, 1):
        if kernel[axis] > size[axis] + window.before[axis] + window.after[axis]:
            limit = "must be at most the image with its pads"
            raise NotMapped(f"the kernel is {list(kernel)}, {limit}")
    return window


def skips_ends(node: OnnxNode, size: Pair, kernel: Pair) -> bool:
    """Return True where auto_pad would be negative: windows end before the last elements."""
    if node.attributes.get("auto_pad") not in ("SAME_UPPER", "SAME_LOWER"):
        return False
    sizes = zip(size, kernel, pair(node, "strides", 1), strict=True)
    return any((size - 1) % stride >= kernel for size, kernel, stride in sizes)


def _same(size: int, kernel: int, stride: int) -> int:
    """Return the whole padding that makes ceil(size / stride) windows."""
    return max((-(-size // stride) - 1) * stride + kernel - size, 0)


def is_same(window: Window, size: Pair) -> bool:
    """Return True if padding is as SAME_PADDING adds it: the larger half behind."""
    totals = [_same(*sizes) for sizes in zip(size, window.kernel, window.strides, strict=True)]
    halves = [(total // 2, total - total // 2) for total in totals]
    return halves == list(zip(window.before, window.after, strict=True))


def strides_of(window: Window, size: Pair, output: Value, most: int, whole: int) -> Pair:
    """Return the strides for zDNN, 0 where one large window covers all; check the limits."""
    if max(window.kernel) > MAX_WINDOW:
        covers = window.kernel == size and not window.padded and math.prod(output.dims[2:]) == 1
        if not covers or max(window.kernel) > whole:
            raise NotMapped(f"the kernel is {list(window.kernel)}, must be at most {MAX_WINDOW}")
        return 0, 0
    if max(window.strides) > most:
        raise NotMapped(f"strides are {list(window.strides)}, must be at most {most}")
    return window.strides
