# SPDX-License-Identifier: Apache-2.0
"""Estimated times of calls on the zAIU of a z16 or z17, by function and in total.

The figures come from `coefficients.toml`: regressions of a compiler team over single calls, one
thread, warm caches. Contention, NUMA and page faults are not covered.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nnpa_client._values.availability import Answer, Host, find_host, verdict

from nnpa_tools.estimates.coefficients import Coefficients, Row, shipped
from nnpa_tools.estimates.intervals import Interval
from nnpa_tools.estimates.work import Call, Part, family_of, parts

_PS_PER_NS, _NS_PER_US = 1000.0, 1000.0
# Families of functions that compute nothing; of them transforms and reshape_ztensor move elements.
_IDLE = frozenset(("", "FAMILY_LIFE_CYCLE", "FAMILY_ENVIRONMENT"))
_RESHAPE = "reshape_ztensor"
_INSTRUCTION, _QUERY = "NNPA_", "NNPA_QAF"  # of what zDNN has no function for


class Shares(NamedTuple):
    """Shares of an estimate's time, which overlap.

    They are the shares of `transforms` between arrays and sticks, of computing on `padding`, of
    `fixed` costs of calls, and of `small` calls that the CPU would carry out faster. `of_largest`
    is the share of `largest`, the function that takes most time.
    """

    transforms: float
    padding: float
    fixed: float
    small: float
    largest: str
    of_largest: float


@dataclass(frozen=True, slots=True)
class Line:
    """The calls of a function together."""

    function: str
    count: int
    interval: Interval


@dataclass(frozen=True, slots=True)
class Estimate:
    """The time of calls on a machine: by function, largest first, and in total.

    `missing` counts calls without an estimate, by function and why; `small` are the indexes of
    calls that the CPU would carry out faster.
    """

    machine: str
    lines: tuple[Line, ...]
    total: Interval
    shares: Shares
    missing: Mapping[str, int]
    small: tuple[int, ...]


class _Timed(NamedTuple):
    """A part of a call with its row, its grade and its time."""

    part: Part
    row: Row
    grade: str
    middle_ns: float


def time_of(call: Call, machine: str | Host) -> Interval | None:
    """Return the time of a call, None if the machine lacks the function or has no public figure.

    `machine` is "telum1", "telum2", or what `estimated_machine` returns.
    """
    return _interval(_timed(call, _host(machine), shipped()), shipped())


def _host(machine: str | Host) -> Host:
    return machine if isinstance(machine, Host) else find_host(machine)


def estimate(
    calls: Iterable[Call], machine: str | Host, coefficients: Coefficients | None = None
) -> Estimate:
    """Return the time of calls, one after the other, on a machine as `time_of` takes it."""
    of, host = coefficients or shipped(), _host(machine)
    listed = list(calls)
    timed = [_timed(call, host, of) for call in listed]
    counts: Counter[str] = Counter()
    missing: Counter[str] = Counter()
    intervals: dict[str, Interval] = {}
    for call, steps in zip(listed, timed, strict=True):
        interval = _interval(steps, of)
        if interval is None:
            missing[_why_missing(call, host, of)] += 1
            continue
        counts[call.label] += 1
        intervals[call.label] = intervals.get(call.label, Interval()) + interval
    order = sorted(intervals, key=lambda label: -intervals[label].high_ns)
    small = tuple(index for index, call in enumerate(listed) if _is_small(call, timed[index]))
    return Estimate(
        host.name,
        tuple(Line(label, counts[label], intervals[label]) for label in order),
        sum(intervals.values(), Interval()),
        _shares(listed, timed, small),
        {why: count for why, count in missing.items() if why},
        small,
    )


def is_small(call: Call, machine: str) -> bool:
    """Return True if the CPU alone is faster than a call by public figures."""
    return _is_small(call, _timed(call, _host(machine), shipped()))


def _timed(call: Call, host: Host, of: Coefficients) -> Sequence[_Timed]:
    """Return the parts of a call with their times; empty if there is no estimate."""
    if verdict(call.function, host).answer is Answer.NO or host.model not in of.rows:
        return ()
    timed: list[_Timed] = []
    for part in parts(call):
        row = of.row(host.model, part.row, family_of(call.function))
        timed.append(_Timed(part, row, _grade(call, part, row, of), _middle_ns(part, row)))
    return timed


def _middle_ns(part: Part, row: Row) -> float:
    work = part.useful if row.per == "elements" else part.padded
    each = row.call_us * _NS_PER_US + row.slope_ps * work / _PS_PER_NS
    return part.calls * max(row.least_us * _NS_PER_US, each)


def _grade(call: Call, part: Part, row: Row, of: Coefficients) -> str:
    """Return the grade of a row, or a worse grade for a case that was not measured.

    D: rows that pad differently to 2 and to 32, and transforms of other types than FP32. Work above
    the largest measured one is C for elements, and D for products and for rows of grade C.
    """
    is_padded = part.least != part.most and row.per != "elements"
    if is_padded or (call.transform and not call.is_float32):
        return "D"
    unit = "macs" if row.per == "macs" else "elements"
    if part.padded <= of.measured_up_to[unit]:
        return row.grade
    return "D" if unit == "macs" or row.grade >= "C" else "C"


def _interval(timed: Sequence[_Timed], of: Coefficients) -> Interval | None:
    intervals = [
        Interval(step.middle_ns / k, step.middle_ns * k, step.grade)
        for step in timed
        for k in (of.grades[step.grade].k,)
    ]
    return sum(intervals, Interval()) if intervals else None


def _is_small(call: Call, timed: Sequence[_Timed]) -> bool:
    if call.transform or len(timed) != 1 or timed[0].row.cpu is None:
        return False
    constant_us, slope_ps = timed[0].row.cpu
    cpu_ns = constant_us * _NS_PER_US + slope_ps * timed[0].part.useful / _PS_PER_NS
    return cpu_ns < timed[0].middle_ns


def _why_missing(call: Call, host: Host, of: Coefficients) -> str:
    """Return why a call has no estimate; "" for a call that does not use the accelerator."""
    if call.function.startswith(_INSTRUCTION):
        return "" if call.function == _QUERY else f"{call.function}: no figure is public"
    is_idle = family_of(call.function) in _IDLE and not call.transform
    if is_idle:
        return f"{_RESHAPE}: no figure is public" if call.function == _RESHAPE else ""
    if verdict(call.function, host).answer is Answer.NO:
        return f"{call.function}: not on {host.title}"
    if host.model not in of.rows:
        return f"{call.function}: no figures of {host.title} are public"
    return f"{call.function}: its shapes are not known"


def _shares(
    calls: Sequence[Call], timed: Sequence[Sequence[_Timed]], small: Sequence[int]
) -> Shares:
    times = [sum(step.middle_ns for step in steps) for steps in timed]
    whole = sum(times) or 1.0
    by_label: dict[str, float] = {}
    computing: list[_Timed] = []
    for call, steps, time in zip(calls, timed, times, strict=True):
        if not call.transform:
            by_label[call.label] = by_label.get(call.label, 0.0) + time
            computing.extend(steps)
    largest, most = max(by_label.items(), key=lambda pair: pair[1], default=("", 0.0))
    return Shares(
        (sum(times) - sum(by_label.values())) / whole,
        sum(map(_padding_ns, computing)) / whole,
        sum(map(_fixed_ns, computing)) / whole,
        sum(times[index] for index in small) / whole,
        largest,
        most / whole,
    )


def _padding_ns(step: _Timed) -> float:
    extra = step.part.padded - step.part.useful
    return step.part.calls * step.row.slope_ps * extra / _PS_PER_NS


def _fixed_ns(step: _Timed) -> float:
    each = max(step.row.call_us, step.row.least_us) * _NS_PER_US
    return min(step.part.calls * each, step.middle_ns)
