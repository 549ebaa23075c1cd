# SPDX-License-Identifier: Apache-2.0
"""Assertions for tests of what an accelerator computes, and of what it was asked for."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from nnpa_client._ulp import codes_of, distances
from nnpa_client.ztensor import Ztensor

if TYPE_CHECKING:
    from nnpa_client.trace import Trace, TracePath

Values = Ztensor | npt.ArrayLike


def assert_ulp(a: Values, b: Values, n: int) -> None:
    """Assert that `a` and `b` are at most `n` units in the last place of DLFLOAT16 apart.

    `a` and `b` are ztensors or arrays of one shape. Values that no DLFLOAT16 code has are rounded
    first, once, to nearest and ties away, as the machine does. Codes are counted as they follow
    each other on the number line: 0 means the same codes, but for the sign of zero. NINF, which
    stands for infinities and what is not a number, is near nothing but NINF. Raises AssertionError
    that names the first element, its values, bits and distance; ValueError where `n` is negative.
    """
    __tracebackhide__ = True
    if n < 0:
        raise ValueError(f"n: {n}, expected at least 0")
    ours, theirs = _values(a), _values(b)
    if ours.shape != theirs.shape:
        raise AssertionError(f"shapes differ: {ours.shape} and {theirs.shape}")
    mine, yours = codes_of(ours), codes_of(theirs)
    distance, strange = distances(mine, yours)
    far = strange | (distance > n)
    if not far.any():
        return
    at = tuple(int(index) for index in np.argwhere(far)[0])
    apart = "no number of" if strange[at] else str(distance[at])
    finite = distance[~strange]
    worst = int(finite.max()) if finite.size else 0
    raise AssertionError(
        f"element {list(at)}: {ours[at]!s} (0x{mine[at]:04X}) and {theirs[at]!s} "
        f"(0x{yours[at]:04X}) are {apart} ulp apart, at most {n} expected; "
        f"{int(far.sum())} of {far.size} elements are, by {worst} ulp at most"
        f"{f', {int(strange.sum())} with NINF on one side' if strange.any() else ''}"
    )


def _values(values: Values) -> npt.NDArray[np.float64]:
    """Return values as float64, which holds those of all of zDNN's types exactly."""
    array: npt.NDArray[Any] = values.numpy() if isinstance(values, Ztensor) else np.asarray(values)
    return array.astype(np.float64)


def assert_called(trace: "Trace | TracePath", operations: Sequence[str]) -> None:
    """Assert that a program called these operations, in this order, and that none fell back.

    `trace` is a trace or its file. `operations` are names of zDNN's functions, with or without
    "zdnn_": those that compute must be all that the trace has, functions of other kinds are looked
    at where `operations` names them. None fell back if each answered ZDNN_OK or a warning: whatever
    a program does instead of a refused call, the accelerator did not do it. Raises AssertionError
    that names the first operation that is another, is missing, is too many, or was refused;
    ValueError for a name that is no function's.
    """
    __tracebackhide__ = True
    from nnpa_client.trace import COMPUTING, FUNCTIONS, Trace, read

    wanted = [operation.removeprefix("zdnn_") for operation in operations]
    unknown = sorted(set(wanted) - FUNCTIONS)
    if unknown:
        raise ValueError(f"operations: {unknown[0]!r}, expected names of zDNN's functions")
    found = trace if isinstance(trace, Trace) else read(trace)
    if found.ending:
        raise AssertionError(f"the trace is not complete: {found.ending}")
    kinds = COMPUTING | set(wanted)
    made = [one for one in found.operations if one.name in kinds and not one.is_housekeeping]
    for place, (name, one) in enumerate(zip_longest(wanted, made)):
        told = "nothing" if one is None else f"zdnn_{one.name} (operation {one.index} of the trace)"
        if one is None or name != one.name:
            expected = "nothing more" if name is None else f"zdnn_{name}"
            raise AssertionError(f"call {place}: {told}, expected {expected}")
        if not one.is_valid:
            raise AssertionError(f"call {place}: {told} fell back, it answered {one.status}")
