# SPDX-License-Identifier: Apache-2.0
"""New shapes of ztensors."""

from collections.abc import Sequence

import numpy as np

from nnpa_client.array_api._conformance import Difference, entered
from nnpa_client.array_api._operands import operand, require_rank, reshaped
from nnpa_client.ztensor import Ztensor

__tracebackhide__ = True  # pytest shows the line that called, not these


@entered("reshape_ztensor", Difference.DIMS, Difference.COPIES)
def reshape(x: Ztensor, /, shape: Sequence[int], *, copy: bool | None = None) -> Ztensor:
    """Return a copy with another shape of the same number of elements; one size may be -1.

    Raises ValueError for another number of elements and for copy=False, NotImplementedError for
    none or more than four dims.
    """
    x = operand("reshape", x)
    if copy is False:
        raise ValueError("reshape: copy False, expected None or True")
    require_rank("reshape", shape)
    try:
        sizes = np.empty(x.shape, np.bool_).reshape(tuple(shape)).shape
    except ValueError as error:
        raise ValueError(f"reshape: shape {tuple(shape)}, expected that of {x.shape}") from error
    return reshaped(x, sizes)


@entered("reshape_ztensor", Difference.DIMS)
def expand_dims(x: Ztensor, /, axis: int = 0) -> Ztensor:
    """Return a copy with one more dim, of size 1, at `axis`.

    Raises IndexError for an axis out of bounds, NotImplementedError for a fifth dim.
    """
    x = operand("expand_dims", x)
    rank = x.ndim + 1
    if not -rank <= axis < rank:
        raise IndexError(f"expand_dims: axis {axis}, expected {-rank} to {rank - 1}")
    shape = list(x.shape)
    shape.insert(axis % rank, 1)
    return _shaped("expand_dims", x, shape)


@entered("reshape_ztensor", Difference.DIMS)
def squeeze(x: Ztensor, /, axis: int | tuple[int, ...]) -> Ztensor:
    """Return a copy without the dims at `axis`, which are of size 1.

    Raises ValueError for other sizes and an axis out of bounds, NotImplementedError where no dim
    would be left.
    """
    x = operand("squeeze", x)
    axes = require_axes("squeeze", x, axis)
    for place in axes:
        if x.shape[place] != 1:
            raise ValueError(f"squeeze: axis {place} has size {x.shape[place]}, expected 1")
    return _shaped("squeeze", x, [size for place, size in enumerate(x.shape) if place not in axes])


def require_axes(function: str, x: Ztensor, axis: int | tuple[int, ...] | None) -> set[int]:
    """Return the axes that `axis` names, counted from 0; None is all.

    Raises ValueError for one out of bounds.
    """
    rank = x.ndim
    axes = range(rank) if axis is None else (axis,) if isinstance(axis, int) else axis
    for place in axes:
        if not -rank <= place < rank:
            raise ValueError(f"{function}: axis {place}, expected {-rank} to {rank - 1}")
    return {place % rank for place in axes}


def _shaped(function: str, x: Ztensor, shape: Sequence[int]) -> Ztensor:
    require_rank(function, shape)
    return reshaped(x, shape)
