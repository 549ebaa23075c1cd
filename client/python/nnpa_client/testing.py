# SPDX-License-Identifier: Apache-2.0
"""Assertions for tests: on the values that an accelerator computes, and on its operations."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nnpa_client._values.ulp import codes_of, distances
from nnpa_client.ztensor import Ztensor

if TYPE_CHECKING:
    from nnpa_client.trace import Trace, TracedOperation, TracePath

__all__ = ["assert_called", "assert_ulp"]

Values = Ztensor | npt.ArrayLike


def assert_ulp(a: Values, b: Values, n: int) -> None:
    """Assert that `a` and `b` are at most `n` units in the last place of DLFLOAT16 apart.

    `a` and `b` are ztensors or arrays of one shape. Values that no DLFLOAT16 code has are rounded
    first, once, to nearest and ties away, as the machine does. Distances count codes along the
    number line: 0 means the same codes, except for the sign of zero. NINF, which represents
    infinities and NaN, is equal to NINF only. Raises AssertionError that names the first element,
    its values, bits and distance; ValueError for a negative `n`.
    """
    __tracebackhide__ = True
    if n < 0:
        raise ValueError(f"n: {n}, expected at least 0")
    a_values, b_values = _values(a), _values(b)
    if a_values.shape != b_values.shape:
        raise AssertionError(f"shapes differ: {a_values.shape} and {b_values.shape}")
    a_codes, b_codes = codes_of(a_values), codes_of(b_values)
    distance, has_one_ninf = distances(a_codes, b_codes)
    far = has_one_ninf | (distance > n)
    if not far.any():
        return
    at = tuple(int(index) for index in np.argwhere(far)[0])
    ulps = "no number of" if has_one_ninf[at] else str(distance[at])
    finite = distance[~has_one_ninf]
    worst = int(finite.max()) if finite.size else 0
    raise AssertionError(
        f"element {list(at)}: {a_values[at]!s} (0x{a_codes[at]:04X}) and {b_values[at]!s} "
        f"(0x{b_codes[at]:04X}) are {ulps} ulp apart, at most {n} expected; "
        f"{int(far.sum())} of {far.size} elements are, by {worst} ulp at most"
        f"{f', {int(has_one_ninf.sum())} with NINF on one side' if has_one_ninf.any() else ''}"
    )


def _values(values: Values) -> npt.NDArray[np.float64]:
    """Return values as float64, which represents all of zDNN's types exactly."""
    array: npt.NDArray[np.generic] = (
        values.numpy() if isinstance(values, Ztensor) else np.asarray(values)
    )
    return array.astype(np.float64)


def assert_called(trace: "Trace | TracePath", operations: Sequence[str]) -> None:
    """Assert that a program called these operations, in this order, and that none fell back.

    `trace` is a trace or its file. `operations` are the names, with or without "zdnn_", of all
    functions of the trace that compute, in order; functions that do not compute are compared only
    if `operations` names them. An operation fell back if it answered neither ZDNN_OK nor a
    warning: the accelerator did not compute its result. Raises AssertionError that names the first
    operation that differs, is missing, is superfluous, or was refused, and shows both lists,
    counted from 1; ValueError for a name of no function.
    """
    __tracebackhide__ = True
    from nnpa_client.trace import COMPUTING, FUNCTIONS, Trace, read

    expected = [operation.removeprefix("zdnn_") for operation in operations]
    unknown = sorted(set(expected) - FUNCTIONS)
    if unknown:
        raise ValueError(f"operations: {unknown[0]!r}, expected names of zDNN's functions")
    recorded = trace if isinstance(trace, Trace) else read(trace)
    if recorded.ending:
        raise AssertionError(f"the trace is not complete: {recorded.ending}")
    names = COMPUTING | set(expected)
    calls = [
        call for call in recorded.operations if call.name in names and not call.is_housekeeping
    ]
    lists = f"\nexpected: {_counted(expected)}\ncalled:   {_counted([c.name for c in calls])}"
    for place, (name, call) in enumerate(zip_longest(expected, calls), 1):
        if call is None or name != call.name:
            right = "nothing more" if name is None else f"zdnn_{name}"
            raise AssertionError(f"call {place}: {_describe(call)}, expected {right}{lists}")
        if not call.is_valid:
            raise AssertionError(
                f"call {place}: {_describe(call)} fell back, it answered {call.status}{lists}"
            )


def _counted(names: Sequence[str]) -> str:
    """Return names with their places, from 1 on."""
    return ", ".join(f"{place} {name}" for place, name in enumerate(names, 1)) or "nothing"


def _describe(call: "TracedOperation | None") -> str:
    return "nothing" if call is None else f"zdnn_{call.name} (operation {call.index} of the trace)"
