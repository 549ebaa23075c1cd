# SPDX-License-Identifier: Apache-2.0
"""An accuracy report as one HTML page: tables and plots, nothing loaded from outside."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import jinja2

from nnpa_network.reporting.accuracy import AccuracyReport, MachineAccuracy, OutputAccuracy
from nnpa_network.reporting.metrics import ULP_LABELS

# Size of a plot in pixels, and the room left for its labels.
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 920, 260, 60, 12, 30
COLOURS = {"telum1": "#0f62fe", "telum2": "#da1e28"}
_OTHER = "#6f6f6f"
_MIN_ERROR = 1e-7  # FP32 itself: below there is nothing to see
MAX_SHOWN_CLASSES = 16


@dataclass(frozen=True, slots=True)
class Point:
    """One node in a plot: where, and what to say of it."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a plot."""

    name: str
    colour: str
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
    colour: str
    text: str


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


def as_html(report: AccuracyReport) -> str:
    """Return the page; names of the model are escaped."""
    shown = [run for run in report.runs if run.saturate]
    return page_template().render(
        report=report,
        figure=_figure,
        percent=_percent,
        fixed=_fixed,
        shown=shown,
        labels=ULP_LABELS,
        series=[_series(run, _positions(shown)) for run in shown],
        decades=_decades(),
        bars=_bars(shown),
        tallest=_tallest(shown),
        ticks=_ticks(),
        size=(WIDTH, HEIGHT, LEFT, TOP, BOTTOM),
        colours={run.machine: COLOURS.get(run.machine, _OTHER) for run in shown},
        confusions=[(run, output) for run in shown for output in run.outputs if _is_shown(output)],
    )


def _figure(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "-"


def _percent(value: float) -> str:
    return f"{value:.2%}" if math.isfinite(value) else "-"


def _fixed(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"


def _is_shown(output: OutputAccuracy) -> bool:
    confusion = output.agreement.confusion
    return confusion is not None and len(confusion) <= MAX_SHOWN_CLASSES


def _height_of(error: float) -> float:
    """Return where an error lies, from 1e-7 at the bottom to 1 on top, logarithmically."""
    share = 1 - math.log10(min(max(error, _MIN_ERROR), 1.0)) / math.log10(_MIN_ERROR)
    return TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)


def _decades() -> list[tuple[float, str]]:
    return [(_height_of(10.0**power), f"1e{power}") for power in range(-7, 1)]


def _positions(runs: Sequence[MachineAccuracy]) -> dict[str, int]:
    """Return the place of every value along the network, the same on all machines."""
    values = sorted({(node.index, node.value) for run in runs for node in run.nodes})
    return {value: at for at, (_, value) in enumerate(values)}


def _series(run: MachineAccuracy, positions: Mapping[str, int]) -> Series:
    """Return the relative error (L2R) of every node; what is not numeric lies on top."""
    step = (WIDTH - LEFT - 10) / max(len(positions), 1)
    points: list[Point] = []
    for node in run.nodes:
        index = positions[node.value]
        error = node.tally.l2r if math.isfinite(node.tally.l2r) else 1.0
        text = f"{run.machine} {node.node} ({node.op_type}, {node.device}): L2R {_figure(error)}"
        points.append(Point(LEFT + (index + 0.5) * step, _height_of(error), text))
    return Series(run.machine, COLOURS.get(run.machine, _OTHER), tuple(points))


def _ticks() -> list[tuple[float, str]]:
    step = (WIDTH - LEFT - 10) / len(ULP_LABELS)
    return [(LEFT + (at + 0.5) * step, label) for at, label in enumerate(ULP_LABELS)]


def _counts(run: MachineAccuracy) -> list[int]:
    """Return the ulp histogram of all outputs together."""
    return [
        sum(output.tally.histogram[at] for output in run.outputs) for at in range(len(ULP_LABELS))
    ]


def _tallest(runs: Sequence[MachineAccuracy]) -> float:
    """Return the largest share of a bucket, which fills the plot."""
    shares = [count / max(sum(_counts(run)), 1) for run in runs for count in _counts(run)]
    return max(shares, default=0.0) or 1.0


def _bars(runs: Sequence[MachineAccuracy]) -> list[Bar]:
    """Return one bar per machine and bucket of the ulp histogram."""
    step = (WIDTH - LEFT - 10) / len(ULP_LABELS)
    tallest = _tallest(runs)
    width = 0.8 * step / max(len(runs), 1)
    bars: list[Bar] = []
    for place, run in enumerate(runs):
        counts = _counts(run)
        total = max(sum(counts), 1)
        for at, count in enumerate(counts):
            height = count / total / tallest * (HEIGHT - TOP - BOTTOM)
            x = LEFT + at * step + 0.1 * step + place * width
            text = f"{run.machine}: {count} of {total} at {ULP_LABELS[at]} ulp"
            colour = COLOURS.get(run.machine, _OTHER)
            bars.append(Bar(x, HEIGHT - BOTTOM - height, width, height, colour, text))
    return bars
