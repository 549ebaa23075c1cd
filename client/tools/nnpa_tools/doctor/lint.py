# SPDX-License-Identifier: Apache-2.0
"""Rules that find waste in a trace, and budgets that need no clock.

untransform-transform  an array is transformed back and then transformed anew, unchanged
equal-bytes            the same array is transformed twice into tensors of the same kind
padding                most of the sticks are padding
zero-bias              an operation adds a bias that is all zeros
missing-pipeline       many calls of one operation each, where one list would do

Calls below the break-even with the CPU are reported as advice, not as findings.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from typing import NamedTuple

from nnpa.zdnn.v1.tensor_pb2 import TensorDesc, Ztensor
from nnpa.zdnn.v1.trace_pb2 import (
    CONTENTS_ROLE_ARRAY_IN,
    CONTENTS_ROLE_ARRAY_OUT,
    CONTENTS_ROLE_STICKS_HELD,
    CONTENTS_ROLE_STICKS_IN,
)
from nnpa_client._values.display import counted
from nnpa_client._values.user_arrays import DTYPES, dims
from nnpa_client.trace.history import COMPUTING, Call, Trace, TracedOperation

from nnpa_tools.doctor.engine import Rule, apply
from nnpa_tools.traces.machine_times import is_below_break_even, machine_of
from nnpa_tools.traces.values import is_zeros, stick_bytes_per_element

_TRANSFORMS = frozenset(
    ("transform_ztensor", "transform_ztensor_with_saturation", "transform_quantized_ztensor")
)
_LIFECYCLE = frozenset(("allochelper_ztensor", "reset_ztensor", "reshape_ztensor"))
# Operands by function that are added to its result, and may be left out when they are zeros.
_BIASES = {
    "matmul_op": ("input_c",),
    "matmul_bcast_op": ("input_c",),
    "matmul_transpose_op": ("input_c",),
    "quantized_matmul_op": ("input_c",),
    "conv2d": ("bias",),
    "lstm": ("biases", "hidden_biases"),
    "gru": ("biases", "hidden_biases"),
}
_MIN_ZERO_BIASES = {"lstm": 2, "gru": 2}  # of two required biases one is often zero
_MAX_PADDING = 0.75  # share of the stickified bytes that is not reported
_MIN_STICKIFIED_BYTES = 64 << 10  # below which padding is not reported
_MAX_NAMED = 5  # operations that an advice names
_MIN_RUN_CALLS = 8  # consecutive calls of one operation each, below which they are not reported


@dataclass(frozen=True, slots=True)
class Finding:
    """Waste that a rule reports: its name, the operations by index, a sentence."""

    rule: str
    operations: tuple[int, ...]
    text: str


class Waste(NamedTuple):
    """An observation of a rule: operations by index, and a sentence."""

    operations: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of a trace, which budgets limit.

    They are calls, operations of the program, bytes of the sticks that transforms wrote, bytes of
    user arrays in and out, and the share of padding in the stickified bytes.
    """

    calls: int
    operations: int
    stickified_bytes: int
    array_bytes_in: int
    array_bytes_out: int
    padding: float


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `lint`; `exceeded` has a sentence for each exceeded budget.

    `advice` has sentences that follow from estimates of the machine's time and need no action.
    """

    findings: tuple[Finding, ...]
    totals: Totals
    exceeded: tuple[str, ...]
    advice: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether there is no finding and no exceeded budget."""
        return not (self.findings or self.exceeded)


@dataclass(frozen=True, slots=True)
class Budget:
    """The largest permitted totals; None for no limit."""

    calls: int | None = None
    operations: int | None = None
    stickified_bytes: int | None = None


def lint(trace: Trace, budget: Budget | None = None, ignore: Collection[str] = ()) -> Report:
    """Apply all rules that are not ignored to a trace, and compare its totals with a budget."""
    findings = tuple(
        Finding(rule.name, waste.operations, waste.text)
        for rule, waste in apply(_RULES, trace, ignore)
    )
    totals = _totals(trace)
    exceeded = tuple(_exceeded(totals, budget or Budget()))
    return Report(findings, totals, exceeded, tuple(_advice(trace)))


def _advice(trace: Trace) -> Iterator[str]:
    """Yield advice against calls below the break-even with the CPU, by machine."""
    small: dict[str, list[TracedOperation]] = {}
    for operation in trace.operations:
        if is_below_break_even(trace, operation):
            small.setdefault(machine_of(trace, operation), []).append(operation)
    for machine, operations in small.items():
        first = ", ".join(str(operation.index) for operation in operations[:_MAX_NAMED])
        more = f" and {len(operations) - _MAX_NAMED} more" if len(operations) > _MAX_NAMED else ""
        plural = "s" * (len(operations) != 1)
        yield (
            f"{counted(len(operations), 'call')} below the break-even with the CPU of {machine} "
            f"(operation{plural} {first}{more}): fewer and larger calls, such as larger batches, "
            "pay; `nnpa estimate` says more"
        )


def _exceeded(totals: Totals, budget: Budget) -> Iterator[str]:
    for name, limit in asdict(budget).items():
        total = getattr(totals, name)
        if limit is not None and total > limit:
            yield f"{name.replace('_', ' ')}: {total}, at most {limit}"


def _totals(trace: Trace) -> Totals:
    operations = [operation for operation in trace.operations if not operation.is_housekeeping]
    sticks = [sizes for operation in operations for sizes in _stickified(operation)]
    whole, padding = sum(whole for whole, _ in sticks), sum(padding for _, padding in sticks)
    return Totals(
        calls=len(trace.calls),
        operations=len(operations),
        stickified_bytes=whole,
        array_bytes_in=_bytes(operations, CONTENTS_ROLE_ARRAY_IN),
        array_bytes_out=_bytes(operations, CONTENTS_ROLE_ARRAY_OUT),
        padding=padding / whole if whole else 0.0,
    )


def _bytes(operations: list[TracedOperation], role: int) -> int:
    contents = (content for operation in operations for content in operation.contents)
    return sum(content.size for content in contents if content.role == role)


def _stickified(operation: TracedOperation) -> Iterator[tuple[int, int]]:
    """Yield the bytes of the sticks that a transform wrote, and the bytes of padding in them."""
    if operation.name not in _TRANSFORMS or not operation.is_valid or not operation.operands:
        return
    structure = operation.operands[0].structure
    if structure is None:
        return
    whole, used = structure.buffer_size, _used(operation, structure)
    yield whole, max(0, whole - used)


def _used(operation: TracedOperation, structure: Ztensor) -> int:
    """Return the bytes of sticks that hold elements of the user's arrays."""
    array = sum(content.size for content in operation.having(CONTENTS_ROLE_ARRAY_IN))
    dtype = DTYPES.get(structure.pre_transformed_desc.type)
    elements = array // dtype.itemsize if dtype is not None else 0
    return elements * stick_bytes_per_element(structure.transformed_desc)


def _round_trips(trace: Trace) -> Iterator[Waste]:
    """Find arrays that transform_origtensor returned and a transform takes unchanged."""
    sources: dict[tuple[int, bytes], TracedOperation] = {}
    for operation in trace.operations:
        for out in operation.having(CONTENTS_ROLE_ARRAY_OUT):
            sources[operation.session, out.digest] = operation
        if operation.name not in _TRANSFORMS:
            continue
        for array in operation.having(CONTENTS_ROLE_ARRAY_IN):
            source = sources.get((operation.session, array.digest))
            if source is not None and not is_zeros(array):
                yield Waste(
                    (source.index, operation.index),
                    f"operation {operation.index}, zdnn_{operation.name}, transforms the "
                    f"{array.size} bytes "
                    f"that operation {source.index} gave: the ztensor could have been used",
                )


def _kind(structure: Ztensor | None) -> tuple[object, ...]:
    desc = TensorDesc() if structure is None else structure.transformed_desc
    return (*dims(desc), desc.layout, desc.format, desc.type)


def _equal_bytes(trace: Trace) -> Iterator[Waste]:
    """Find arrays that are transformed more than once into the same kind of tensor."""
    seen: dict[tuple[object, ...], list[TracedOperation]] = {}
    for operation in trace.operations:
        arrays = operation.having(CONTENTS_ROLE_ARRAY_IN)
        if operation.name in _TRANSFORMS and operation.is_valid and arrays and operation.operands:
            digests = tuple(array.digest for array in arrays)
            key = (
                operation.session,
                operation.name,
                digests,
                _kind(operation.operands[0].structure),
            )
            seen.setdefault(key, []).append(operation)
    for transforms in seen.values():
        if len(transforms) > 1:
            size = sum(array.size for array in transforms[0].having(CONTENTS_ROLE_ARRAY_IN))
            yield Waste(
                tuple(transform.index for transform in transforms),
                f"the same {size} bytes were transformed {len(transforms)} times, first by "
                f"operation {transforms[0].index}: transform once and keep the ztensor",
            )


def _padding(trace: Trace) -> Iterator[Waste]:
    """Report sticks that are mostly padding, and the three transforms that add most of it."""
    totals = _totals(trace)
    if totals.stickified_bytes < _MIN_STICKIFIED_BYTES or totals.padding <= _MAX_PADDING:
        return
    wasted = Counter(
        {
            operation.index: padding
            for operation in trace.operations
            for _, padding in _stickified(operation)
        }
    )
    worst = tuple(index for index, _ in wasted.most_common(3))
    yield Waste(
        worst,
        f"{totals.padding:.0%} of {totals.stickified_bytes} stickified bytes are padding, most in "
        f"operations {', '.join(map(str, worst))}: dim1 fills sticks of 64, dim2 pages of 32",
    )


def _zero_biases(trace: Trace) -> Iterator[Waste]:
    """Find biases that are all zeros, once for each function and tensor."""
    zeros: set[tuple[int, object]] = set()
    reported: set[tuple[object, ...]] = set()
    for operation in trace.operations:
        _note_zeros(operation, zeros)
        tensors = {name: (operation.session, tensor) for name, tensor in inputs_of(operation)}
        names = _BIASES.get(operation.name, ())
        empty = [name for name in names if tensors.get(name) in zeros]
        key = (operation.name, *(tensors[name] for name in empty))
        if len(empty) >= _MIN_ZERO_BIASES.get(operation.name, 1) and key not in reported:
            reported.add(key)
            yield Waste(
                (operation.index,),
                f"operation {operation.index}, zdnn_{operation.name}: "
                f"{' and '.join(empty)} all zeros: an "
                "addition that follows could be the bias instead",
            )


def inputs_of(operation: TracedOperation) -> Iterator[tuple[str, object]]:
    """Yield the inputs by name, each with its id, or the digest of sticks that came with it."""
    sticks = {sent.operand: sent.digest for sent in operation.having(CONTENTS_ROLE_STICKS_IN)}
    for operand in operation.operands:
        if not operand.is_output:
            yield operand.name, sticks.get(operand.name, operand.id)


def _note_zeros(operation: TracedOperation, zeros: set[tuple[int, object]]) -> None:
    """Keep the tensors of the session that hold zeros only, after an operation."""
    arrays = operation.having(CONTENTS_ROLE_ARRAY_IN)
    is_zero = operation.name in _TRANSFORMS and bool(arrays) and all(map(is_zeros, arrays))
    holds_zeros: dict[object, bool] = {
        **{held.id: is_zeros(held) for held in operation.having(CONTENTS_ROLE_STICKS_HELD)},
        **{sent.digest: is_zeros(sent) for sent in operation.having(CONTENTS_ROLE_STICKS_IN)},
        **{operand.id: is_zero for operand in operation.operands if operand.is_output},
    }
    for tensor, holds in holds_zeros.items():
        key = operation.session, tensor
        if tensor and holds:
            zeros.add(key)
        else:
            zeros.discard(key)


def _missing_pipeline(trace: Trace) -> Iterator[Waste]:
    """Find long runs of calls with one operation each, none of which depends on an answer.

    Calls with inline ztensors do not count: they come from C programs, which have no lists.
    """
    runs: dict[int, list[Call]] = {}
    for call in trace.calls:
        run = runs.setdefault(call.record.session, [])
        if _is_single(call):
            run.append(call)
            continue
        yield from _long_run(run)
        run.clear()
    for run in runs.values():
        yield from _long_run(run)


def _is_single(call: Call) -> bool:
    operations = [operation for operation in call.operations if not operation.is_housekeeping]
    if len(operations) != 1 or operations[0].name not in COMPUTING | _TRANSFORMS | _LIFECYCLE:
        return False
    return all(operand.id for operand in operations[0].operands)


def _long_run(run: list[Call]) -> Iterator[Waste]:
    if len(run) < _MIN_RUN_CALLS:
        return
    indexes = tuple(
        operation.index
        for call in run
        for operation in call.operations
        if not operation.is_housekeeping
    )
    yield Waste(
        indexes,
        f"{len(run)} calls of one operation each, from operation {indexes[0]} on: inside "
        "`with session.pipeline():` they are one call",
    )


_RULES: tuple[Rule[Trace, Waste], ...] = (
    Rule("untransform-transform", _round_trips),
    Rule("equal-bytes", _equal_bytes),
    Rule("padding", _padding),
    Rule("zero-bias", _zero_biases),
    Rule("missing-pipeline", _missing_pipeline),
)
RULES = tuple(rule.name for rule in _RULES)
"""The names of the rules."""
