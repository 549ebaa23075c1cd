# SPDX-License-Identifier: Apache-2.0
"""Conversions and arithmetic bound to the sticks of their tensors, to be made again and again.

What `stick` looks up by a descriptor at each call is looked up here once; the bits are the same.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nnpa_emulator import dlfloat
from nnpa_emulator.kernels import convert, elementwise, planar, sticks
from nnpa_emulator.stick import INFINITY, OVERFLOW, Buffer, flat, geometry, region
from nnpa_emulator.ztensor import TensorDesc

Floats: TypeAlias = npt.NDArray[np.float32]
_WORDS = np.dtype(np.uint32)
_FLOATS = np.dtype(np.float32)


def stickify_fp32(
    desc: TensorDesc, buffer: Buffer, *, saturate: bool, nchw: bool
) -> Callable[[npt.NDArray[Any]], bool]:
    """Return what writes FP32 data into a DLFLOAT16 tensor and tells whether all of it is numeric.

    The buffer is zero but for the tensor's own elements. See `stick.stickify`.
    """
    shape, cells = geometry(desc), buffer.view(np.uint16)
    dims, pages = shape.dims, shape.pages
    limit, end = (convert.MAX32, INFINITY) if saturate else (convert.LINE_HIGH32, OVERFLOW)

    def write(array: npt.NDArray[Any]) -> bool:
        fill = planar.stickify_nchw if nchw else sticks.stickify_fp32
        largest, _ = fill(flat(array, dims).view(_WORDS), cells, dims, pages, limit, True)
        return bool(largest < end)

    return write


def unstickify_fp32(desc: TensorDesc, buffer: Buffer, *, nchw: bool) -> Callable[[], Floats | None]:
    """Return what reads a DLFLOAT16 tensor as a new line of FP32; None where NINF is among it.

    See `stick.unstickify`.
    """
    shape, cells = geometry(desc), buffer.view(np.uint16)
    dims, pages = shape.dims, shape.pages
    count = dims[0] * dims[1] * dims[2] * dims[3]

    def line() -> Floats | None:
        words = np.empty(count, _WORDS)
        read = planar.unstickify_nchw if nchw else sticks.unstickify_fp32
        largest = read(cells, words, dims, pages)
        return None if largest == dlfloat.NINF else words.view(_FLOATS)

    return line


def binary(
    operation: int, a: Buffer, b: Buffer, out: Buffer, desc: TensorDesc
) -> Callable[[], bool]:
    """Return what combines two DLFLOAT16 tensors and tells whether the result has any NINF.

    The buffer of the result is zero but for its own elements. See `stick.binary`.
    """
    left, right, target = a.view(np.uint16), b.view(np.uint16), out.view(np.uint16)
    cells = region(desc)

    def combine() -> bool:
        return bool(elementwise.binary(operation, left, right, target, cells, True) == dlfloat.NINF)

    return combine
