# SPDX-License-Identifier: Apache-2.0
"""The score: the counts of all suites, results of real machines, and facts that are not public."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nnpa_tools.conformance.counts import FAILED, NOT_RUN, OUTCOMES, PASSED, Suite, added, suite_of
from nnpa_tools.conformance.real_machines import Measured

FORMAT: Final = 1
"""Version of the score as JSON."""


@dataclass(frozen=True, slots=True)
class Score:
    """The score of a version; `date` is ISO 8601, `not_public` lists facts without a source."""

    version: str
    date: str
    is_quick: bool
    suites: tuple[Suite, ...]
    real_machines: tuple[Measured, ...]
    not_public: tuple[tuple[str, str], ...]

    @property
    def totals(self) -> Mapping[str, int]:
        """The number of cases of all suites by outcome."""
        return added(suite.counts for suite in self.suites)

    @property
    def is_right(self) -> bool:
        """Whether no case failed."""
        return not self.totals[FAILED]

    @property
    def verdict(self) -> str:
        """The totals in a sentence."""
        totals = self.totals
        ran = totals[PASSED] + totals[FAILED]
        missing = [suite.title for suite in self.suites if suite.why]
        text = f"{totals[PASSED]:,} of {ran:,} cases passed"
        if totals[NOT_RUN]:
            text += f", {totals[NOT_RUN]:,} not run"
        return text + (f"; not run: {', '.join(missing)}" if missing else "")

    def as_data(self) -> dict[str, Any]:
        """Return the score as plain data for JSON."""
        return {
            "format": FORMAT,
            "version": self.version,
            "date": self.date,
            "quick": self.is_quick,
            "right": self.is_right,
            "totals": dict(self.totals),
            "suites": [suite.as_data() for suite in self.suites],
            "real_machines": [row.as_data() for row in self.real_machines],
            "not_public": [{"what": what, "text": text} for what, text in self.not_public],
        }


def read_suites(path: Path) -> dict[str, Suite]:
    """Read the suites of a score's JSON by name; ValueError for another file or version."""
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: no JSON, {error}") from error
    version = data.get("format") if isinstance(data, dict) else None
    if version != FORMAT:
        raise ValueError(f"{path}: a score of version {version!r}, expected version {FORMAT}")
    try:
        return {suite.name: suite for suite in map(suite_of, data["suites"])}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: suites: out of shape, {error!r}") from error


def changes(score: Score, kept: Mapping[str, Suite]) -> Iterator[str]:
    """Yield a sentence for each count that differs from an earlier score."""
    for suite in score.suites:
        if suite.why or suite.name not in kept or kept[suite.name].why:
            continue
        for outcome in OUTCOMES:
            count, was = suite.counts[outcome], kept[suite.name].counts[outcome]
            if count != was:
                yield f"{suite.title}: {outcome} {count}, was {was} in the earlier score"
