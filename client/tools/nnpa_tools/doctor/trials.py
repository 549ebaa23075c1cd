# SPDX-License-Identifier: Apache-2.0
"""Trials of a program: a call answers a status of each class, or violates the range."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from nnpa.zdnn.v1.fault_pb2 import FaultRule
from nnpa_client.status import Status, is_warning
from nnpa_client.trace.history import COMPUTING

from nnpa_tools.doctor.laboratory import is_crash
from nnpa_tools.faults.sweep import Bench, Program, Site, Verdict, calls_of, classify

STATUSES = (
    Status.ZDNN_ELEMENT_RANGE_VIOLATION,
    Status.ZDNN_INVALID_SHAPE,
    Status.ZDNN_ALLOCATION_FAILURE,
    Status.ZDNN_UNAVAILABLE_FUNCTION,
)
"""The statuses that calls answer: one of each class."""
RANGE_VIOLATION = "range violation"
"""The trial in which an element of the result is no number."""
EXCEPTION = "data exception"
"""The trial in which an instruction is interrupted, which ends most programs."""
_MAX_SITES = 8  # calls of a function that are tried, the first ones
_MIN_SECONDS, _SLOWER = 10.0, 10.0  # a trial may take so many times a run without faults


@dataclass(frozen=True, slots=True)
class Attempt:
    """One trial: the function, the number of its call, its answer, and the verdict on the run.

    `goes_on` is whether the program makes the same calls and ends with the same exit code.
    """

    function: str
    call: int
    answer: str
    is_warning: bool
    verdict: Verdict
    code: int | None
    goes_on: bool

    @property
    def conduct(self) -> str:
        """The verdict, or "aborted" after a failed assert, as the program checked the status.

        Or "interrupted" if an exception ended the program, as a machine would end it.
        """
        if self.verdict == "crashed" and self.answer == EXCEPTION:
            return "interrupted"
        is_abort = self.verdict == "crashed" and not is_crash(self.code)
        return "aborted" if is_abort else self.verdict


CONDUCTS: Mapping[str, str] = MappingProxyType(
    {
        "handled": "it behaved otherwise than without the status, and ended by itself",
        "ignored": "it went on and ended as if nothing were wrong",
        "aborted": "it ended by abort, as after a failed assert",
        "crashed": "a signal ended it",
        "interrupted": "the exception ended it, as on a machine",
        "hung": "it did not end",
        "missed": "it did not make the call this time",
    }
)
"""A sentence on each `Attempt.conduct`."""


@dataclass(frozen=True, slots=True)
class Trials:
    """All trials of a program; `skipped` counts calls that were not tried."""

    attempts: tuple[Attempt, ...] = ()
    skipped: int = 0


def attempt_all(
    command: Sequence[str],
    machine: str,
    timeout: float,
    progress: Callable[[int, int], None],
) -> Trials:
    """Run a program once for each of its calls and each answer; raise `Unusable` as `sweep`."""
    with Program(list(command), timeout, machine).bench() as bench:
        limit = min(timeout, max(_MIN_SECONDS, _SLOWER * bench.clean.ended.seconds))
        sites, skipped = _chosen(bench.clean.sites())
        rules = [rule for site in sites for rule in _rules(site)]
        attempts: list[Attempt] = []
        for site, answer, rule in rules:
            attempts.append(_attempt(bench, site, answer, rule, limit))
            progress(len(attempts), len(rules))
    return Trials(tuple(attempts), skipped)


def _chosen(sites: Sequence[Site]) -> tuple[list[Site], int]:
    """Return the first calls of each function, and how many calls are left out."""
    counts: Counter[str] = Counter()
    chosen: list[Site] = []
    for site in sites:
        counts[site.operation] += 1
        if counts[site.operation] <= _MAX_SITES:
            chosen.append(site)
    return chosen, len(sites) - len(chosen)


def _rules(site: Site) -> Iterator[tuple[Site, str, FaultRule]]:
    for status in STATUSES:
        yield site, status.name, FaultRule(call=site.call, status=status.name, output_written=True)
    if site.operation in COMPUTING:
        yield site, RANGE_VIOLATION, FaultRule(call=site.call, range_violation=1)


def _attempt(bench: Bench, site: Site, answer: str, rule: FaultRule, limit: float) -> Attempt:
    clean = bench.clean
    ended = bench.run(rule, seconds=limit)
    return Attempt(
        f"zdnn_{site.operation}",
        site.call,
        answer,
        answer == RANGE_VIOLATION or is_warning(Status[answer]),
        classify(clean.ended, ended, clean.steady),
        ended.code,
        ended.code == clean.ended.code and calls_of(ended.marked) == clean.calls,
    )
