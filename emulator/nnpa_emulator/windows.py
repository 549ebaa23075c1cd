# SPDX-License-Identifier: Apache-2.0
"""Windows that slide over dim3 (height) and dim2 (width): their number, their places, and refusals.

A stride of 0 means one window over the whole input. VALID windows lie inside the input; SAME has
ceil(input / stride) windows and pads the input, the odd element behind.
Source: zDNN API Reference 1.2.0, "AvgPool2D Parameter Restrictions" and "Convolution 2D
Requirements"; the order of checks is the zDNN library's.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nnpa_emulator import stick
from nnpa_emulator.blocks import PAGE_CELLS, cut
from nnpa_emulator.dlfloat import NINF
from nnpa_emulator.reference.pooling import Window
from nnpa_emulator.status import Refused, Status
from nnpa_emulator.table import Row
from nnpa_emulator.ztensor import CELLS_PER_STICK, Ztensor

VALID_PADDING, SAME_PADDING = 0, 1


@dataclass(frozen=True, slots=True)
class Axis:
    """One spatial dimension of a call, in elements; `field` names the argument with the window."""

    dimension: int
    field: str
    window: int
    stride: int
    size: int
    output: int


@dataclass(frozen=True, slots=True)
class Labels:
    """The numbers of the constraints on windows in an operation's docstring."""

    whole: str
    padding: str
    strides: str
    fits: str
    count: str


def count(size: int, window: int, stride: int, padding: int) -> int:
    """Return how many windows there are, 0 where a VALID window does not fit."""
    if stride == 0:
        return 1
    reach = size if padding == SAME_PADDING else size - window + 1
    return max(0, -(-reach // stride))


def before(size: int, window: int, stride: int, padding: int) -> int:
    """Return how many padding elements lie before the input."""
    if padding != SAME_PADDING or stride == 0:
        return 0
    covered = (count(size, window, stride, padding) - 1) * stride + window
    return max(covered - size, 0) // 2


def require_windows(axes: Sequence[Axis], padding: int, labels: Labels) -> None:
    """Refuse windows, strides and padding that contradict each other; `axes` width first.

    A padding that is neither VALID nor SAME is left to the machine where strides are positive.
    """
    shape = Status.ZDNN_INVALID_SHAPE
    zeros = [axis.stride == 0 for axis in axes]
    if all(zeros):
        for axis in axes:
            if axis.window != axis.size:
                limit = f"{axis.size} (input.dim{axis.dimension})"
                raise Refused(shape, axis.field, axis.window, limit, labels.whole)
        _require_counts(axes, padding, labels.whole)
        if padding != VALID_PADDING:
            raise Refused(
                Status.ZDNN_INVALID_STRIDE_PADDING, "padding_type",
                "SAME_PADDING" if padding == SAME_PADDING else padding,
                "VALID_PADDING where strides are 0", labels.padding,
            )  # fmt: skip
    elif any(zeros):
        strides = tuple(axis.stride for axis in reversed(axes))
        field, limit = "(stride_height, stride_width)", "both 0 or both positive"
        raise Refused(Status.ZDNN_INVALID_STRIDES, field, strides, limit, labels.strides)
    else:
        for axis in axes:
            if padding == VALID_PADDING and axis.window > axis.size:
                limit = f"at most {axis.size} (input.dim{axis.dimension})"
                raise Refused(shape, axis.field, axis.window, limit, labels.fits)
        if padding in (VALID_PADDING, SAME_PADDING):
            _require_counts(axes, padding, labels.count)


def _require_counts(axes: Sequence[Axis], padding: int, label: str) -> None:
    """Refuse an output that does not have one element per window."""
    for axis in axes:
        expected = count(axis.size, axis.window, axis.stride, padding)
        if axis.output != expected:
            field, limit = f"output.transformed_desc.dim{axis.dimension}", f"{expected} (windows)"
            raise Refused(Status.ZDNN_INVALID_SHAPE, field, axis.output, limit, label)


def unaliased(tensor: Ztensor, output: Ztensor) -> Ztensor:
    """Return an input that the output does not overwrite: itself, or a copy if they share memory.

    Windows overlap, so that the next window reads elements that one has written.
    """
    if not np.may_share_memory(tensor.sticks, output.sticks):
        return tensor
    return replace(tensor, buffer=tensor.sticks.copy())


def slide_rows(number: int, input: Ztensor, output: Ztensor, window: Window) -> list[Row]:  # noqa: A002 - zDNN's name
    """Return the row of a kernel of pooling that does `slide` over tensors that share no memory."""
    read, written = stick.geometry(input.transformed_desc), stick.geometry(output.transformed_desc)
    codes, out = input.sticks.view(np.uint16), output.sticks.view(np.uint16)
    operands = codes, out, read.dims, read.pages, written.dims, written.pages, window
    return [Row(number, operands, NINF, math.prod(read.dims) + math.prod(written.dims) * window[1])]


def slide(
    kernel: Callable[..., np.uint16],
    sticks: stick.Buffer,
    target: stick.Buffer,
    read: stick.Geometry,
    written: stick.Geometry,
    window: Window,
) -> bool:
    """Run a kernel of pooling over all windows, in blocks; tell whether a result is NINF."""
    codes, out = sticks.view(np.uint16), target.view(np.uint16)
    (_, high, wide, _), (d4, d3, d2, d1) = read.dims, written.dims
    height, width, step, _, above, left = window
    counts, cost = (d4, written.columns, d3), CELLS_PER_STICK * (height * wide + width * d2)
    largest = 0
    for (e4, images), (column, columns), (o3, lines) in cut(counts, cost):
        cells = min(d1 - CELLS_PER_STICK * column, CELLS_PER_STICK * columns)
        first = e4 * read.pages[0] + column * read.pages[1]
        page = e4 * written.pages[0] + column * written.pages[1] + o3 * written.pages[2]
        met = kernel(
            codes[first * PAGE_CELLS :], out[page * PAGE_CELLS :],
            (images, high, wide, cells), read.pages, (images, lines, d2, cells), written.pages,
            (*window[:4], above - o3 * step, left),
        )  # fmt: skip
        largest = max(largest, int(met))
    return largest == NINF
