# SPDX-License-Identifier: Apache-2.0
"""Conversions of arrays before and after a program's calls."""

from collections.abc import Mapping, Sequence

import ml_dtypes
import numpy as np

from nnpa_network.program import Array, DType, ModelRefused, fits


def check_feed(
    name: str, dtype: DType, shape: tuple[int, ...], feeds: Mapping[str, Array]
) -> Array:
    """Return a named input as a contiguous array; raise `ModelRefused`."""
    if name not in feeds:
        raise ModelRefused(f"input {name} is missing")
    array = np.asarray(feeds[name])
    if array.dtype == dtype and array.shape == shape and array.flags.c_contiguous:
        return array
    if array.dtype != dtype or not fits(array.shape, shape):
        got, expected = f"{array.dtype} {list(array.shape)}", f"{dtype} {list(shape)}"
        raise ModelRefused(f"input {name}: got {got}, expected {expected}")
    return np.ascontiguousarray(array).reshape(array.shape)


def count_nans(array: Array) -> int:
    """Count the NaN elements of a floating-point array; 0 for any other."""
    if array.dtype.kind not in "fV" and array.dtype != ml_dtypes.bfloat16:
        return 0
    return int(np.count_nonzero(np.isnan(array)))


def arrange(array: Array, shape: tuple[int, ...], order: Sequence[int]) -> Array:
    """Bring elements in the order of axes `order` (those that are not 1) into `shape`."""
    dense = np.asarray(array).reshape([shape[axis] for axis in order])
    return np.ascontiguousarray(dense.transpose(np.argsort(order).astype(int))).reshape(shape)


def raw(array: Array) -> Array:
    """Return an array as transforms take it: BFLOAT16 as its bits."""
    return array.view(np.uint16) if array.dtype == ml_dtypes.bfloat16 else array


def shaped(value: object, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Return the value of a call as an array of a type and shape."""
    array = np.asarray(value)
    if dtype == ml_dtypes.bfloat16 and array.dtype == np.uint16:
        array = array.view(ml_dtypes.bfloat16)
    return array.astype(dtype, copy=False).reshape(shape)
