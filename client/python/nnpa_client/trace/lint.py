# SPDX-License-Identifier: Apache-2.0
"""What a trace shows to be wasted, and budgets that need no clock.

untransform-transform  an array came back and went in again as it was
equal-bytes            the same array was transformed again into a tensor of the same kind
padding                most of the sticks are padding
zero-bias              an operation adds a bias that is all zeros
missing-pipeline       many calls of one operation, where one list would do
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from nnpa.zdnn.v1.tensor_pb2 import TensorDesc, Ztensor
from nnpa.zdnn.v1.trace_pb2 import (
    CONTENTS_ROLE_ARRAY_IN,
    CONTENTS_ROLE_ARRAY_OUT,
    CONTENTS_ROLE_STICKS_HELD,
    CONTENTS_ROLE_STICKS_IN,
    TracedContents,
)

from nnpa_client._wire import DTYPES, dims
from nnpa_client.trace.history import COMPUTING, Call, Trace, TracedOperation
from nnpa_client.trace.values import is_zeros, stick_bytes_per_element

_TRANSFORMS = frozenset(
    ("transform_ztensor", "transform_ztensor_with_saturation", "transform_quantized_ztensor")
)
_MAKING = frozenset(("allochelper_ztensor", "reset_ztensor", "reshape_ztensor"))
# Biases by function: what is added and may as well be left out, or come with the operation.
_BIASES = {
    "matmul_op": ("input_c",),
    "matmul_bcast_op": ("input_c",),
    "matmul_transpose_op": ("input_c",),
    "quantized_matmul_op": ("input_c",),
    "conv2d": ("bias",),
    "lstm": ("biases", "hidden_biases"),
    "gru": ("biases", "hidden_biases"),
}
_ONE_IS_ZERO = {"lstm": 2, "gru": 2}  # both biases are needed, and one of them may well be zero
_MAX_PADDING = 0.75  # share of the stickified bytes above which it is worth a word
_MIN_PADDED = 64 << 10  # stickified bytes below which it is not
_LONG_RUN = 8  # calls of one operation each, that follow each other


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wasted: the rule, the operations by index, a sentence about it."""

    rule: str
    operations: tuple[int, ...]
    text: str


class Found(NamedTuple):
    """What a rule finds: operations by index, a sentence."""

    operations: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Totals:
    """What a trace adds up to, and budgets limit.

    Calls, operations of the program, bytes of the sticks that transforms made, bytes of user arrays
    that went in and came back; `padding` is the share of the stickified bytes.
    """

    calls: int
    operations: int
    stickified_bytes: int
    array_bytes_in: int
    array_bytes_out: int
    padding: float


@dataclass(frozen=True, slots=True)
class Report:
    """What `lint` says of a trace. `exceeded` are budgets, each as a sentence."""

    findings: tuple[Finding, ...]
    totals: Totals
    exceeded: tuple[str, ...]

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found and no budget exceeded."""
        return not (self.findings or self.exceeded)


@dataclass(frozen=True, slots=True)
class Budget:
    """The most of each total that is allowed; None for as much as the program likes."""

    calls: int | None = None
    operations: int | None = None
    stickified_bytes: int | None = None


def lint(trace: Trace, budget: Budget | None = None, ignore: Collection[str] = ()) -> Report:
    """Look for waste in a trace, by all rules but ignored ones; compare totals with a budget."""
    findings = tuple(
        Finding(name, operations, text)
        for name, rule in _RULES.items()
        if name not in ignore
        for operations, text in rule(trace)
    )
    totals = totals_of(trace)
    return Report(findings, totals, tuple(_exceeded(totals, budget or Budget())))


def _exceeded(totals: Totals, budget: Budget) -> Iterator[str]:
    for name, limit in (
        ("calls", budget.calls),
        ("operations", budget.operations),
        ("stickified_bytes", budget.stickified_bytes),
    ):
        value: int = getattr(totals, name)
        if limit is not None and value > limit:
            yield f"{name.replace('_', ' ')}: {value}, at most {limit}"


def totals_of(trace: Trace) -> Totals:
    """Count what a trace has."""
    made = [operation for operation in trace.operations if not operation.is_housekeeping]
    sticks = [size for one in made for size in _stickified(one)]
    whole, padding = sum(whole for whole, _ in sticks), sum(padding for _, padding in sticks)
    return Totals(
        calls=len(trace.calls),
        operations=len(made),
        stickified_bytes=whole,
        array_bytes_in=_bytes(made, CONTENTS_ROLE_ARRAY_IN),
        array_bytes_out=_bytes(made, CONTENTS_ROLE_ARRAY_OUT),
        padding=padding / whole if whole else 0.0,
    )


def _bytes(made: list[TracedOperation], role: int) -> int:
    return sum(each.size for one in made for each in one.contents if each.role == role)


def _stickified(one: TracedOperation) -> Iterator[tuple[int, int]]:
    """Yield the bytes of the sticks that a transform made, and how many of them are padding."""
    if one.name not in _TRANSFORMS or not one.is_valid or not one.operands:
        return
    structure = one.operands[0].structure
    if structure is None:
        return
    whole, used = structure.buffer_size, _used(one, structure)
    yield whole, max(0, whole - used)


def _used(one: TracedOperation, structure: Ztensor) -> int:
    """Return the bytes of sticks that hold elements of the user's arrays."""
    array = sum(each.size for each in one.having(CONTENTS_ROLE_ARRAY_IN))
    dtype = DTYPES.get(structure.pre_transformed_desc.type)
    elements = array // dtype.itemsize if dtype is not None else 0
    return elements * stick_bytes_per_element(structure.transformed_desc)


def _round_trips(trace: Trace) -> Iterator[Found]:
    """Find arrays that transform_origtensor gave and a transform took, unchanged."""
    given: dict[tuple[int, bytes], TracedOperation] = {}
    for operation in trace.operations:
        for out in operation.having(CONTENTS_ROLE_ARRAY_OUT):
            given[operation.session, out.digest] = operation
        if operation.name not in _TRANSFORMS:
            continue
        for array in operation.having(CONTENTS_ROLE_ARRAY_IN):
            source = given.get((operation.session, array.digest))
            if source is not None and not is_zeros(array):
                yield Found(
                    (source.index, operation.index),
                    f"operation {operation.index}, zdnn_{operation.name}, transforms the "
                    f"{array.size} bytes "
                    f"that operation {source.index} gave: the ztensor could have been used",
                )


def _kind(structure: Ztensor | None) -> tuple[object, ...]:
    desc = TensorDesc() if structure is None else structure.transformed_desc
    return (*dims(desc), desc.layout, desc.format, desc.type)


def _equal_bytes(trace: Trace) -> Iterator[Found]:
    """Find arrays that were transformed more than once into the same kind of tensor."""
    seen: dict[tuple[object, ...], list[TracedOperation]] = {}
    for operation in trace.operations:
        arrays = operation.having(CONTENTS_ROLE_ARRAY_IN)
        if operation.name in _TRANSFORMS and operation.is_valid and arrays and operation.operands:
            digests = tuple(each.digest for each in arrays)
            key = (
                operation.session,
                operation.name,
                digests,
                _kind(operation.operands[0].structure),
            )
            seen.setdefault(key, []).append(operation)
    for again in seen.values():
        if len(again) > 1:
            size = sum(each.size for each in again[0].having(CONTENTS_ROLE_ARRAY_IN))
            yield Found(
                tuple(one.index for one in again),
                f"the same {size} bytes were transformed {len(again)} times, first by operation "
                f"{again[0].index}: transform once and keep the ztensor",
            )


def _padding(trace: Trace) -> Iterator[Found]:
    """Say when most of what transforms made is padding, and which tensors have most of it."""
    totals = totals_of(trace)
    if totals.stickified_bytes < _MIN_PADDED or totals.padding <= _MAX_PADDING:
        return
    wasted = Counter(
        {
            operation.index: padding
            for operation in trace.operations
            for _, padding in _stickified(operation)
        }
    )
    worst = tuple(index for index, _ in wasted.most_common(3))
    yield Found(
        worst,
        f"{totals.padding:.0%} of {totals.stickified_bytes} stickified bytes are padding, most in "
        f"operations {', '.join(map(str, worst))}: dim1 fills sticks of 64, dim2 pages of 32",
    )


def _zero_biases(trace: Trace) -> Iterator[Found]:
    """Find biases that are zeros, once for each function and tensor."""
    zero: dict[tuple[int, int], bool] = {}
    told: set[tuple[object, ...]] = set()
    for operation in trace.operations:
        _note_zeros(operation, zero)
        names = _BIASES.get(operation.name, ())
        empty = [name for name in names if _is_zero(operation, name, zero)]
        if not empty or len(empty) < _ONE_IS_ZERO.get(operation.name, 1):
            continue
        key = (operation.session, operation.name, *(_identity(operation, name) for name in empty))
        if key not in told:
            told.add(key)
            yield Found(
                (operation.index,),
                f"operation {operation.index}, zdnn_{operation.name}: "
                f"{' and '.join(empty)} all zeros: an "
                "addition that follows could be the bias instead",
            )


def _note_zeros(one: TracedOperation, zero: dict[tuple[int, int], bool]) -> None:
    """Keep what is known of the session's tensors: those that hold nothing but zeros."""
    for held in one.having(CONTENTS_ROLE_STICKS_HELD):
        zero[one.session, held.id] = is_zeros(held)
    arrays = one.having(CONTENTS_ROLE_ARRAY_IN)
    for operand in one.operands:
        if operand.is_output and operand.id:
            is_zero = one.name in _TRANSFORMS and bool(arrays) and all(map(is_zeros, arrays))
            zero[one.session, operand.id] = is_zero


def _is_zero(one: TracedOperation, name: str, zero: dict[tuple[int, int], bool]) -> bool:
    brought = _brought(one, name)
    if brought is not None:
        return is_zeros(brought)
    return any(each.name == name and zero.get((one.session, each.id)) for each in one.operands)


def _brought(one: TracedOperation, name: str) -> TracedContents | None:
    sticks = one.having(CONTENTS_ROLE_STICKS_IN)
    return next((each for each in sticks if each.operand == name), None)


def _identity(one: TracedOperation, name: str) -> object:
    brought = _brought(one, name)
    if brought is not None:
        return brought.digest
    return next((each.id for each in one.operands if each.name == name), 0)


def _missing_pipeline(trace: Trace) -> Iterator[Found]:
    """Find long runs of calls with one operation each, none of which had to wait for an answer.

    A C program has no lists: calls whose ztensors travel with them are not counted.
    """
    runs: dict[int, list[Call]] = {}
    for call in trace.calls:
        run = runs.setdefault(call.record.session, [])
        if _is_single(call):
            run.append(call)
            continue
        yield from _told_run(run)
        run.clear()
    for run in runs.values():
        yield from _told_run(run)


def _is_single(call: Call) -> bool:
    made = [operation for operation in call.operations if not operation.is_housekeeping]
    if len(made) != 1 or made[0].name not in COMPUTING | _TRANSFORMS | _MAKING:
        return False
    return all(operand.id for operand in made[0].operands)


def _told_run(run: list[Call]) -> Iterator[Found]:
    if len(run) < _LONG_RUN:
        return
    indexes = tuple(
        operation.index
        for call in run
        for operation in call.operations
        if not operation.is_housekeeping
    )
    yield Found(
        indexes,
        f"{len(run)} calls of one operation each, from operation {indexes[0]} on: inside "
        "`with session.pipeline():` they are one call",
    )


_RULES: Mapping[str, Callable[[Trace], Iterator[Found]]] = {
    "untransform-transform": _round_trips,
    "equal-bytes": _equal_bytes,
    "padding": _padding,
    "zero-bias": _zero_biases,
    "missing-pipeline": _missing_pipeline,
}
RULES = tuple(_RULES)
"""The names of the rules."""
