# SPDX-License-Identifier: Apache-2.0
"""The score as a page, a badge, and a table in Markdown."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from nnpa_client._values.availability import MACHINES

from nnpa_tools.conformance.counts import FAILED, OUTCOMES, PASSED, Suite
from nnpa_tools.conformance.score import Score

if TYPE_CHECKING:
    from jinja2 import Environment

_LABEL = "conformance"
_LETTER = 6.6  # width of a letter of the badge, 11 px of a sans-serif
_FIRST = ("any", *MACHINES)


def page(score: Score) -> str:
    """Return the page in HTML; texts from files are escaped."""
    return (
        _templates()
        .get_template("score.html")
        .render(score=score, outcomes=OUTCOMES, matrix=_matrix)
    )


def badge(score: Score) -> str:
    """Return the badge, a picture in SVG with the totals."""
    totals = score.totals
    text = f"{totals[PASSED]:,} of {totals[PASSED] + totals[FAILED]:,}"
    widths = [round(len(words) * _LETTER) + 12 for words in (_LABEL, text)]
    colour = "#0b6e4f" if not totals[FAILED] else "#a2191f"
    return (
        _templates()
        .get_template("badge.svg")
        .render(label=_LABEL, text=text, left=widths[0], right=widths[1], colour=colour)
    )


def markdown(data: Mapping[str, Any]) -> str:
    """Return the totals of a score's JSON as a table."""
    lines = [f"| suite | {' | '.join(OUTCOMES)} |", f"|---|{'---:|' * len(OUTCOMES)}"]
    lines += [f"| {' | '.join(cells)} |" for cells in rows(data)]
    return "\n".join(lines) + "\n"


def rows(data: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each suite of a score's JSON, then the totals."""
    for suite in data["suites"]:
        cells = ("-", "-", "-", suite["why"]) if suite["why"] else _cells(suite)
        yield suite["title"], *cells
    yield "all", *_cells(data["totals"])


def _cells(counts: Mapping[str, int]) -> Iterator[str]:
    return (f"{counts[outcome]:,}" for outcome in OUTCOMES)


def _matrix(suite: Suite) -> tuple[list[str], list[tuple[str, list[Mapping[str, int] | None]]]]:
    """Return a suite's machines, and for each group its counts on each machine."""
    machines = sorted({group.machine for group in suite.groups}, key=_order)
    counts = {(group.name, group.machine): group.counts for group in suite.groups}
    names = sorted({group.name for group in suite.groups})
    return machines, [(name, [counts.get((name, each)) for each in machines]) for name in names]


def _order(machine: str) -> tuple[int, str]:
    return (_FIRST.index(machine) if machine in _FIRST else len(_FIRST), machine)


def _as_json(score: Score) -> str:
    return json.dumps(score.as_data(), indent=1) + "\n"


FILES: Final[Mapping[str, Callable[[Score], str]]] = {
    "score.html": page,
    "score.json": _as_json,
    "score.svg": badge,
    "score.md": lambda score: markdown(score.as_data()),
}
"""The files of a score, by name."""


@lru_cache(maxsize=1)
def _templates() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined  # of the extra onnx

    return Environment(
        loader=PackageLoader("nnpa_tools.conformance", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
