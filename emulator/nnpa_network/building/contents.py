# SPDX-License-Identifier: Apache-2.0
"""Contents of constants: their digests, and whether they are within DLFLOAT16's range.

Both are kept as long as the memory of an array lives, for the next shapes of the same model: nobody
writes into a constant. Of elements that a broadcast repeats, one is looked at.
"""

import weakref
from collections.abc import Callable
from hashlib import blake2b
from typing import TypeVar, cast

import ml_dtypes
import numpy as np
from nnpa_emulator.dlfloat import MAX_VALUE

from nnpa_network.program import Array

Fact = TypeVar("Fact")
_known: dict[int, dict[tuple[object, ...], object]] = {}  # by the owner of the memory


def digest(array: Array) -> bytes:
    """Return a digest of the elements in their order."""
    return _once(_digest, array)


def limited(array: Array) -> Array:
    """Return an array with every element, infinities too, within DLFLOAT16's range; NaN stays.

    The same array is returned if no element was beyond the range, as in most weights.
    """
    if _once(_is_within, array):
        return array
    low, high = _range(array)
    return np.asarray(np.minimum(np.maximum(array, low), high))


def _once(compute: Callable[[Array], Fact], array: Array) -> Fact:
    """Return what is computed of an array, once while the memory lives that it is a view of."""
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    if id(owner) not in _known:
        _known[id(owner)] = {}
        weakref.finalize(owner, _known.pop, id(owner), None).atexit = False
    address, _ = array.__array_interface__["data"]
    key = compute, address, array.strides, array.shape, array.dtype
    facts = _known[id(owner)]
    if key not in facts:
        facts[key] = compute(array)
    return cast(Fact, facts[key])


def _digest(array: Array) -> bytes:
    single = _single(array)
    code = blake2b(np.ascontiguousarray(single).reshape(-1).view(np.uint8).data, digest_size=16)
    if single.shape != array.shape:
        axes = zip(array.shape, single.shape, strict=True)
        code.update(repr([(size, kept) for size, kept in axes if size > 1]).encode())
    return code.digest()


def _is_within(array: Array) -> bool:
    (low, high), single, zero = _range(array), _single(array), array.dtype.type(0)
    least = np.fmin.reduce(single, axis=None, initial=zero)
    return bool(least >= low and np.fmax.reduce(single, axis=None, initial=zero) <= high)


def _range(array: Array) -> tuple[np.generic, np.generic]:
    most = min(MAX_VALUE, float(ml_dtypes.finfo(array.dtype).max))  # type: ignore[no-untyped-call]
    return array.dtype.type(-most), array.dtype.type(most)


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
