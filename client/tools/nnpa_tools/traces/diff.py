# SPDX-License-Identifier: Apache-2.0
"""Compare two traces: differences of statuses, and of values with their distance.

The first session of a trace is compared with the first of the other, the second with the second,
each operation by operation. Housekeeping operations are left out. Values are compared where both
traces recorded them: equal digests mean equal values, and contents give the distance.

An operation that one side refuses is a difference. Operations that a refusal cuts off are counted,
not compared: they use its outputs, or come after it in a list that it ended.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from nnpa.zdnn.v1.operation_pb2 import OperationResult
from nnpa.zdnn.v1.tensor_pb2 import ZDNN_DLFLOAT16, Ztensor
from nnpa.zdnn.v1.trace_pb2 import CONTENTS_ROLE_ARRAY_OUT, CONTENTS_ROLE_STICKS_OUT, TracedContents
from nnpa_client.status import Status
from nnpa_client.trace.history import Trace, TracedOperation

from nnpa_tools.traces.values import (
    ValueDifference,
    array_elements,
    stick_elements,
    value_difference,
)

Kind = Literal["operation", "status", "answer", "flags", "values"]
# Statuses that depend on what tensors hold.
_BY_CONTENTS = frozenset(
    (Status.ZDNN_OK, Status.ZDNN_ELEMENT_RANGE_VIOLATION, Status.ZDNN_CONVERT_FAILURE)
)
_RETRIED = "CACHE_MISS"  # the client repeats such a call by itself


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference of two traces: the operation's index in the left trace, its name, the kind.

    `left` and `right` are the two sides as text; `values` is the distance of the output `operand`
    if both traces recorded its contents.
    """

    session: int
    index: int
    name: str
    kind: Kind
    left: str
    right: str
    operand: str = ""
    values: ValueDifference | None = None

    def __str__(self) -> str:
        place = f"operation {self.index}, zdnn_{self.name}"
        if self.kind != "values":
            return f"{place}: {self.kind} {self.left} and {self.right}"
        place = f"{place}, {self.operand}"
        if self.values is None:
            return f"{place}: bytes differ ({self.left}, {self.right})"
        values = self.values
        distance = "NINF on one side" if values.ulp is None else f"{values.ulp} ulp at most"
        return (
            f"{place}: {values.count} of {values.size} elements, {distance}, "
            f"first {list(values.at)}: {values.left:g} and {values.right:g}"
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison.

    `statuses` and `values` count compared statuses and outputs, `unknown` the outputs whose values
    a trace lacks, `by_contents` the differing statuses that depend on the contents of tensors,
    `cut_off` the operations that need an output of a refused one, or did not run because of it.
    """

    differences: tuple[Difference, ...]
    statuses: int
    values: int
    unknown: int
    by_contents: int
    cut_off: int = 0

    @property
    def is_equal(self) -> bool:
        """Whether nothing that could be compared differs."""
        return not self.differences

    def first(self, *kinds: Kind) -> Difference | None:
        """Return the first difference of these kinds."""
        return next((entry for entry in self.differences if entry.kind in kinds), None)


@dataclass(slots=True)
class _Tensors:
    """The tensors of a session that differ between the sides because one side refused a call.

    `different` has their ids; tensors that travel with their operations have id 0.
    """

    different: set[int] = field(default_factory=set[int])

    def is_cut_off(self, a: TracedOperation, b: TracedOperation) -> bool:
        """Return True if an earlier refusal decides the results of these operations."""
        if (a.result is None) != (b.result is None) and not (a if a.result is None else b).failure:
            return True
        if self.different.isdisjoint(operand.id for operand in a.operands):
            return False
        return a.is_valid != b.is_valid or not self.different.isdisjoint(_read_ids(a, b))

    def note(self, a: TracedOperation, b: TracedOperation, *, are_same: bool) -> None:
        """Note whether the outputs of these operations are the same on both sides."""
        ids = {operand.id for operand in (*a.operands, *b.operands) if operand.is_output} - {0}
        if are_same:
            self.different -= ids
        else:
            self.different |= ids


def _read_ids(*sides: TracedOperation) -> set[int]:
    """Return the ids of the inputs of an operation, on the sides that ran it."""
    return {
        operand.id
        for side in sides
        if side.result is not None
        for operand in side.operands
        if not operand.is_output
    }


def diff(left: Trace, right: Trace, ulp: int = 0, with_values: bool = True) -> Comparison:
    """Compare two traces; values up to `ulp` units in the last place of DLFLOAT16 apart are equal.

    Without `with_values`, for traces of different inputs, values and the statuses that depend on
    them are counted but not compared.
    """
    comparer = _Comparer(left, right, ulp if with_values else None)
    differences = tuple(comparer.differences())
    counts = comparer.counts
    return Comparison(
        differences,
        counts["statuses"],
        counts["values"],
        counts["unknown"],
        counts["by_contents"],
        counts["cut_off"],
    )


@dataclass(frozen=True, slots=True)
class _Comparer:
    """Compares two traces operation by operation, and counts the comparisons.

    `ulp` is the largest distance of equal values, None to compare no values.
    """

    left: Trace
    right: Trace
    ulp: int | None
    counts: Counter[str] = field(default_factory=Counter[str])

    def differences(self) -> Iterator[Difference]:
        """Yield the differences in order."""
        tensors = defaultdict[int, _Tensors](_Tensors)
        for a, b in pairs(self.left, self.right):
            if a is None or b is None or a.name != b.name:
                yield _sequence_difference(a, b)
                continue
            is_cut_off = tensors[a.session].is_cut_off(a, b)
            are_same = not is_cut_off and a.is_valid == b.is_valid
            tensors[a.session].note(a, b, are_same=are_same)
            if is_cut_off:
                self.counts["cut_off"] += 1
            else:
                yield from self._differences_of(a, b)

    def _differences_of(self, a: TracedOperation, b: TracedOperation) -> Iterator[Difference]:
        def difference(kind: Kind, left: str, right: str) -> Difference:
            return Difference(a.session, a.index, a.name, kind, left, right)

        if self.ulp is None and a.status != b.status and _both_by_contents(a, b):
            self.counts["by_contents"] += 1
        else:
            self.counts["statuses"] += 1
            if a.status != b.status:
                yield difference("status", a.status, b.status)
        if self.ulp is None:
            self.counts["unknown"] += len(_outputs(a))
            return
        answers = _answer(a.result), _answer(b.result)
        if answers[0] != answers[1] and a.status == b.status:
            yield difference("answer", *answers)
        flags = [result.fp_flags if result else 0 for result in (a.result, b.result)]
        if flags[0] != flags[1]:
            yield difference("flags", f"0x{flags[0]:02X}", f"0x{flags[1]:02X}")
        yield from self._unequal_outputs(a, b, self.ulp)

    def _unequal_outputs(
        self, a: TracedOperation, b: TracedOperation, ulp: int
    ) -> Iterator[Difference]:
        right_outputs = _outputs(b)
        for key, output in _outputs(a).items():
            if key not in right_outputs:
                self.counts["unknown"] += 1
                continue
            self.counts["values"] += 1
            right = right_outputs[key]
            if (output.size, output.digest) == (right.size, right.digest):
                continue
            is_known, distance = self._distance(a, output, b, right)
            if not is_known or (distance and (distance.ulp is None or distance.ulp > ulp)):
                sizes = f"{output.size} bytes", f"{right.size} bytes"
                yield Difference(a.session, a.index, a.name, "values", *sizes, key[1], distance)

    def _distance(
        self, a: TracedOperation, output: TracedContents, b: TracedOperation, right: TracedContents
    ) -> tuple[bool, ValueDifference | None]:
        """Return whether the distance of two outputs is known, and the distance, None if equal."""
        contents = self.left.bytes_of(output), self.right.bytes_of(right)
        if contents[0] is None or contents[1] is None or output.size != right.size:
            return False, None
        is_array = output.role == CONTENTS_ROLE_ARRAY_OUT
        elements = array_elements if is_array else stick_elements
        structure = structure_of(a, output, is_array)
        values = elements(contents[0], structure)
        right_values = elements(contents[1], structure_of(b, right, is_array))
        if (values.shape, values.dtype) != (right_values.shape, right_values.dtype):
            return False, None
        is_codes = not is_array and is_dlfloat(structure)
        return True, value_difference(values, right_values, is_codes)


def pairs(
    left: Trace, right: Trace
) -> Iterator[tuple[TracedOperation | None, TracedOperation | None]]:
    """Yield pairs of operations of each session, up to the first pair with different names."""
    sessions = itertools.zip_longest(_by_session(left), _by_session(right), fillvalue=())
    for left_operations, right_operations in sessions:
        for a, b in itertools.zip_longest(left_operations, right_operations):
            yield a, b
            if a is None or b is None or a.name != b.name:
                break


def _by_session(trace: Trace) -> list[tuple[TracedOperation, ...]]:
    sessions: dict[int, list[TracedOperation]] = {}
    for operation in trace.operations:
        if not operation.is_housekeeping and operation.failure != _RETRIED:
            sessions.setdefault(operation.session, []).append(operation)
    return [tuple(sessions[number]) for number in sorted(sessions)]


def _sequence_difference(left: TracedOperation | None, right: TracedOperation | None) -> Difference:
    operation = left or right
    assert operation is not None
    left_name, right_name = (
        f"zdnn_{side.name}" if side else "no operation" for side in (left, right)
    )
    index, name = operation.index, operation.name
    return Difference(operation.session, index, name, "operation", left_name, right_name)


def _both_by_contents(a: TracedOperation, b: TracedOperation) -> bool:
    results = (a.result, b.result)
    return all(result is not None and result.zdnn_status in _BY_CONTENTS for result in results)


def _answer(result: OperationResult | None) -> str:
    """Return a function's scalar answer as text, empty if it has none."""
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


def _outputs(operation: TracedOperation) -> dict[tuple[int, str], TracedContents]:
    outputs = operation.having(CONTENTS_ROLE_ARRAY_OUT, CONTENTS_ROLE_STICKS_OUT)
    return {(int(output.role), output.operand): output for output in outputs}


def structure_of(
    operation: TracedOperation, contents: TracedContents, is_array: bool
) -> Ztensor | None:
    """Return the structure of the ztensor that contents of an operation belong to."""
    name = "ztensor" if is_array else contents.operand
    return next((operand.structure for operand in operation.operands if operand.name == name), None)


def is_dlfloat(structure: Ztensor | None) -> bool:
    """Return whether a ztensor's sticks are DLFLOAT16."""
    return structure is not None and structure.transformed_desc.type == ZDNN_DLFLOAT16
