# SPDX-License-Identifier: Apache-2.0
"""Cases of a suite, and their counts by outcome: what a run told, summed and nothing else."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

PASSED, FAILED, REFUSED, NOT_RUN = "passed", "failed", "refused", "not run"
OUTCOMES: Final = (PASSED, FAILED, REFUSED, NOT_RUN)
"""A refused case is one that is known not to be offered, with a reason; it must stay so."""
_LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class Case:
    """What a run told of a case, or of `count` cases of one group that ended alike."""

    group: str
    outcome: str
    machine: str = ""
    name: str = ""
    reason: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class Group:
    """Cases of a suite that belong together, such as those of a function, on one machine."""

    name: str
    machine: str
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Suite:
    """What a run of a suite came to, and its date in ISO 8601; `why` says why it was not run."""

    name: str
    title: str
    groups: tuple[Group, ...] = ()
    failures: tuple[Case, ...] = ()
    refusals: Mapping[str, int] | None = None
    skips: Mapping[str, int] | None = None
    seconds: float = 0.0
    why: str = ""
    date: str = ""

    @property
    def counts(self) -> Mapping[str, int]:
        """How many cases ended with each outcome."""
        return added(group.counts for group in self.groups)

    def as_data(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "name": self.name,
            "title": self.title,
            "why": self.why,
            "date": self.date,
            **self.counts,
            "seconds": round(self.seconds, 1),
            "groups": [
                {"name": group.name, "machine": group.machine, **group.counts}
                for group in self.groups
            ],
            "failures": [
                {"group": case.group, "machine": case.machine, "case": case.name,
                 "reason": case.reason} for case in self.failures
            ],
            "refusals": dict(self.refusals or {}),
            "skips": dict(self.skips or {}),
        }  # fmt: skip


def suite_of(data: Mapping[str, Any]) -> Suite:
    """Return a suite of its JSON; KeyError or TypeError for what is none."""
    return Suite(
        data["name"],
        data["title"],
        tuple(Group(row["name"], row["machine"], _counts(row)) for row in data["groups"]),
        tuple(
            Case(row["group"], FAILED, row["machine"], row["case"], row["reason"])
            for row in data["failures"]
        ),
        dict(data["refusals"]),
        dict(data["skips"]),
        float(data["seconds"]),
        data["why"],
        data["date"],
    )


def _counts(row: Mapping[str, Any]) -> Mapping[str, int]:
    return {outcome: int(row[outcome]) for outcome in OUTCOMES}


def added(parts: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    """Return the sums of counts, every outcome among them."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return {outcome: total[outcome] for outcome in OUTCOMES}


def summed(name: str, title: str, cases: Iterable[Case], seconds: float) -> Suite:
    """Return a suite's counts; ValueError for an outcome that is none."""
    groups: dict[tuple[str, str], Counter[str]] = {}
    reasons: dict[str, Counter[str]] = {REFUSED: Counter(), NOT_RUN: Counter()}
    failures: list[Case] = []
    for case in cases:
        if case.outcome not in OUTCOMES:
            raise ValueError(f"outcome: {case.outcome!r}, expected one of {', '.join(OUTCOMES)}")
        groups.setdefault((case.group, case.machine), Counter())[case.outcome] += case.count
        if case.outcome == FAILED:
            failures.append(case)
        elif case.outcome != PASSED:
            reasons[case.outcome][case.reason[:_LONGEST_REASON]] += case.count
    return Suite(
        name,
        title,
        tuple(Group(*key, added([counts])) for key, counts in sorted(groups.items())),
        tuple(failures),
        dict(sorted(reasons[REFUSED].items())),
        dict(sorted(reasons[NOT_RUN].items())),
        seconds,
    )
