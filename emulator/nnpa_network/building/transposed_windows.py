# SPDX-License-Identifier: Apache-2.0
"""Padding and output sizes of ConvTranspose, as ONNX Runtime computes them.

ONNX's shape inference knows neither auto_pad beside output_padding nor an output_shape that is
smaller than the input. Source: ONNX operator ConvTranspose.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_SAME = ("SAME_UPPER", "SAME_LOWER")


@dataclass(frozen=True, slots=True)
class TransposedAxis:
    """One spatial axis: elements cut off before and behind the whole sum, and elements kept.

    A requested size may be beyond the whole sum: then zeros follow.
    """

    before: int
    after: int
    size: int


def is_same(attributes: Mapping[str, Any]) -> bool:
    """Tell whether auto_pad is one of the two for which padding follows from the strides."""
    return attributes.get("auto_pad", "NOTSET") in _SAME


def transposed_axes(
    attributes: Mapping[str, Any], sizes: Sequence[int], kernel: Sequence[int]
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
