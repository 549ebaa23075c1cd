# SPDX-License-Identifier: Apache-2.0
"""Rows of the benchmark: registration, measurement, comparison with bounds, and the table.

A row is a function that returns figures; `@row` registers it from any module of this package.
Figures are ratios: both sides run in turns, the order reversed every other repetition, and the
figure is the median of the ratios of the repetitions. A report is a header and results of rows; it
is kept as JSON, and the table is printed from it.
"""

import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias, TypedDict

import nnpa_emulator.kernels
import numba
import numpy as np
import threadpoolctl
from rich.console import Console
from rich.table import Table

from tests.bench.processor import restriction

Work = Callable[[], object]
Verdict: TypeAlias = Literal["moonshot", "reached", "missed", "-"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number; `floor` and `moonshot` are bounds that it should reach.

    With `more`, greater is better, as for a share of memcpy; a time is better when less.
    """

    label: str
    value: float
    floor: float | None = None
    moonshot: float | None = None
    more: bool = False
    note: str = ""

    def verdict(self, judged: bool = True) -> Verdict:
        """Compare with the bounds; no bound or no judgement gives a dash."""
        if not judged or self.floor is None:
            return "-"
        sign = 1 if self.more else -1
        if self.moonshot is not None and sign * self.value >= sign * self.moonshot:
            return "moonshot"
        return "reached" if sign * self.value >= sign * self.floor else "missed"


@dataclass(frozen=True, slots=True)
class Row:
    """One goal of the benchmark and the function that measures its figures.

    With `grpc`, calls travel, which makes figures noisier than figures of kernels.
    """

    number: str
    goal: str
    measure: Callable[[], list[Figure]]
    grpc: bool


@dataclass(frozen=True, slots=True)
class Header:
    """The machine and its state during the measurement: no row is a result without them."""

    cpu: str
    cores: int
    blas: str
    versions: str
    numba_cache: str
    kept_awake: bool
    blas_restricted: str | None


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of one row."""

    row: str
    goal: str
    figures: list[Figure]


class FigureJson(TypedDict):
    """A figure as it is kept; no value means that it could not be measured here."""

    label: str
    value: float | None
    floor: float | None
    moonshot: float | None
    more: bool
    note: str
    verdict: Verdict


class ResultJson(TypedDict):
    """A row's figures as they are kept."""

    row: str
    goal: str
    figures: list[FigureJson]


class HeaderJson(TypedDict):
    """A header as it is kept."""

    cpu: str
    cores: int
    blas: str
    versions: str
    numba_cache: str
    kept_awake: bool
    blas_restricted: str | None


class ReportJson(TypedDict):
    """A report as it is kept."""

    header: HeaderJson
    rows: list[ResultJson]


ROWS: dict[str, Row] = {}
"""All registered rows by number."""


def row(
    number: str, goal: str, *, grpc: bool = False
) -> Callable[[Callable[[], list[Figure]]], Callable[[], list[Figure]]]:
    """Register a function as the measurement of a row."""

    def register(measure: Callable[[], list[Figure]]) -> Callable[[], list[Figure]]:
        if number in ROWS:
            raise ValueError(f"row {number}: registered twice")
        ROWS[number] = Row(number, goal, measure, grpc)
        return measure

    return register


def ratio(work: Work, reference: Work, repetitions: int = 15) -> float:
    """Return the time of `work` over the time of `reference`: the median over repetitions."""
    return statistics.median(ratios(work, reference, repetitions))


def ratios(work: Work, reference: Work, repetitions: int) -> list[float]:
    """Return the time of `work` over the time of `reference`, by repetition."""
    work()
    reference()
    quotients: list[float] = []
    for repetition in range(repetitions):
        order = (work, reference) if repetition % 2 else (reference, work)
        times = {side: seconds_of(side) for side in order}
        quotients.append(times[work] / times[reference])
    return quotients


def seconds_of(work: Work) -> float:
    """Return the seconds that one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def look_at_machine(kept_awake: bool = False) -> Header:
    """Describe the machine before a kernel is compiled; `kept_awake`: cores will never halt."""
    np.dot(np.ones((2, 2)), np.ones((2, 2)))
    pools = [
        f"{pool['internal_api']} {pool.get('architecture', '')} x{pool['num_threads']}"
        for pool in threadpoolctl.threadpool_info()
    ]
    restricted = restriction()
    cached = list((Path(nnpa_emulator.kernels.__file__).parent / "__pycache__").glob("*.nbi"))
    return Header(
        cpu=_cpu() + (f" as {restricted}" if restricted else ""),
        cores=os.cpu_count() or 1,
        blas=", ".join(pools),
        versions=f"Python {platform.python_version()}, numpy {np.__version__}, "
        f"numba {numba.__version__}",
        numba_cache=f"warm, {len(cached)} kernels" if cached else "cold",
        kept_awake=kept_awake,
        blas_restricted=None if restricted else os.environ.get("OPENBLAS_CORETYPE"),
    )


def _cpu() -> str:
    """Return the processor's name, from Linux if it has one."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def measure(numbers: Iterable[str]) -> list[Result]:
    """Measure the rows with these numbers, in this order."""
    rows = [ROWS[number] for number in numbers]
    return [Result(row.number, row.goal, row.measure()) for row in rows]


@dataclass(frozen=True, slots=True)
class Report:
    """A run of the benchmark."""

    header: Header
    results: list[Result]

    @property
    def judged(self) -> bool:
        """Whether figures count: they do not if BLAS has to use an older processor's code."""
        return self.header.blas_restricted is None

    def show(self, console: Console) -> None:
        """Print the header and the table of figures."""
        header = self.header
        console.print(f"CPU {header.cpu}, {header.cores} cores; {header.versions}")
        idle = "kept from halting" if header.kept_awake else "idle as they like"
        console.print(f"BLAS {header.blas}; numba cache {header.numba_cache}; cores {idle}")
        if not self.judged:
            console.print(f"OPENBLAS_CORETYPE={header.blas_restricted}: figures without verdict")
        table = Table("row", "goal", "case", "figure", "floor", "moonshot", "verdict", "note")
        for result in self.results:
            for index, figure in enumerate(result.figures):
                head = (result.row, result.goal) if index == 0 else ("", "")
                table.add_row(*head, *_cells(figure, self.judged))
            table.add_section()
        console.print(table)

    def to_json(self) -> str:
        """Return the report as JSON."""
        rows: list[ResultJson] = [
            {
                "row": result.row,
                "goal": result.goal,
                "figures": [_figure_json(figure, self.judged) for figure in result.figures],
            }
            for result in self.results
        ]
        report = {"header": asdict(self.header), "rows": rows}
        return json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Report":
        """Read a report that `to_json` wrote."""
        report: ReportJson = json.loads(text)
        results = [
            Result(row["row"], row["goal"], [_figure(figure) for figure in row["figures"]])
            for row in report["rows"]
        ]
        return cls(Header(**report["header"]), results)


def _cells(figure: Figure, judged: bool) -> list[str]:
    sign = ">= " if figure.more else "<= "
    bounds = [
        "-" if bound is None else f"{sign}{bound:g}" for bound in (figure.floor, figure.moonshot)
    ]
    value = f"{figure.value:.3g}"
    return [figure.label, value, *bounds, figure.verdict(judged), figure.note]


def _figure_json(figure: Figure, judged: bool) -> FigureJson:
    value = None if math.isnan(figure.value) else figure.value
    return {
        "label": figure.label,
        "value": value,
        "floor": figure.floor,
        "moonshot": figure.moonshot,
        "more": figure.more,
        "note": figure.note,
        "verdict": figure.verdict(judged),
    }


def _figure(kept: FigureJson) -> Figure:
    value = math.nan if kept["value"] is None else kept["value"]
    bounds = kept["floor"], kept["moonshot"]
    return Figure(kept["label"], value, *bounds, more=kept["more"], note=kept["note"])
