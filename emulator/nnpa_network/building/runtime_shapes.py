# SPDX-License-Identifier: Apache-2.0
"""Shapes of ONNX Runtime's outputs that differ from ONNX's shape inference.

ONNX's inference knows neither auto_pad of a ConvTranspose beside output_padding nor an output_shape
that is smaller than the input. Sources: ONNX Runtime, core/providers/cpu/nn/pool_attributes.h,
ComputeSizePadDilations; ONNX operators ConvTranspose and Loop, whose carried values may change
their shapes and keep the first one in 0 rounds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import onnx

from nnpa_network.building.arrangement import Shape

Attributes: TypeAlias = Mapping[str, Any]
"""A node's attributes by name; the operator decides the type of each."""
_POOLS = frozenset(("AveragePool", "LpPool", "MaxPool"))
_LOOP_CONTROLS = 2  # inputs of a Loop before the carried values: trip count, condition
_SAME = ("SAME_UPPER", "SAME_LOWER")


def runtime_shapes(
    node: onnx.NodeProto,
    attributes: Attributes,
    inputs: Sequence[Shape | None],
    inferred: Sequence[Shape | None],
) -> list[Shape | None]:
    """Return the shapes of a node's outputs, -1 for dims and None for ranks known in a run only."""
    own = node.domain in ("", "ai.onnx")
    if own and node.op_type in _POOLS and inputs[0] is not None:
        return [shape and _pooled(attributes, inputs[0], shape) for shape in inferred]
    if own and node.op_type == "ConvTranspose" and len(inputs) > 1:
        return [_transposed(attributes, inputs[0], inputs[1], inferred[0]), *inferred[1:]]
    if own and node.op_type == "Loop":
        first = inputs[_LOOP_CONTROLS:]
        return [*map(_carried, first, inferred), *inferred[len(first) :]]
    return list(inferred)


def _carried(first: Shape | None, last: Shape | None) -> Shape | None:
    """Return the dims that a carried value has both before and after the rounds, else -1."""
    if first is None or last is None or len(first) != len(last):
        return None
    return tuple(a if a == b else -1 for a, b in zip(first, last, strict=True))


def _pooled(attributes: Attributes, data: Shape, inferred: Shape) -> Shape:
    kernel, rank = attributes["kernel_shape"], len(data) - 2
    units, auto = [1] * rank, attributes.get("auto_pad", "NOTSET")
    strides, dilations = attributes.get("strides", units), attributes.get("dilations", units)
    pads = attributes.get("pads", [0] * 2 * rank)
    if len(kernel) != rank or min(strides, default=1) < 1:
        return inferred
    sizes = list[int]()
    for axis, size in enumerate(data[2:]):
        stride, span = strides[axis], dilations[axis] * (kernel[axis] - 1) + 1
        ends = _ends(auto, size, kernel[axis], stride, (pads[axis], pads[rank + axis]))
        sizes.append(_windows(size, ends, span, stride, bool(attributes.get("ceil_mode", 0))))
    axes = zip(data[2:], sizes, inferred[2:], strict=True)
    return *inferred[:2], *(
        by_onnx if min(size, ours) < 0 else ours for size, ours, by_onnx in axes
    )


def _ends(auto: str, size: int, kernel: int, stride: int, pads: tuple[int, int]) -> Shape:
    """Return the padding before and behind an axis; for auto_pad dilations do not count."""
    if auto in _SAME:
        total = (-(-size // stride) - 1) * stride + kernel - size
        small, large = total // 2, total - total // 2
        return (small, large) if auto == "SAME_UPPER" else (large, small)
    return (0, 0) if auto == "VALID" else pads


def _windows(size: int, ends: Shape, span: int, stride: int, ceil: bool) -> int:
    """Return how many windows there are; by ceil_mode the last one begins within the data."""
    room = size + sum(ends) - span
    count = (-(-room // stride) if ceil or room < 0 else room // stride) + 1
    return count - 1 if ceil and (count - 1) * stride >= size + ends[0] else count


def _transposed(
    attributes: Attributes, data: Shape | None, weights: Shape | None, inferred: Shape | None
) -> Shape | None:
    """Return the shape of a transposed convolution, as inferred where sizes are not known."""
    if data is None or weights is None or -1 in (*data, *weights):
        return inferred
    channels = weights[1] * int(attributes.get("group", 1))
    axes = transposed_axes(attributes, data[2:], weights[2:])
    return (data[0], channels, *(axis.size for axis in axes))


@dataclass(frozen=True, slots=True)
class TransposedAxis:
    """One spatial axis: elements cut off before and behind the whole sum, and elements kept.

    A requested size may be beyond the whole sum: then zeros follow.
    """

    before: int
    after: int
    size: int


def is_same(attributes: Attributes) -> bool:
    """Tell whether auto_pad is one of the two for which padding follows from the strides."""
    return attributes.get("auto_pad", "NOTSET") in _SAME


def transposed_axes(
    attributes: Attributes, sizes: Sequence[int], kernel: Sequence[int]
) -> list[TransposedAxis]:
    """Return the geometry of each spatial axis of a ConvTranspose over inputs of these sizes."""
    rank = len(kernel)
    strides, dilations, extra = (
        [int(number) for number in attributes.get(name) or [default] * rank]
        for name, default in (("strides", 1), ("dilations", 1), ("output_padding", 0))
    )
    explicit = attributes.get("auto_pad", "NOTSET") == "NOTSET" and attributes.get("pads")
    pads = [int(pad) for pad in explicit or [0] * 2 * rank]
    requested = [int(size) for size in attributes.get("output_shape") or ()][-rank:]
    upper = attributes.get("auto_pad") == "SAME_UPPER"
    axes: list[TransposedAxis] = []
    for axis, size in enumerate(sizes):
        span = (kernel[axis] - 1) * dilations[axis] + 1
        whole = (size - 1) * strides[axis] + span + extra[axis]
        if requested or is_same(attributes):
            target = requested[axis] if requested else size * strides[axis]
            cut = max(whole - target, 0)
            before = cut // 2 if upper else cut - cut // 2
            size_out = requested[axis] if requested else whole - cut
            axes.append(TransposedAxis(before, cut - before, size_out))
        else:
            before, after = pads[axis], pads[rank + axis]
            axes.append(TransposedAxis(before, after, whole - before - after))
    return axes
