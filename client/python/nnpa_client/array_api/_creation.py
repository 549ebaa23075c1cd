# SPDX-License-Identifier: Apache-2.0
"""New ztensors of the namespace."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from nnpa_client._values.arrays import ArrayLike, SupportsDlpack, as_array
from nnpa_client.array_api._conformance import Difference, entered
from nnpa_client.array_api._operands import (
    LAYOUTS,
    float32,
    operand,
    require_float32,
    require_rank,
    reshaped,
)
from nnpa_client.dlfloat16 import Finfo
from nnpa_client.dlfloat16 import finfo as _facts
from nnpa_client.session import current_session
from nnpa_client.ztensor import Ztensor, _lifecycle

__tracebackhide__ = True  # pytest shows the line that called, not these

Values: TypeAlias = "Ztensor | ArrayLike"

_ROUNDED = (Difference.PRECISION, Difference.RANGE, Difference.INFINITIES)


@entered("transform_ztensor", *_ROUNDED, Difference.DIMS, Difference.COPIES)
def asarray(obj: Values, /, *, dtype: object = None, copy: bool | None = None) -> Ztensor:
    """Return a ztensor of an array or a list, in the innermost `with session:`; a ztensor itself.

    Numbers in lists are float32; `dtype` float32 converts an array. Three dims are a stack of
    matrices, ZDNN_3DS. Raises TypeError for other types, NotImplementedError for a number of dims
    other than 1 to 4, ValueError for copy=False, ZdnnError ZDNN_CONVERT_FAILURE for NaN and
    infinities, ZDNN_INVALID_SHAPE for a size of 0.
    """
    require_float32("asarray", dtype)
    if isinstance(obj, Ztensor):
        x = operand("asarray", obj)
        return reshaped(x, x.shape) if copy else x
    if copy is False:
        raise ValueError("asarray: copy False, but the data go to the server")
    values = as_array(obj, "asarray: obj")
    if dtype is None and values.dtype != float32:
        raise TypeError(f"asarray: obj: dtype {values.dtype}, expected float32")
    require_rank("asarray", values.shape)
    session = current_session()
    return session.ztensor(values.astype(np.float32, copy=False), LAYOUTS[values.ndim])


@entered("transform_ztensor", *_ROUNDED, Difference.DIMS, Difference.COPIES)
def from_dlpack(x: SupportsDlpack, /, *, copy: bool | None = None) -> Ztensor:
    """Return a ztensor of an object that supports DLPack. Raises as `asarray`."""
    if isinstance(x, Ztensor):
        return asarray(x, copy=copy)
    memory: Any = x
    return asarray(np.from_dlpack(memory), copy=copy)


@entered("transform_ztensor", *_ROUNDED, Difference.DIMS)
def full(shape: int | Sequence[int], fill_value: float, *, dtype: object = None) -> Ztensor:
    """Return a ztensor of one value, rounded to DLFLOAT16. Raises as `asarray`."""
    return _filled("full", shape, fill_value, dtype)


@entered("transform_ztensor", Difference.DIMS)
def zeros(shape: int | Sequence[int], *, dtype: object = None) -> Ztensor:
    """Return a ztensor of zeros. Raises as `asarray`."""
    return _filled("zeros", shape, 0.0, dtype)


@entered("transform_ztensor", Difference.DIMS)
def ones(shape: int | Sequence[int], *, dtype: object = None) -> Ztensor:
    """Return a ztensor of ones. Raises as `asarray`."""
    return _filled("ones", shape, 1.0, dtype)


@entered("transform_ztensor", *_ROUNDED)
def full_like(x: Ztensor, /, fill_value: float, *, dtype: object = None) -> Ztensor:
    """Return a ztensor of one value, of the shape of `x`, in its session. Raises as `asarray`."""
    return _filled_like("full_like", x, fill_value, dtype)


@entered("transform_ztensor")
def zeros_like(x: Ztensor, /, *, dtype: object = None) -> Ztensor:
    """Return a ztensor of zeros, of the shape of `x`, in its session."""
    return _filled_like("zeros_like", x, 0.0, dtype)


@entered("transform_ztensor")
def ones_like(x: Ztensor, /, *, dtype: object = None) -> Ztensor:
    """Return a ztensor of ones, of the shape of `x`, in its session."""
    return _filled_like("ones_like", x, 1.0, dtype)


@entered("-", Difference.PRECISION, Difference.RANGE)
def finfo(type: object, /) -> Finfo:  # noqa: A002 - the standard's name
    """Return the facts about the values of ztensors: `nnpa_client.dlfloat16.finfo`."""
    require_float32("finfo", type.dtype if isinstance(type, Ztensor) else type)
    return _facts


def _filled(function: str, shape: int | Sequence[int], value: float, dtype: object) -> Ztensor:
    require_float32(function, dtype)
    values = np.full(shape, value, np.float32)
    require_rank(function, values.shape)
    return asarray(values)


def _filled_like(function: str, x: Ztensor, value: float, dtype: object) -> Ztensor:
    require_float32(function, dtype)
    shape = operand(function, x).shape
    values = np.full(shape, value, np.float32)
    return _lifecycle.from_array(x.guest, values, LAYOUTS[len(shape)])
