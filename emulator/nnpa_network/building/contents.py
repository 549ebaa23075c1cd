# SPDX-License-Identifier: Apache-2.0
"""Contents of constants: their digests, and whether they are within DLFLOAT16's range.

Both are kept as long as the memory of an array lives, for the next shapes of the same model: nobody
writes into a constant. Of elements that a broadcast repeats, one is looked at.
"""

import math
import weakref
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby

import ml_dtypes
import numpy as np
from nnpa_emulator.dlfloat import MAX_VALUE

from nnpa_network.building.arrangement import Shape
from nnpa_network.program import Array

_known: dict[int, dict[tuple[object, ...], "_Contents"]] = {}  # by the owner of the memory


@dataclass(slots=True)
class _Contents:
    """What is known of an array."""

    digest: bytes = b""
    is_within: bool | None = None


def digest(array: Array) -> bytes:
    """Return a digest of the elements in their order, whatever their shape is."""
    contents = _contents(array)
    if not contents.digest:
        single = _single(array)
        elements = np.ascontiguousarray(single).reshape(-1).view(np.uint8).data
        code = blake2b(elements, digest_size=16)
        if single.shape != array.shape:
            code.update(repr(_runs(array.shape, single.shape)).encode())
        contents.digest = code.digest()
    return contents.digest


def _runs(shape: Shape, single: Shape) -> list[tuple[bool, int]]:
    """Return how many elements repeat, and how many differ, the slowest axes first."""
    axes = ((size != kept, size) for size, kept in zip(shape, single, strict=True) if size > 1)
    runs = groupby(axes, lambda axis: axis[0])
    return [(repeats, math.prod(size for _, size in run)) for repeats, run in runs]


def limited(array: Array) -> Array:
    """Return an array with every element, infinities too, within DLFLOAT16's range; NaN stays.

    The same array is returned if no element was beyond the range, as in most weights.
    """
    most = min(MAX_VALUE, float(ml_dtypes.finfo(array.dtype).max))  # type: ignore[no-untyped-call]
    low, high = array.dtype.type(-most), array.dtype.type(most)
    contents = _contents(array)
    if contents.is_within is None:
        single, zero = _single(array), array.dtype.type(0)
        contents.is_within = bool(
            np.fmin.reduce(single, axis=None, initial=zero) >= low
            and np.fmax.reduce(single, axis=None, initial=zero) <= high
        )
    if contents.is_within:
        return array
    return np.asarray(np.minimum(np.maximum(array, low), high))


def _contents(array: Array) -> _Contents:
    """Return the record of an array, which ends with the memory that the array is a view of."""
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    if id(owner) not in _known:
        _known[id(owner)] = {}
        weakref.finalize(owner, _known.pop, id(owner), None).atexit = False
    place = array.__array_interface__["data"][0], array.strides, array.shape, array.dtype
    return _known[id(owner)].setdefault(place, _Contents())


def _single(array: Array) -> Array:
    """Return a view of an array with one of the elements that a broadcast repeats.

    Elements that are all equal have the same digest with a broadcast and without.
    """
    axes = zip(array.shape, array.strides, strict=True)
    indices = [slice(0, 1 if size > 1 and not stride else None) for size, stride in axes]
    single = array[tuple(indices)]
    if single.size < 2:
        return single
    first, last = (single[(end,) * single.ndim].tobytes() for end in (0, -1))
    if first == last and single.tobytes() == first * single.size:
        return array[(slice(0, 1),) * array.ndim]
    return single
