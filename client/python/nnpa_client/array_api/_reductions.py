# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: A001 - names of the standard's functions
"""Reductions of the namespace: along the axes that zDNN reduces."""

from typing import TypeAlias

from nnpa_client import zdnn
from nnpa_client._values.user_arrays import dims
from nnpa_client.array_api._conformance import Difference, entered
from nnpa_client.array_api._operands import operand, require_rank, shaped
from nnpa_client.array_api._shapes import require_axes
from nnpa_client.ztensor import Ztensor

__tracebackhide__ = True  # pytest shows the line that called, not these

Axis: TypeAlias = int | tuple[int, ...] | None

# Where the dims of a rank stand among (dim4, dim3, dim2, dim1).
_PLACES = {1: (3,), 2: (2, 3), 3: (0, 2, 3), 4: (0, 1, 2, 3)}
_LAST, _IMAGE, _IMAGE_AND_LAST = {3}, {1, 2}, {1, 2, 3}

_ROUNDED = (Difference.PRECISION, Difference.RANGE)
_LIMITED = (Difference.AXES, Difference.DIMS)


@entered("reduce", *_LIMITED)
def max(x: Ztensor, /, *, axis: Axis = None, keepdims: bool = False) -> Ztensor:
    """Return the greatest element along the last axis: zdnn_reduce, which needs Telum II.

    Axes of size 1 may be among `axis`, or missing. Raises NotImplementedError for other axes, and
    where no dim would be left.
    """
    return _reduce("max", x, axis, keepdims, zdnn.REDUCE_OP_MAXIMUM)


@entered("reduce", *_LIMITED)
def min(x: Ztensor, /, *, axis: Axis = None, keepdims: bool = False) -> Ztensor:
    """Return the least element along the last axis; as `max`."""
    return _reduce("min", x, axis, keepdims, zdnn.REDUCE_OP_MINIMUM)


@entered("reduce", *_LIMITED, Difference.ARGUMENTS)
def argmax(x: Ztensor, /, *, axis: int | None = None, keepdims: bool = False) -> Ztensor:
    """Return the first place of the greatest element along the last axis, int32.

    As `max`, with keepdims=True only: zdnn_reshape_ztensor takes no int32.
    """
    _require_kept("argmax", keepdims)
    return _reduce("argmax", x, axis, keepdims, zdnn.REDUCE_OP_MAXIMUM_IDX)


@entered("reduce", *_LIMITED, Difference.ARGUMENTS)
def argmin(x: Ztensor, /, *, axis: int | None = None, keepdims: bool = False) -> Ztensor:
    """Return the first place of the least element along the last axis, int32; as `argmax`."""
    _require_kept("argmin", keepdims)
    return _reduce("argmin", x, axis, keepdims, zdnn.REDUCE_OP_MINIMUM_IDX)


@entered("meanreduce2d, moments", *_ROUNDED, *_LIMITED)
def mean(x: Ztensor, /, *, axis: Axis = None, keepdims: bool = False) -> Ztensor:
    """Return the mean over all axes but the last (zdnn_meanreduce2d), or over all (zdnn_moments).

    Of three and four dims the first is never among them. zdnn_moments needs Telum II. Axes of size
    1 may be among `axis`, or missing. Raises NotImplementedError for other axes, and where no dim
    would be left.
    """
    x = operand("mean", x)
    axes = require_axes("mean", x, axis)
    shape = _left("mean", x, axes, keepdims)
    if _covers(x, axes, _IMAGE):
        return shaped(zdnn.meanreduce2d(x), shape)
    _require_covered("mean", x, axes, _IMAGE_AND_LAST)
    return shaped(zdnn.moments(x, zdnn.MOMENTS_BESSEL_POPULATION)[0], shape)


@entered("moments", *_ROUNDED, *_LIMITED, Difference.ARGUMENTS)
def var(
    x: Ztensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> Ztensor:
    """Return the variance over all axes, of three and four dims but the first: zdnn_moments.

    It needs Telum II. Raises NotImplementedError for other axes, where no dim would be left, and
    for a `correction` other than 0 and 1.
    """
    if correction not in (0, 1):
        raise NotImplementedError(f"var: correction {correction}, expected 0 or 1")
    x = operand("var", x)
    axes = require_axes("var", x, axis)
    shape = _left("var", x, axes, keepdims)
    _require_covered("var", x, axes, _IMAGE_AND_LAST)
    _mean, variance = zdnn.moments(x, int(correction))
    variance.write_sticks(variance.read_sticks())  # the library leaves it unflagged
    return shaped(variance, shape)


def _reduce(function: str, x: Ztensor, axis: Axis, keepdims: bool, operation: int) -> Ztensor:
    x = operand(function, x)
    axes = require_axes(function, x, axis)
    shape = _left(function, x, axes, keepdims)
    _require_covered(function, x, axes, _LAST)
    return shaped(zdnn.reduce(x, None, operation), shape)


def _require_kept(function: str, keepdims: bool) -> None:
    if not keepdims:
        raise NotImplementedError(
            f"{function}: keepdims False, expected True: zdnn_reshape_ztensor takes no int32"
        )


def _left(function: str, x: Ztensor, axes: set[int], keepdims: bool) -> tuple[int, ...]:
    """Return the shape that a reduction leaves."""
    if keepdims:
        return tuple(1 if place in axes else size for place, size in enumerate(x.shape))
    shape = tuple(size for place, size in enumerate(x.shape) if place not in axes)
    require_rank(f"{function}: keepdims False", shape)
    return shape


def _covers(x: Ztensor, axes: set[int], places: set[int]) -> bool:
    """Return True if zDNN reduces `axes` when it reduces `places`; dims of size 1 do not matter."""
    reduced = {_PLACES[x.ndim][axis] for axis in axes}
    sizes = dims(x.transformed_desc)
    return all(sizes[place] == 1 for place in reduced ^ places)


def _require_covered(function: str, x: Ztensor, axes: set[int], places: set[int]) -> None:
    if not _covers(x, axes, places):
        possible = [axis for axis, place in enumerate(_PLACES[x.ndim]) if place in places]
        raise NotImplementedError(
            f"{function}: axes {sorted(axes)} of shape {x.shape}, zDNN reduces {possible}"
        )
