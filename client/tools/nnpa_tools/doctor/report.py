# SPDX-License-Identifier: Apache-2.0
"""The doctor's report on a program: findings, runs, trials, times and notes."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass

from nnpa_client._guest.custom_machine import find_machine
from nnpa_client.trace.history import Trace

from nnpa_tools.doctor.laboratory import Run
from nnpa_tools.doctor.rules import Finding
from nnpa_tools.doctor.trials import Trials
from nnpa_tools.doctor.waste import saved_operations
from nnpa_tools.estimates.dominance import dominant
from nnpa_tools.estimates.estimator import estimate
from nnpa_tools.estimates.intervals import Interval
from nnpa_tools.traces.diff import Kind, diff
from nnpa_tools.traces.machine_times import call_of_operation, calls_of


@dataclass(frozen=True, slots=True)
class Seen:
    """A run in the report: its condition, end, operations, errors and differences."""

    title: str
    what: str
    ended: str
    operations: int
    errors: Mapping[str, int]
    differs: tuple[str, ...]
    chose_machine: bool


@dataclass(frozen=True, slots=True)
class Time:
    """An estimate of the time on a machine, None without calls that have one.

    `saved` is the time of repeated transforms, `dominant` a sentence on the largest part.
    """

    machine: str
    total: Interval | None
    saved: Interval | None
    dominant: str


@dataclass(frozen=True, slots=True)
class Checked:
    """The static verdict of `nnpa check` for a machine, with reasons."""

    machine: str
    runs: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The report on a program.

    `machines` are as in ZDNN_MACHINE; `left_out` lists examinations that did not run, and why.
    """

    program: tuple[str, ...]
    machines: tuple[str, ...]
    findings: tuple[Finding, ...]
    runs: tuple[Seen, ...]
    trials: Trials
    times: tuple[Time, ...]
    gains: tuple[str, ...]
    functions: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    check: tuple[Checked, ...] = ()

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def as_data(self) -> dict[str, object]:
        """Return the JSON document."""
        times = [
            {
                "machine": time.machine,
                "total": time.total and time.total.as_data(),
                "saved": time.saved and time.saved.as_data(),
                "dominant": time.dominant,
            }
            for time in self.times
        ]
        return {**asdict(self), "times": times, "clean": self.is_clean}


def seen(run: Run, measure: Run) -> Seen:
    """Return a run, with its differences from the baseline."""
    errors = Counter(f"{step.name}: {step.answer}" for step in run.refused)
    return Seen(
        run.condition.title,
        run.condition.what,
        run.ending,
        len(run.steps),
        dict(errors),
        () if run is measure or run.condition.counts_calls else tuple(_differences(run, measure)),
        run.chose_machine,
    )


def _differences(run: Run, measure: Run) -> Iterator[str]:
    """Yield differences of a run: its end, the first operation of each kind, its output."""
    if run.ended.code != measure.ended.code:
        yield run.ending
    comparison = diff(measure.trace, run.trace)
    kinds: tuple[Kind, ...] = ("status", "answer")  # fresh sticks of the sanitizer are others
    for kind in kinds if run.condition.sanitize else (*kinds, "values"):
        difference = comparison.first(kind)
        if difference is not None:
            yield str(difference)
    departure = comparison.first("operation")
    if departure is not None:
        place = f"operation {departure.index}"
        yield f"{departure.right} in the place of {departure.left}, {place}"
    if run.ended.output != measure.ended.output:
        yield "its output"


def times_of(trace: Trace, chosen: Iterable[str]) -> tuple[Time, ...]:
    """Return the estimated times of a trace on machines, and of its repeated transforms."""
    calls, saving = calls_of(trace), list(map(call_of_operation, saved_operations(trace)))
    times: list[Time] = []
    for machine in chosen:
        host = find_machine(machine)
        whole, repeated = estimate(calls, host), estimate(saving, host)
        saved = repeated.total if repeated.lines else None
        times.append(Time(machine, whole.total if whole.lines else None, saved, dominant(whole)))
    return tuple(times)
