# SPDX-License-Identifier: Apache-2.0
"""An accuracy report as one HTML page: verdict, placement, charts, tables; loads nothing."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

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
from nnpa_network.reporting.measurements import Run
from nnpa_network.reporting.metrics import (
    HIGHEST,
    LEAST_NORMAL,
    LOWEST,
    MOST_NORMAL,
    ULP_LABELS,
    Exponents,
)
from nnpa_network.reporting.placement_picture import Picture

# Size of a chart in pixels, and the room left for its labels.
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 1000, 300, 52, 12, 110
_MIN_ERROR = 1e-8  # below FP32's own there is nothing to see
_DECADES = 9
_MAX_NAMES, _MAX_STRIPS = 48, 64
MAX_SHOWN_CLASSES = 16
_CELL, _STRIP_LETTER = 8, 7  # pixels of a histogram of exponents: a cell, and a letter before it
EXPLAINED: Mapping[str, str] = {
    "enters": "relative error (L2R) of the values that the node takes, as the whole run gives them",
    "adds alone": "relative error of its values when it takes those of FP32: what it adds itself",
    "after": "relative error of its values in the whole run",
    "max": "largest absolute difference from FP32",
    "mean": "mean absolute difference from FP32",
    "COS": "cosine of the angle between both; 1 is the same direction",
    "beyond": "share of FP32's values that DLFLOAT16 has no number for: above 8.57e9, or so small "
    "that they become 0",
    "0 to 64": "how many values are at most so many units of DLFLOAT16's last place off",
}
OUTPUT_COLUMNS: Mapping[str, str] = {
    "ACC": "share of answers that are those of FP32 (the largest of the last axis, an integer "
    "itself, or whether a number is above one half)",
    "RMSE, MAE": "root of the mean square error, mean absolute error",
    "L2R": "norm of the error by the norm of FP32's values: the relative error",
    "MEAN, STD": "mean and standard deviation of the error",
    "NSE": "Nash-Sutcliffe efficiency; 1 is perfect",
    "COS": "cosine of the angle between both",
    "violations": "calls of the accelerator with a value that is no number of DLFLOAT16",
}


@dataclass(frozen=True, slots=True)
class Point:
    """One node in a chart: its place and its text."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart; `style` names its colour and width."""

    name: str
    style: str
    points: tuple[Point, ...]

    @property
    def path(self) -> str:
        """The line's vertices as SVG writes them."""
        return " ".join(f"{point.x:.1f},{point.y:.1f}" for point in self.points)


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a histogram."""

    x: float
    y: float
    width: float
    height: float
    style: str
    text: str


@dataclass(frozen=True, slots=True)
class Strip:
    """The exponents of a value: a shade for each, by its share."""

    name: str
    beyond: float
    cells: tuple[tuple[float, float, str], ...]


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
    return environment.get_template("accuracy.html")


def as_html(report: Report) -> str:
    """Return the page; names of the model are escaped."""
    runs = report.machines
    rows = {run.machine: node_rows(report, run) for run in runs}
    series, names = _chart(runs, rows)
    return page_template().render(
        report=report,
        measured=report.measured,
        verdict=verdict(report),
        idle=reasons_of_idle(report),
        table=side_by_side(report),
        pictures=_pictures(runs),
        box_height=placement_picture.HEIGHT,
        runs=report.measured.runs,
        machines=runs,
        title_of=title_of,
        node_names={run.machine: {n.index: n.name for n in run.nodes} for run in runs},
        rows=rows,
        series=series,
        names=names,
        decades=_decades(),
        bars=_bars(runs),
        ticks=_ticks(),
        size=(WIDTH, HEIGHT, LEFT, TOP, BOTTOM),
        strips=_strips(report),
        strip_size=(_CELL, _STRIP_LETTER, LOWEST, HIGHEST, LEAST_NORMAL, MOST_NORMAL),
        labels=ULP_LABELS,
        explained=EXPLAINED,
        output_columns=OUTPUT_COLUMNS,
        figure=_figure,
        percent=_percent,
        fixed=_fixed,
        max_classes=MAX_SHOWN_CLASSES,
        not_numeric=NOT_NUMERIC,
    )


def _figure(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "-"


def _percent(value: float) -> str:
    return f"{value:.2%}" if math.isfinite(value) else "-"


def _fixed(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"


def _pictures(runs: Sequence[Run]) -> list[tuple[str, Picture, dict[str, int]]]:
    """Return a picture per placement, named by the machines that have it."""
    groups: list[tuple[list[str], Run]] = []
    for run in runs:
        for names, drawn in groups:
            if [n.device for n in drawn.nodes] == [n.device for n in run.nodes]:
                names.append(title_of(run))
                break
        else:
            groups.append(([title_of(run)], run))
    pictures: list[tuple[str, Picture, dict[str, int]]] = []
    for names, run in groups:
        counts = {device: sum(node.device == device for node in run.nodes)
                  for device in ("accelerator", "host", "folded")}  # fmt: skip
        pictures.append((" and ".join(names), placement_picture.draw(run.nodes), counts))
    return pictures


def _y(error: float) -> float:
    """Return the place of an error on a logarithmic axis from 1 down."""
    share = math.log10(min(max(error, _MIN_ERROR), 10.0) / 10.0) / -_DECADES
    return TOP + share * (HEIGHT - TOP - BOTTOM)


def _decades() -> list[tuple[float, str]]:
    return [(_y(10.0**-power), f"1e-{power}" if power else "1") for power in range(0, 9, 2)]


def _chart(
    runs: Sequence[Run], rows: Mapping[str, Sequence[NodeRow]]
) -> tuple[list[Series], list[tuple[float, str]]]:
    """Return lines of errors after nodes and alone, and the nodes' names with their places.

    The first machine's line is wide, the second's narrow: both show where they are equal.
    """
    keys = list(dict.fromkeys((row.node.index, row.name) for each in rows.values() for row in each))
    keys.sort()
    step = (WIDTH - LEFT - 20) / max(len(keys), 1)
    places = {key: LEFT + step * (number + 0.5) for number, key in enumerate(keys)}
    series: list[Series] = []
    for number, run in enumerate(runs):
        for kind in ("after", "alone"):
            points = tuple(
                Point(
                    places[row.node.index, row.name], _y(error), _point_text(run, row, kind, error)
                )
                for row in rows[run.machine]
                for error in [row.value.tally.l2r if kind == "after" else row.value.alone.l2r]
                if math.isfinite(error)
            )
            name = f"{title_of(run)}, {'whole run' if kind == 'after' else 'node alone'}"
            series.append(Series(name, f"{kind} m{number}", points))
    titles = {(row.node.index, row.name): row.node.name for each in rows.values() for row in each}
    every = max(1, -(-len(keys) // _MAX_NAMES))
    names = [(places[key], _cut(titles[key], 18)) for key in keys[::every]]
    return series, names


def _point_text(run: Run, row: NodeRow, kind: str, error: float) -> str:
    what = "whole run" if kind == "after" else "alone"
    return f"{row.node.name} ({row.node.op_type}) on {title_of(run)}, {what}: {error:.3g}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"\N{HORIZONTAL ELLIPSIS}{text[1 - most :]}"


def _bars(runs: Sequence[Run]) -> list[Bar]:
    """Return a histogram of ulps of all outputs, the machines side by side."""
    bars: list[Bar] = []
    slot = (WIDTH - LEFT) / len(ULP_LABELS)
    width = slot * 0.8 / max(len(runs), 1)
    shares = [_shares(run) for run in runs]
    room = HEIGHT - TOP - BOTTOM
    for number, run in enumerate(runs):
        for place, label in enumerate(ULP_LABELS):
            height = shares[number][place] * room
            x = LEFT + slot * place + slot * 0.1 + width * number
            text = f"{title_of(run)}: {shares[number][place]:.2%} at {label}"
            bars.append(Bar(x, HEIGHT - BOTTOM - height, width, height, f"m{number}", text))
    return bars


def _shares(run: Run) -> list[float]:
    counts = [
        sum(output.tally.histogram[place] for output in run.outputs.values())
        for place in range(len(ULP_LABELS))
    ]
    total = sum(counts) or 1
    return [count / total for count in counts]


def _ticks() -> list[tuple[float, str]]:
    slot = (WIDTH - LEFT) / len(ULP_LABELS)
    return [(LEFT + slot * (place + 0.5), label) for place, label in enumerate(ULP_LABELS)]


def _strips(report: Report) -> list[Strip]:
    """Return the exponents of values in the order of their nodes.

    If there are too many values, only those with the largest share beyond are shown.
    """
    order: dict[str, int] = {}
    for run in report.machines:
        for node in run.nodes:
            order.update((name, node.index) for name in node.outputs)
    parts = sorted(report.measured.exponents.items(), key=lambda p: (order.get(p[0], -1), p[0]))
    if len(parts) > _MAX_STRIPS:
        chosen = sorted(parts, key=lambda part: -_beyond(part[1]))[:_MAX_STRIPS]
        parts = [part for part in parts if part in chosen]
    return [_strip(name, part) for name, part in parts]


def _beyond(part: Exponents) -> float:
    return (part.beyond + part.lost) / part.count if part.count else 0.0


def _strip(name: str, part: Exponents) -> Strip:
    most = max(part.histogram) or 1
    cells = tuple(
        (place * _CELL, round(0.15 + 0.85 * math.sqrt(count / most), 3),
         f"{name}: 2^{LOWEST + place}: {count / part.count:.2%}")
        for place, count in enumerate(part.histogram) if count
    )  # fmt: skip
    return Strip(_cut(name, 32), _beyond(part), cells)
