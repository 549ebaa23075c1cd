# SPDX-License-Identifier: Apache-2.0
"""Two traces side by side: where statuses part, where values do, and by how much.

Operations are compared in the order in which each session made them, first session with first;
what a client did for itself is left out. Values can be compared wherever both traces have them:
equal digests are equal values, and contents tell by how much others differ.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from nnpa.zdnn.v1.operation_pb2 import OperationResult
from nnpa.zdnn.v1.tensor_pb2 import ZDNN_DLFLOAT16, Ztensor
from nnpa.zdnn.v1.trace_pb2 import (
    CONTENTS_ROLE_ARRAY_OUT,
    CONTENTS_ROLE_STICKS_OUT,
    TracedContents,
)

from nnpa_client.status import Status
from nnpa_client.trace.history import Trace, TracedOperation
from nnpa_client.trace.values import (
    ValueDifference,
    array_elements,
    difference,
    stick_elements,
)

Kind = Literal["operation", "status", "answer", "flags", "values"]
# Statuses that depend on what tensors hold.
_BY_CONTENTS = frozenset(
    (Status.ZDNN_OK, Status.ZDNN_ELEMENT_RANGE_VIOLATION, Status.ZDNN_CONVERT_FAILURE)
)
_RETRIED = "CACHE_MISS"  # a client's own affair: it makes the call again


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two traces part: the operation's index in the left one, its name, what differs.

    `left` and `right` are what each has; `values` how far an output, `operand`, is apart where the
    contents are known.
    """

    session: int
    index: int
    name: str
    kind: Kind
    left: str
    right: str
    operand: str = ""
    values: ValueDifference | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a comparison found.

    `statuses` and `values` count what was compared, `unknown` outputs whose values one of the
    traces does not have, `by_contents` statuses that depend on what tensors hold and differ.
    """

    differences: tuple[Difference, ...]
    statuses: int
    values: int
    unknown: int
    by_contents: int

    @property
    def is_equal(self) -> bool:
        """Whether nothing that could be compared differs."""
        return not self.differences

    def first(self, *kinds: Kind) -> Difference | None:
        """Return the first difference of these kinds."""
        return next((one for one in self.differences if one.kind in kinds), None)


@dataclass(slots=True)
class _Counts:
    statuses: int = 0
    values: int = 0
    unknown: int = 0
    by_contents: int = 0


def diff(left: Trace, right: Trace, ulp: int = 0, with_values: bool = True) -> Comparison:
    """Compare two traces; values up to `ulp` units in the last place of DLFLOAT16 apart are equal.

    Without `with_values` inputs were not the same: values, and statuses that depend on them, are
    counted and not compared.
    """
    counts, found = _Counts(), list[Difference]()
    ours, theirs = _by_session(left), _by_session(right)
    for mine, yours in itertools.zip_longest(ours, theirs, fillvalue=()):
        for a, b in itertools.zip_longest(mine, yours):
            if a is None or b is None or a.name != b.name:
                found.append(_parting(a, b))
                break
            found += _compare(left, right, a, b, counts, ulp if with_values else None)
    return Comparison(
        tuple(found), counts.statuses, counts.values, counts.unknown, counts.by_contents
    )


def _by_session(trace: Trace) -> list[tuple[TracedOperation, ...]]:
    made: dict[int, list[TracedOperation]] = {}
    for operation in trace.operations:
        if not operation.is_housekeeping and operation.failure != _RETRIED:
            made.setdefault(operation.session, []).append(operation)
    return [tuple(made[number]) for number in sorted(made)]


def _parting(left: TracedOperation | None, right: TracedOperation | None) -> Difference:
    there = left or right
    assert there is not None
    mine, yours = (f"zdnn_{one.name}" if one else "no operation" for one in (left, right))
    return Difference(there.session, there.index, there.name, "operation", mine, yours)


def _compare(
    left: Trace,
    right: Trace,
    a: TracedOperation,
    b: TracedOperation,
    counts: _Counts,
    ulp: int | None,
) -> Iterator[Difference]:
    def told(kind: Kind, mine: str, yours: str, operand: str = "") -> Difference:
        return Difference(a.session, a.index, a.name, kind, mine, yours, operand)

    if ulp is None and a.status != b.status and _both_by_contents(a, b):
        counts.by_contents += 1
    else:
        counts.statuses += 1
        if a.status != b.status:
            yield told("status", a.status, b.status)
    if ulp is None:
        counts.unknown += len(_outputs(a))
        return
    if (mine := _answer(a.result)) != (yours := _answer(b.result)) and a.status == b.status:
        yield told("answer", mine, yours)
    flags = [one.fp_flags if one else 0 for one in (a.result, b.result)]
    if flags[0] != flags[1]:
        yield told("flags", f"0x{flags[0]:02X}", f"0x{flags[1]:02X}")
    yield from _compare_outputs(left, right, a, b, counts, ulp)


def _compare_outputs(
    left: Trace,
    right: Trace,
    a: TracedOperation,
    b: TracedOperation,
    counts: _Counts,
    ulp: int,
) -> Iterator[Difference]:
    others = _outputs(b)
    for key, output in _outputs(a).items():
        found = _values(left, right, (a, output), (b, others.get(key)), counts, ulp)
        if found is not None:
            sizes = f"{output.size} bytes", f"{others[key].size} bytes"
            yield Difference(a.session, a.index, a.name, "values", *sizes, key[1], found[0])


def _both_by_contents(a: TracedOperation, b: TracedOperation) -> bool:
    results = (a.result, b.result)
    return all(result is not None and result.zdnn_status in _BY_CONTENTS for result in results)


def _answer(result: OperationResult | None) -> str:
    """Return what a function returned that is no tensor, as text."""
    if result is None:
        return ""
    match result.WhichOneof("value"):
        case "boolean":
            return str(result.boolean).lower()
        case "number":
            return str(result.number)
        case "range":
            return f"{result.range.min!r} to {result.range.max!r}"
        case _:
            return ""


def _outputs(one: TracedOperation) -> dict[tuple[int, str], TracedContents]:
    kept = one.having(CONTENTS_ROLE_ARRAY_OUT, CONTENTS_ROLE_STICKS_OUT)
    return {(int(output.role), output.operand): output for output in kept}


def _values(
    left: Trace,
    right: Trace,
    mine: tuple[TracedOperation, TracedContents],
    yours: tuple[TracedOperation, TracedContents | None],
    counts: _Counts,
    ulp: int,
) -> tuple[ValueDifference | None] | None:
    """Return how an output differs: None if it does not, a tuple of None if nobody knows how."""
    (a, ours), (b, theirs) = mine, yours
    if theirs is None:
        counts.unknown += 1
        return None
    counts.values += 1
    if (ours.size, ours.digest) == (theirs.size, theirs.digest):
        return None
    first, second = left.bytes_of(ours), right.bytes_of(theirs)
    is_array = ours.role == CONTENTS_ROLE_ARRAY_OUT
    elements = array_elements if is_array else stick_elements
    structure = _structure(a, ours, is_array)
    if first is None or second is None or ours.size != theirs.size:
        return (None,)
    one = elements(first, structure)
    other = elements(second, _structure(b, theirs, is_array))
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return (None,)
    found = difference(one, other, not is_array and _is_dlfloat(structure))
    if found is None or (found.ulp is not None and found.ulp <= ulp):
        return None
    return (found,)


def _structure(one: TracedOperation, contents: TracedContents, is_array: bool) -> Ztensor | None:
    name = "ztensor" if is_array else contents.operand
    return next((operand.structure for operand in one.operands if operand.name == name), None)


def _is_dlfloat(structure: Ztensor | None) -> bool:
    return structure is not None and structure.transformed_desc.type == ZDNN_DLFLOAT16
