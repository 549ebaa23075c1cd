# SPDX-License-Identifier: Apache-2.0
"""The ledger: published times of the machine beside estimates, and whether they lie inside."""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.resources import files
from statistics import median
from typing import Any

from nnpa_tools.estimates.coefficients import Coefficients, shipped
from nnpa_tools.estimates.estimator import estimate
from nnpa_tools.estimates.graphs import GRAPHS, elementwise, product, transform
from nnpa_tools.estimates.intervals import Interval
from nnpa_tools.estimates.work import Call, Dims, parts

_FILE = "published.toml"
# The smallest shape of the grid that was measured, and a large one.
_SHAPES: tuple[Dims, ...] = ((1, 1, 32, 64), (32, 1, 64, 64))
_LARGE_REDUCTION: Dims = (256, 1, 32, 64)  # of a grid of its own, on which a slope shows
_PRODUCTS = ((1, 32, 64, 64), (4, 64, 128, 128))  # stacks, rows, inner, columns
_NS_PER_US = 1000.0


@dataclass(frozen=True, slots=True)
class Point:
    """A published time of a workload on a machine, at a batch and sequence length.

    A size that was not published is None. `calls` generates the calls that ran, None if they are
    not known. `untested` says why a point is shown but not tested, "" for a tested one.
    """

    what: str
    machine: str
    batch: int | None
    length: int | None
    low_ns: float
    high_ns: float
    calls: Callable[[], Iterator[Call]] | None
    source: str
    untested: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A point beside its estimate; `ratio` is published over predicted, middle over middle."""

    point: Point
    predicted: Interval | None
    ratio: float | None

    @property
    def is_inside(self) -> bool:
        """Whether the published time lies in the interval."""
        return self.predicted is not None and self.predicted.contains(
            self.point.low_ns, self.point.high_ns
        )

    @property
    def verdict(self) -> str:
        """Whether it is inside, outside, or not tested."""
        if self.point.untested:
            return "not tested"
        return "inside" if self.is_inside else "outside"


def ledger(coefficients: Coefficients | None = None) -> tuple[Entry, ...]:
    """Return every published point beside its estimate."""
    of = coefficients or shipped()
    return tuple(_entry(point, of) for point in published_points())


def is_kept(entries: tuple[Entry, ...]) -> bool:
    """Return whether every tested point lies inside its interval."""
    return all(entry.is_inside for entry in entries if not entry.point.untested)


def median_widths(entries: tuple[Entry, ...]) -> Mapping[str, float]:
    """Return the median of high over low by grade."""
    widths: dict[str, list[float]] = {}
    for entry in entries:
        if entry.predicted is not None:
            widths.setdefault(entry.predicted.grade, []).append(entry.predicted.width)
    return {grade: median(widths[grade]) for grade in sorted(widths)}


def unnoticed_rows(coefficients: Coefficients) -> tuple[str, ...]:
    """Return the measured rows, as "machine function", whose slope no tested point checks.

    A slope four times as steep would leave every tested point inside.
    """
    return tuple(
        f"{machine} {name}"
        for machine, rows in coefficients.rows.items()
        for name, row in rows.items()
        if row.r2 is not None and is_kept(ledger(steeper(coefficients, machine, name, 4.0)))
    )


def steeper(coefficients: Coefficients, machine: str, function: str, times: float) -> Coefficients:
    """Return coefficients with the slopes of a row and its derived rows times a number."""
    rows = {
        name: replace(row, slope_ps=row.slope_ps * times) if function in (name, row.like) else row
        for name, row in coefficients.rows[machine].items()
    }
    return replace(coefficients, rows={**coefficients.rows, machine: rows})


def _entry(point: Point, coefficients: Coefficients) -> Entry:
    if point.calls is None:
        return Entry(point, None, None)
    predicted = estimate(point.calls(), point.machine, coefficients).total
    return Entry(
        point, predicted, Interval(point.low_ns, point.high_ns).middle_ns / predicted.middle_ns
    )


@cache
def published_points() -> tuple[Point, ...]:
    """Return the points of `published.toml`, and two for each row that was measured again."""
    text = files("nnpa_tools.estimates").joinpath(_FILE).read_text(encoding="utf-8")
    document = tomllib.loads(text)
    second_run = document["again"]
    return (
        *map(_point, document["points"]),
        *(
            point
            for name, (call_us, slope_ps) in second_run["rows"].items()
            for point in _measured_again(second_run, name, call_us, slope_ps)
        ),
    )


def _point(table: Mapping[str, Any]) -> Point:
    low, high = table["us"]
    calls = None
    if "graph" in table:
        calls = partial(GRAPHS[table["graph"]], table["batch"], table["length"])
    return Point(
        what=table["what"],
        machine=table["machine"],
        batch=table.get("batch"),
        length=table.get("length"),
        low_ns=low * _NS_PER_US,
        high_ns=high * _NS_PER_US,
        calls=calls,
        source=table["source"],
        untested=table.get("untested", ""),
    )


def _measured_again(
    second_run: Mapping[str, Any], name: str, call_us: float, slope_ps: float
) -> Iterator[Point]:
    for call, sizes in _calls_measured(name):
        (part,) = parts(call)
        time_ns = call_us * _NS_PER_US + slope_ps * part.padded / 1000.0
        what = f"{name} {'x'.join(map(str, sizes))}, measured again"
        yield Point(
            what, second_run["machine"], sizes[0], None, time_ns, time_ns, partial(iter, (call,)),
            second_run["source"],
        )  # fmt: skip


def _calls_measured(name: str) -> Iterator[tuple[Call, tuple[int, ...]]]:
    if name.startswith("matmul"):
        for sizes in _PRODUCTS:
            yield product(name, *sizes), sizes
        return
    for shape in (_SHAPES[0], _LARGE_REDUCTION) if name == "meanreduce2d" else _SHAPES:
        is_transform = name.startswith("transform_")
        call = transform(name, shape, compiled=False) if is_transform else elementwise(name, shape)
        yield call, (shape[0], shape[2], shape[3])
