# SPDX-License-Identifier: Apache-2.0
"""An accuracy report as one HTML page: verdict, placement, charts, tables; loads nothing.

Results that several machines share are shown once, under the names of all of them.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias, TypeVar

import jinja2
from nnpa_emulator.reference.comparison import NOT_NUMERIC

from nnpa_network.reporting import placement_picture
from nnpa_network.reporting.accuracy import (
    NodeRow,
    Report,
    node_rows,
    reasons_of_idle,
    title_of,
    verdict,
)
from nnpa_network.reporting.accuracy_text import side_by_side
from nnpa_network.reporting.measurements import NodeFacts, Run, WorstRow
from nnpa_network.reporting.metrics import (
    HIGHEST,
    LEAST_NORMAL,
    LOWEST,
    MOST_NORMAL,
    ULP_LABELS,
    Exponents,
)

T = TypeVar("T")
Shared: TypeAlias = tuple[str, T]
"""Content, after the names of the machines that share it."""
Key: TypeAlias = tuple[int, str]
"""A value of the network: the index of its node, and its own name."""
Line: TypeAlias = Sequence[tuple[Key, str, float, float]]
"""A machine's errors: each value, its node's name, the error after the node, the node's own."""

# Size of the chart in pixels, and the room left for its labels.
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 640, 330, 44, 14, 96
_LEAST_POWER = -6  # below 1e-6 is the error of FP32 itself
_DECADES = 9  # of an axis, at most
_MAX_NAMES, _MAX_STRIPS = 36, 64
_CELL, _STRIP_LETTER = 8, 7  # pixels of a histogram of exponents: a cell, and a letter before it
MAX_SHOWN_CLASSES = 16
LOSING = 3
"""Nodes that the page names first."""
STANDING_OUT = 10
"""A row stands out if its error is larger than this many times the error over all rows."""


@lru_cache(maxsize=1)
def page_template() -> jinja2.Template:
    """Return the page's template, which is read from its file once."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("nnpa_network.reporting", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["figure"] = _figure
    constants = {
        "standing_out": STANDING_OUT,
        "box_height": placement_picture.HEIGHT,
        "size": (WIDTH, HEIGHT, LEFT, TOP, BOTTOM),
        "strip_size": (_CELL, _STRIP_LETTER, LOWEST, HIGHEST, LEAST_NORMAL, MOST_NORMAL),
        "labels": ULP_LABELS,
        "not_numeric": NOT_NUMERIC,
    }
    return environment.get_template("accuracy.html", globals=constants)


def as_html(report: Report) -> str:
    """Return the page; names of the model are escaped."""
    runs = report.machines
    rows = {run.machine: node_rows(report, run) for run in runs}
    nodes = _nodes(runs, rows)
    losing = _losing(nodes)
    return page_template().render(
        report=report,
        measured=report.measured,
        verdict=verdict(report),
        idle=reasons_of_idle(report),
        all_machines=" and ".join(map(title_of, runs)),
        columns=_columns(report),
        nodes=nodes,
        losing=losing,
        chart=_chart(_lines(runs, rows), losing),
        pictures=_pictures(runs),
        distances=_shared((run, _shares(run)) for run in runs),
        confusions=_confusions(report),
        worst=sorted(
            _shared((run, entry) for run in runs for entry in _standing_out(run)),
            key=lambda entry: entry[1][0].key(),
        ),
        outputs=_shared(
            (run, (run.saturate, run.rows, name, output, run.violations))
            for run in report.measured.runs
            for name, output in run.outputs.items()
        ),
        violations=_shared((run, (run.saturate, run.first))
                           for run in report.measured.runs if run.first is not None),
        strips=_strips(report),
    )  # fmt: skip


def _figure(value: float, form: str = ".3g") -> str:
    return format(value, form) if math.isfinite(value) else "-"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"\N{HORIZONTAL ELLIPSIS}{text[1 - most :]}"


def _shared(contents: Iterable[tuple[Run, T]]) -> list[Shared[T]]:
    """Return each different content once, with the names of the machines that share it."""
    groups: list[tuple[list[str], T]] = []
    for run, content in contents:
        names = next((names for names, shown in groups if shown == content), None)
        if names is None:
            groups.append(([title_of(run)], content))
        else:
            names.append(title_of(run))
    return [(" and ".join(names), content) for names, content in groups]


def _columns(report: Report) -> list[Shared[Sequence[str]]]:
    """Return the columns beside each other: the figures' names, FP32, and machines."""
    titles, fp32, *figures = zip(*side_by_side(report), strict=True)
    shared = _shared(
        (run, (column[1:], run.changed, run.labels, run.outputs))
        for run, column in zip(report.whole, figures, strict=True)
    )
    references = [("FP32", fp32[1:])] if any(fp32[1:]) else []
    return [("", titles[1:]), *references, *((names, part[0]) for names, part in shared)]


def _key(row: NodeRow) -> Key:
    return row.node.index, row.name


def _nodes(runs: Sequence[Run], rows: Mapping[str, Sequence[NodeRow]]) -> list[Shared[NodeRow]]:
    """Return what was measured of nodes, in the order in which they run."""
    parts: dict[Key, list[tuple[Run, NodeRow]]] = {}
    for run in runs:
        for row in rows[run.machine]:
            shown = replace(row, node=_as_shown(row.node))
            parts.setdefault(_key(row), []).append((run, shown))
    return [entry for key in sorted(parts) for entry in _shared(parts[key])]


def _as_shown(node: NodeFacts) -> NodeFacts:
    """Return a node without its zDNN functions, which the page does not show."""
    return replace(node, functions=[])


def _losing(nodes: Iterable[Shared[NodeRow]]) -> list[Shared[NodeRow]]:
    """Return the nodes that add most error: elements that are no numbers, then relative error."""

    def loss(entry: Shared[NodeRow]) -> tuple[int, float]:
        alone = entry[1].value.alone
        return alone.bad, alone.l2r if math.isfinite(alone.l2r) else 0.0

    worst: dict[int, Shared[NodeRow]] = {}
    for entry in sorted(nodes, key=loss, reverse=True):
        if any(loss(entry)):
            worst.setdefault(entry[1].node.index, entry)
    return list(worst.values())[:LOSING]


def _lines(runs: Sequence[Run], rows: Mapping[str, Sequence[NodeRow]]) -> list[Shared[Line]]:
    return _shared(
        (run, [(_key(row), row.node.name, row.value.tally.l2r, row.value.alone.l2r)
               for row in rows[run.machine]])
        for run in runs
    )  # fmt: skip


def _axis(errors: Sequence[float]) -> tuple[int, int, bool]:
    """Return the powers of ten at the ends of an axis; it ends in "less" if the third is True."""
    powers = [math.log10(error) for error in errors if error > 0 and math.isfinite(error)]
    high = math.ceil(max(powers, default=0))
    low = min(max(math.floor(min(powers, default=0)), _LEAST_POWER, high - _DECADES), high - 1)
    has_less = any(error < 10.0**low for error in errors)
    return high, low - has_less, has_less


def _chart(
    lines: Sequence[Shared[Line]], losing: Sequence[Shared[NodeRow]]
) -> Mapping[str, object]:
    """Return the chart of errors along the network, on a logarithmic axis that fits them.

    Errors that are too small for the axis lie on its lowest line. `losing` nodes are numbered.
    """
    titles = {key: name for _, line in lines for key, name, *_ in line}
    step = (WIDTH - LEFT - 12) / max(len(titles), 1)
    places = {key: LEFT + step * (number + 0.5) for number, key in enumerate(sorted(titles))}
    high, low, has_less = _axis(
        [error for _, line in lines for *_, after, own in line for error in (after, own)]
    )
    ranks = {(_key(row), row.value.alone.l2r): n for n, (_, row) in enumerate(losing, 1)}

    def y(power: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - power) / (high - low)

    def points(errors: Iterable[tuple[Key, str, float]]) -> list[tuple[float, float, str, int]]:
        return [
            (places[key], y(max(math.log10(error), low) if error else low),
             f"{name}: {error:.3g}", ranks.get((key, error), 0))
            for key, name, error in errors if math.isfinite(error)
        ]  # fmt: skip

    return {
        "decades": [(y(power), "less" if has_less and power == low else f"1e{power}")
                    for power in range(high, low - 1, -1)],
        "names": [(places[key], _cut(titles[key], 16))
                  for key in sorted(titles)[:: -(-len(titles) // _MAX_NAMES) or 1]],
        "lines": [(names, points((key, name, after) for key, name, after, _ in line),
                   points((key, name, own) for key, name, _, own in line))
                  for names, line in lines],
    }  # fmt: skip


def _pictures(runs: Sequence[Run]) -> list[Shared[tuple[placement_picture.Picture, Counter[str]]]]:
    """Return a picture of each placement, and the number of nodes on each device."""
    shared = _shared((run, list(map(_as_shown, run.nodes))) for run in runs)
    return [
        (names, (placement_picture.draw(nodes), Counter(node.device for node in nodes)))
        for names, nodes in shared
    ]


def _shares(run: Run) -> list[float]:
    """Return the shares of all outputs' elements by distance in units of the last place."""
    histograms = [output.tally.histogram for output in run.outputs.values()]
    counts = [sum(column) for column in zip(*histograms, strict=True)]
    return [count / (sum(counts) or 1) for count in counts]


def _confusions(report: Report) -> list[Shared[tuple[str, list[list[int]]]]]:
    """Return what classes became, beside labels or, without them, beside FP32 by output."""
    if report.has_labels:
        parts = [(run, ("labels", run.labels.confusion)) for run in report.machines]
    else:
        parts = [(run, (f"FP32's {name}", output.agreement.confusion))
                 for run in report.machines for name, output in run.outputs.items()]  # fmt: skip
    return _shared(part for part in parts if 0 < len(part[1][1]) <= MAX_SHOWN_CLASSES)


def _standing_out(run: Run) -> list[tuple[WorstRow, str]]:
    """Return rows whose answer turned or whose error stands out, each with where it turned."""
    errors = (output.tally.l2r for output in run.outputs.values())
    limit = STANDING_OUT * max((error for error in errors if math.isfinite(error)), default=0.0)
    names = {node.index: node.name for node in run.nodes}
    turned = {turn.row: names.get(turn.node, "") for turn in run.turns}
    return [(row, turned.get(row.row, "")) for row in run.worst if row.changed or row.error > limit]


def _strips(report: Report) -> list[tuple[str, Exponents, list[tuple[float, float, str]]]]:
    """Return the exponents of values in the order of their nodes, with shades of their shares.

    Of too many values those are returned of which DLFLOAT16 has no number for most elements.
    """
    order = {name: node.index for run in report.machines for node in run.nodes
             for name in node.outputs}  # fmt: skip
    parts = {name: part for name, part in report.measured.exponents.items() if part.count}
    chosen = sorted(parts, key=lambda name: (-parts[name].outside, order.get(name, -1), name))
    shown = sorted(chosen[:_MAX_STRIPS], key=lambda name: (order.get(name, -1), name))
    return [(_cut(name, 32), parts[name], _shades(name, parts[name])) for name in shown]


def _shades(name: str, part: Exponents) -> list[tuple[float, float, str]]:
    most = max(part.histogram) or 1
    return [
        (place * _CELL, round(0.15 + 0.85 * math.sqrt(count / most), 3),
         f"{name}: 2^{LOWEST + place}: {count / part.count:.2%}")
        for place, count in enumerate(part.histogram) if count
    ]  # fmt: skip
