# SPDX-License-Identifier: Apache-2.0
"""How the elements of an ONNX value lie in a tensor of the accelerator.

An arrangement is the order of the value's axes and the four transformed dims that the elements,
taken in that order, fill row by row. Axes of size 1 do not count: (N, C, 1, 1) channels last is
the same as (N, C), which is why a Flatten behind a global pooling costs nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import ml_dtypes
import numpy as np
from nnpa_emulator import DataLayouts, DataTypes, Machine, TensorDesc
from nnpa_emulator.ztensor import (
    generate_transformed_desc,
    getsize_ztensor,
    init_pre_transformed_desc,
)

from nnpa_network.program import DType

Dims: TypeAlias = tuple[int, int, int, int]
Shape: TypeAlias = tuple[int, ...]

ELEMENT_TYPES: dict[DType, DataTypes] = {
    np.dtype(np.float32): DataTypes.FP32,
    np.dtype(np.float16): DataTypes.FP16,
    np.dtype(ml_dtypes.bfloat16): DataTypes.BFLOAT,
}
"""Element types whose values travel as DLFLOAT16."""
FLOATS = "float32, float16 or bfloat16"
_CHANNELS_LAST = (0, 2, 3, 1)
_kept = lru_cache(maxsize=1024)  # the same shapes come at each node


class NotMapped(Exception):
    """A node that the accelerator does not take; the text is the reason in the report."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Axes that are not 1 in the order of the elements, and transformed dims (4, 3, 2, 1)."""

    order: tuple[int, ...]
    dims: Dims

    @property
    def plain(self) -> bool:
        """Return whether elements are in the order that the model has them in."""
        return list(self.order) == sorted(self.order)


def axes_of(shape: Shape, permutation: Sequence[int] | None = None) -> tuple[int, ...]:
    """Return the axes of `shape` that are not 1, in the order of `permutation`."""
    axes = range(len(shape)) if permutation is None else permutation
    return tuple(axis for axis in axes if shape[axis] != 1)


def whole(shape: Shape, order: Sequence[int]) -> list[int]:
    """Return a permutation of all axes in which those that are not 1 come in `order`."""
    return [*(axis for axis in range(len(shape)) if shape[axis] == 1), *order]


def regrouped(order: Sequence[int], source: Shape, shape: Shape) -> tuple[int, ...] | None:
    """Return an order of the axes of `source` in the axes of `shape`; None if there is none.

    Both shapes have the same number of elements.
    """
    before, after = axes_of(source), axes_of(shape)
    if tuple(order) == before:
        return after
    if [source[axis] for axis in before] != [shape[axis] for axis in after]:
        return None
    return tuple(after[before.index(axis)] for axis in order)


def stacked(shape: Shape) -> Dims:
    """Return the dims of a stack of matrices: leading axes in dim4, the last two in dim2, dim1."""
    rows, columns = (1, 1, *shape)[-2:]
    return math.prod(shape[:-2]), 1, rows, columns


@_kept
def plain(shape: Shape) -> Arrangement:
    """Return the default arrangement of a value."""
    return Arrangement(axes_of(shape), stacked(shape))


@_kept
def channels_last(shape: Shape) -> Arrangement:
    """Return how images (N, C, H, W) lie for pooling and convolution."""
    n, c, h, w = shape
    return Arrangement(axes_of(shape, _CHANNELS_LAST), (n, h, w, c))


def is_channels_last(shape: Shape, arrangement: Arrangement) -> bool:
    """Return whether the transform itself turns (N, C, H, W) into this, as layout ZDNN_NCHW."""
    return len(shape) == 4 and not arrangement.plain and arrangement == channels_last(shape)


@_kept
def describe(shape: Shape, arrangement: Arrangement, dtype: DType) -> tuple[TensorDesc, TensorDesc]:
    """Return the pre-transformed and transformed descriptors of a value."""
    kind = ELEMENT_TYPES[dtype]
    if is_channels_last(shape, arrangement):
        pre = init_pre_transformed_desc(DataLayouts.ZDNN_NCHW, kind, *shape)
    else:
        layout, dims = _layout(arrangement.dims)
        pre = init_pre_transformed_desc(layout, kind, *dims)
    return pre, generate_transformed_desc(pre)


def _layout(dims: Dims) -> tuple[DataLayouts, tuple[int, ...]]:
    """Return zDNN's name for plain dims, with the dims that it has."""
    d4, d3, d2, d1 = dims
    if d4 == d3 == d2 == 1:
        return DataLayouts.ZDNN_1D, (d1,)
    if d4 == d3 == 1:
        return DataLayouts.ZDNN_2D, (d2, d1)
    if d3 == 1:
        return DataLayouts.ZDNN_3DS, (d4, d2, d1)
    if d4 == 1:
        return DataLayouts.ZDNN_3D, (d3, d2, d1)
    return DataLayouts.ZDNN_NHWC, dims


def require_fits(machine: Machine, desc: TensorDesc) -> None:
    """Refuse a tensor beyond the machine's limits (zDNN API Reference 1.2.0, NNPA limits)."""
    for number, size in zip((4, 3, 2, 1), desc.dims, strict=True):
        most = machine.qaf.max_for_dim(number)
        if not 1 <= size <= most:
            raise NotMapped(f"dim{number} would be {size}, must be 1 to {most}")
    size, most = getsize_ztensor(desc), machine.qaf.max_tensor_size
    if size > most:
        raise NotMapped(f"the tensor would take {size} bytes, must be at most {most}")
