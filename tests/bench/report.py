# SPDX-License-Identifier: Apache-2.0
"""Rows of the benchmark: how they are registered, measured, judged and printed.

A row is a function that returns figures; `@row` registers it from any module of this package.
Figures are ratios: both sides run in turns, the order reversed every other repetition, and the
figure is the median of the ratios of the repetitions.
"""

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import nnpa_emulator.kernels
import numba
import numpy as np
import threadpoolctl
from rich.console import Console
from rich.table import Table

Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number; `floor` and `moonshot` are bounds that it should reach.

    `more` says that greater is better, as for a share of memcpy; a time is better when less.
    """

    label: str
    value: float
    floor: float | None = None
    moonshot: float | None = None
    more: bool = False
    note: str = ""

    def verdict(self, judged: bool) -> str:
        """Compare with the bounds; no bound or no judgement gives a dash."""
        if not judged or self.floor is None:
            return "-"
        sign = 1 if self.more else -1
        if self.moonshot is not None and sign * self.value >= sign * self.moonshot:
            return "moonshot"
        return "reached" if sign * self.value >= sign * self.floor else "missed"


@dataclass(frozen=True, slots=True)
class Row:
    """One goal of the benchmark and the function that measures its figures."""

    number: str
    goal: str
    measure: Callable[[], list[Figure]]


@dataclass(frozen=True, slots=True)
class Header:
    """What a row without is no result: the machine and the state it was measured in."""

    cpu: str
    cores: int
    blas: str
    versions: str
    numba_cache: str
    kept_awake: bool
    blas_restricted: str | None


ROWS: dict[str, Row] = {}
"""All registered rows by number."""


def row(
    number: str, goal: str
) -> Callable[[Callable[[], list[Figure]]], Callable[[], list[Figure]]]:
    """Register a function as the measurement of a row."""

    def register(measure: Callable[[], list[Figure]]) -> Callable[[], list[Figure]]:
        if number in ROWS:
            raise ValueError(f"row {number}: registered twice")
        ROWS[number] = Row(number, goal, measure)
        return measure

    return register


def ratio(work: Work, reference: Work, repetitions: int = 15) -> float:
    """Return the time of `work` over the time of `reference`: the median over repetitions."""
    work()
    reference()
    ratios: list[float] = []
    for repetition in range(repetitions):
        order = (work, reference) if repetition % 2 else (reference, work)
        times = {one: _timed(one) for one in order}
        ratios.append(times[work] / times[reference])
    return statistics.median(ratios)


def _timed(work: Work) -> float:
    """Return the seconds that one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def header(kept_awake: bool = False) -> Header:
    """Look at the machine, before any kernel is compiled; `kept_awake` is whether cores will be."""
    np.dot(np.ones((2, 2)), np.ones((2, 2)))
    pools = [
        f"{pool['internal_api']} {pool.get('architecture', '')} x{pool['num_threads']}"
        for pool in threadpoolctl.threadpool_info()
    ]
    cached = list((Path(nnpa_emulator.kernels.__file__).parent / "__pycache__").glob("*.nbi"))
    return Header(
        cpu=_cpu(),
        cores=os.cpu_count() or 1,
        blas=", ".join(pools),
        versions=f"Python {platform.python_version()}, numpy {np.__version__}, "
        f"numba {numba.__version__}",
        numba_cache=f"warm, {len(cached)} kernels" if cached else "cold",
        kept_awake=kept_awake,
        blas_restricted=os.environ.get("OPENBLAS_CORETYPE"),
    )


def _cpu() -> str:
    """Return the processor's name, from Linux if it says."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def measure(numbers: Iterable[str]) -> list[tuple[Row, list[Figure]]]:
    """Measure the rows with these numbers, in this order."""
    return [(ROWS[number], ROWS[number].measure()) for number in numbers]


def show(console: Console, top: Header, results: list[tuple[Row, list[Figure]]]) -> None:
    """Print the header and the table of figures."""
    judged = top.blas_restricted is None
    console.print(f"CPU {top.cpu}, {top.cores} cores; {top.versions}")
    idle = "kept from halting" if top.kept_awake else "idle as they like"
    console.print(f"BLAS {top.blas}; numba cache {top.numba_cache}; cores {idle}")
    if not judged:
        console.print(f"OPENBLAS_CORETYPE={top.blas_restricted}: figures without verdict")
    table = Table("row", "goal", "case", "figure", "floor", "moonshot", "verdict", "note")
    for one, figures in results:
        for index, figure in enumerate(figures):
            head = (one.number, one.goal) if index == 0 else ("", "")
            sign = ">= " if figure.more else "<= "
            bounds = [
                "-" if bound is None else f"{sign}{bound:g}"
                for bound in (figure.floor, figure.moonshot)
            ]
            verdict = figure.verdict(judged)
            table.add_row(*head, figure.label, f"{figure.value:.3g}", *bounds, verdict, figure.note)
        table.add_section()
    console.print(table)


def as_json(top: Header, results: list[tuple[Row, list[Figure]]]) -> dict[str, object]:
    """Return the report as plain data."""
    judged = top.blas_restricted is None
    rows = [
        {
            "row": one.number,
            "goal": one.goal,
            "figures": [asdict(figure) | {"verdict": figure.verdict(judged)} for figure in figures],
        }
        for one, figures in results
    ]
    return {"header": asdict(top), "rows": rows}
