# SPDX-License-Identifier: Apache-2.0
"""Ztensors for the tests of operations: padding of inputs is NINF, outputs start as garbage.

So a kernel that reads padding poisons its result, and one that does not write it is found out.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from nnpa_emulator import MACHINES, Guest, Ztensor
from nnpa_emulator.kernels import elementwise
from nnpa_emulator.machine import page_memory
from nnpa_emulator.reference.elementwise import region_of
from nnpa_emulator.ztensor import DataFormats, DataLayouts, DataTypes, TensorDesc, getsize_ztensor

from tests.oracle.rounding import rounded

Codes = npt.NDArray[np.uint16]
Sticks = npt.NDArray[np.uint8]
Dims = tuple[int, int, int, int]

FEATURE, KERNEL = DataFormats.ZDNN_FORMAT_4DFEATURE, DataFormats.ZDNN_FORMAT_4DKERNEL
INT32 = DataTypes.ZDNN_BINARY_INT32
NINF = 0x7FFF
GARBAGE = 0x5A


def guest(machine: str = "telum2", **options: bool) -> Guest:
    """Return a program on a machine."""
    return Guest(MACHINES[machine], **options)  # type: ignore[arg-type]


def blank(dims: Dims, fmt: int = FEATURE, kind: int = DataTypes.ZDNN_DLFLOAT16) -> Ztensor:
    """Return a tensor full of garbage."""
    layout = DataLayouts.ZDNN_HWCK if fmt == KERNEL else DataLayouts.ZDNN_NHWC
    user = DataTypes.INT32 if kind == INT32 else DataTypes.FP32
    desc = TensorDesc(layout, fmt, kind, *dims)
    size = getsize_ztensor(desc)
    buffer = page_memory(size)
    assert buffer is not None
    buffer[:] = GARBAGE
    return Ztensor(TensorDesc(layout, 0, user, *dims), desc, size, buffer)


def tensor(codes: Codes, fmt: int = FEATURE) -> Ztensor:
    """Return a tensor with these codes (dim4, dim3, dim2, dim1) and NINF in its padding."""
    d4, d3, d2, d1 = codes.shape
    ztensor = blank((d4, d3, d2, d1), fmt)
    whole = np.full(_padded(ztensor), NINF, np.uint16)
    whole[:, :, :d2, :d1] = codes
    sticks = whole.reshape(d4, d3, whole.shape[2], -1, 64)
    order = (3, 0, 1, 2, 4) if fmt == KERNEL else (0, 3, 1, 2, 4)
    ztensor.sticks.view(np.uint16)[:] = sticks.transpose(order).reshape(-1)
    ztensor.is_transformed = True
    return ztensor


def values(array: npt.ArrayLike, fmt: int = FEATURE) -> Ztensor:
    """Return a tensor with the rounded values of a four-dimensional array."""
    return tensor(rounded(array), fmt)


def cells(ztensor: Ztensor) -> npt.NDArray[np.uint16]:
    """Return the cells of a 4DFEATURE tensor; all its padding must be zero."""
    dtype: np.dtype[Any] = np.dtype(
        np.int32 if ztensor.transformed_desc.type == INT32 else np.uint16
    )
    d4, d3, rows, width = _padded(ztensor)
    sticks = ztensor.sticks.view(dtype).reshape(d4, -1, d3, rows, 128 // dtype.itemsize)
    whole = sticks.transpose(0, 2, 3, 1, 4).reshape(d4, d3, rows, width).copy()
    d2, d1 = ztensor.transformed_desc.dim2, ztensor.transformed_desc.dim1
    result = whole[:, :, :d2, :d1].copy()
    whole[:, :, :d2, :d1] = 0
    assert not whole.any(), "padding is not zero"
    return result


def combine(operation: int, a: Sticks, b: Sticks, out: Sticks, desc: TensorDesc) -> bool:
    """Combine two tensors by an operation of `kernels.elementwise`; tell whether NINF is met."""
    left, right, target = a.view(np.uint16), b.view(np.uint16), out.view(np.uint16)
    largest = elementwise.binary(operation, left, right, target, region_of(desc), False)
    return bool(largest == NINF)


def _padded(ztensor: Ztensor) -> Dims:
    """Return the dims with whole pages of rows and whole sticks."""
    d4, d3, d2, d1 = ztensor.transformed_desc.dims
    stick = 32 if ztensor.transformed_desc.type == INT32 else 64
    return d4, d3, -(-d2 // 32) * 32, -(-d1 // stick) * stick
