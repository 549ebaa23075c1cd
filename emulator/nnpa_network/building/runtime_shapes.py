# SPDX-License-Identifier: Apache-2.0
"""Shapes of ONNX Runtime's outputs that differ from ONNX's shape inference.

Sources: ONNX Runtime, core/providers/cpu/nn/pool_attributes.h, ComputeSizePadDilations; ONNX
operator Loop, whose carried values may change their shapes and keep the first one in 0 rounds.
"""

from collections.abc import Sequence
from typing import Any

import onnx
from onnx import helper

from nnpa_network.building.arrangement import Shape

_POOLS = frozenset(("AveragePool", "LpPool", "MaxPool"))
_LOOP_CONTROLS = 2  # inputs of a Loop before the carried values: trip count, condition


def runtime_shapes(
    node: onnx.NodeProto, inputs: Sequence[Shape | None], inferred: Sequence[Shape | None]
) -> list[Shape | None]:
    """Return the shapes of a node's outputs, -1 for dims and None for ranks known in a run only."""
    own = node.domain in ("", "ai.onnx")
    if own and node.op_type in _POOLS and inputs[0] is not None:
        return [shape and _pooled(node, inputs[0], shape) for shape in inferred]
    if own and node.op_type == "Loop":
        first = inputs[_LOOP_CONTROLS:]
        return [*map(_carried, first, inferred), *inferred[len(first) :]]
    return list(inferred)


def _carried(first: Shape | None, last: Shape | None) -> Shape | None:
    """Return the dims that a carried value has both before and after the rounds, else -1."""
    if first is None or last is None or len(first) != len(last):
        return None
    return tuple(a if a == b else -1 for a, b in zip(first, last, strict=True))


def _pooled(node: onnx.NodeProto, data: Shape, inferred: Shape) -> Shape:
    attributes: dict[str, Any] = {
        attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute
    }
    kernel, rank = attributes["kernel_shape"], len(data) - 2
    units, auto = [1] * rank, attributes.get("auto_pad", b"NOTSET")
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


def _ends(auto: bytes, size: int, kernel: int, stride: int, pads: tuple[int, int]) -> Shape:
    """Return the padding before and behind an axis; for auto_pad dilations do not count."""
    if auto in (b"SAME_UPPER", b"SAME_LOWER"):
        total = (-(-size // stride) - 1) * stride + kernel - size
        small, large = total // 2, total - total // 2
        return (small, large) if auto == b"SAME_UPPER" else (large, small)
    return (0, 0) if auto == b"VALID" else pads


def _windows(size: int, ends: Shape, span: int, stride: int, ceil: bool) -> int:
    """Return how many windows there are; by ceil_mode the last one begins within the data."""
    room = size + sum(ends) - span
    count = (-(-room // stride) if ceil or room < 0 else room // stride) + 1
    return count - 1 if ceil and (count - 1) * stride >= size + ends[0] else count
