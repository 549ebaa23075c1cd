# SPDX-License-Identifier: Apache-2.0
"""Cases of a suite, and their counts by outcome."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

PASSED, FAILED, REFUSED, NOT_RUN = "passed", "failed", "refused", "not run"
OUTCOMES: Final = (PASSED, FAILED, REFUSED, NOT_RUN)
"""A refused case is known not to be supported, for a reason; it must not pass."""
_LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class Case:
    """The outcome of a case, or of `count` cases of one group."""

    group: str
    outcome: str
    machine: str = ""
    name: str = ""
    reason: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class Group:
    """The counts of cases that belong together, such as the cases of a function, on one machine."""

    name: str
    machine: str
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Suite:
    """The counts of a suite's run, and its date in ISO 8601; `why` says why it did not run."""

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
        """The number of cases by outcome."""
        return added(group.counts for group in self.groups)

    def as_data(self) -> dict[str, Any]:
        """Return the suite as plain data for JSON."""
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
    """Return the suite of its JSON; raise KeyError or TypeError for other data."""
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
    """Return the counts of a suite's cases; ValueError for an unknown outcome."""
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
