# SPDX-License-Identifier: Apache-2.0
"""Blocks of memory that calls use one after the other, so that their pages are there already.

Every thread has its own, one for each role. A call may use a role for one block at a time, and
nothing of it may outlive the call. Each role keeps at most `MAX_BYTES` bytes per thread; what is
larger than most, and as large in every call, is borrowed.
"""

import math
import threading
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

Element = TypeVar("Element", bound=np.generic)

MAX_BYTES = 1 << 23
"""Bytes: larger blocks are allocated anew; what is done with them takes longer than their pages."""
MAX_ARRAYS = 1024
"""Arrays that are remembered per thread; what they are made of is there anyway."""
LINE = 64
"""Bytes of a cache line."""


class _Kept(dict[Any, npt.NDArray[Any]]):
    """Arrays that a thread keeps; they are looked at from other threads."""


class _Blocks(threading.local):
    """The blocks of one thread by role, and arrays that were made of them, by what was asked."""

    def __init__(self) -> None:
        self.by_role: dict[str, npt.NDArray[np.uint8]] = _Kept()
        self.arrays: dict[object, npt.NDArray[Any]] = _Kept()
        for kept in (self.by_role, self.arrays):
            _kept[id(kept)] = kept


_kept: WeakValueDictionary[int, dict[Any, npt.NDArray[Any]]] = WeakValueDictionary()
"""What all threads keep."""
_blocks = _Blocks()
_free: list[npt.NDArray[np.float32]] = []
"""Blocks that `borrow` lends and nobody has."""


def aligned(shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Return an array of arbitrary contents on a cache line, which BLAS reads a little faster."""
    return _line(math.prod(shape) * 4).view(np.float32).reshape(shape)


def _line(size: int) -> npt.NDArray[np.uint8]:
    """Return bytes that begin on a cache line."""
    raw = np.empty(size + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + size]


def scratch(
    role: str, shape: tuple[int, ...], dtype: type[Element] | np.dtype[Element]
) -> npt.NDArray[Element]:
    """Return an array of arbitrary contents, on a cache line, until the role is asked for again."""
    array = _blocks.arrays.get((role, shape, dtype))
    return _array(role, shape, dtype) if array is None else array


def _array(
    role: str, shape: tuple[int, ...], dtype: type[Element] | np.dtype[Element]
) -> npt.NDArray[Element]:
    """Make an array of a role's block, which may have to be a larger one."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    if size > MAX_BYTES:
        return np.empty(shape, kind)
    block = _blocks.by_role.get(role)
    if block is None or block.size < size:
        block = _blocks.by_role[role] = _line(size)
        _blocks.arrays.clear()
    if len(_blocks.arrays) == MAX_ARRAYS:
        _blocks.arrays.clear()
    array = _blocks.arrays[role, shape, dtype] = block[:size].view(kind).reshape(shape)
    return array


def borrow(count: int) -> npt.NDArray[np.float32]:
    """Lend FP32 elements of arbitrary contents on a cache line, until `give_back`.

    `count` is the same in all calls. The last returned block is lent first, so that the number of
    blocks follows the calls at once, not the threads.
    """
    try:
        return _free.pop()
    except IndexError:  # all are lent
        return aligned((count,))


def release() -> None:
    """Drop the blocks kept between calls, of all threads; running calls keep theirs."""
    _free.clear()
    for kept in [reference() for reference in _kept.valuerefs()]:
        if kept is not None:
            kept.clear()


def give_back(block: npt.NDArray[np.float32]) -> None:
    """Take back a lent block."""
    _free.append(block)
