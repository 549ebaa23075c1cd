# SPDX-License-Identifier: Apache-2.0
"""Rows of an older commit and of this tree in one run: `python -m tests.bench --against REV`.

Per row the sides take turns, each as a process of its own, after one round that does not count. The
older commit is cloned and installed once, in ~/.cache/nnpa-bench, with the same versions of its
dependencies. The cost of a case is its figure, or one over it where greater is better; the ratio is
the median cost of this tree over the older commit's. A row with a case above its limit is measured
three times, and the medians of the runs count.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from rich.console import Console
from rich.table import Table

from tests.bench.report import Figure, Report, Row

ROOT = Path(__file__).parents[2]
KERNEL_LIMIT, GRPC_LIMIT = 1.05, 1.15
RUNS = 3
EXTRAS = "bench,test"
Measure: TypeAlias = Callable[[str], "list[Figure] | None"]
"""Measures the figures of a row by its number; None where there is no such row."""


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a row: the median figures of both sides, old and new, in each run of the row."""

    row: str
    figure: Figure
    limit: float
    runs: tuple[tuple[float, float], ...]

    @property
    def old(self) -> float:
        """The median figure of the older commit."""
        return statistics.median(old for old, _ in self.runs)

    @property
    def new(self) -> float:
        """The median figure of this tree."""
        return statistics.median(new for _, new in self.runs)

    @property
    def ratio(self) -> float:
        """The cost of this tree over the older commit's."""
        more = self.figure.more
        return statistics.median(old / new if more else new / old for old, new in self.runs)

    @property
    def slower(self) -> bool:
        """Whether the ratio is above the limit."""
        return self.ratio > self.limit

    @property
    def floor_missed(self) -> bool:
        """Whether this tree misses a floor that the older commit reached."""
        verdicts = [replace(self.figure, value=value).verdict() for value in (self.old, self.new)]
        return verdicts[0] in ("reached", "moonshot") and verdicts[1] == "missed"


class Side:
    """A tree whose bench is run as a process."""

    def __init__(self, tree: Path, python: Path, flags: Sequence[str] = ()) -> None:
        self._tree, self._python, self._flags = tree, python, flags

    def measure(self, number: str) -> list[Figure] | None:
        """Measure a row; None if this tree has no row of that number."""
        with tempfile.TemporaryDirectory(prefix="nnpa-bench-") as folder:
            kept = Path(folder) / "report.json"
            command = [str(self._python), "-m", "tests.bench", "--rows", number]
            run = subprocess.run(
                [*command, *self._flags, "--json", str(kept)],
                cwd=self._tree,
                env=_environment(),
                capture_output=True,
                text=True,
                check=False,
            )
            if run.returncode == 2 and "not among" in run.stderr:
                return None
            if run.returncode:
                raise SystemExit(f"row {number} in {self._tree}:\n{run.stdout}{run.stderr}")
            (result,) = Report.from_json(kept.read_text(encoding="utf-8")).results
            return result.figures


def _environment() -> dict[str, str]:
    """Return the environment without variables that would name the other tree."""
    names = ("PYTHONPATH", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in names}


def checkout(revision: str) -> tuple[Path, Path]:
    """Clone and install a commit, once; return its tree and its interpreter."""
    commit = _git("rev-parse", "--verify", f"{revision}^{{commit}}")
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nnpa-bench"
    tree = caches / commit[:12]
    python = tree / ".venv/bin/python"
    ready = tree / ".venv/ready"
    if not ready.exists():
        _progress(f"installing {commit[:12]} in {tree}")
        if not tree.exists():
            _git("clone", "--quiet", "--no-checkout", str(ROOT), str(tree))
        _git("-C", str(tree), "checkout", "--quiet", "--detach", commit)
        _install(tree, python)
        ready.touch()
    return tree, python


def _git(*arguments: str) -> str:
    run = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"git {' '.join(arguments)}: {run.stderr.strip()}")
    return run.stdout.strip()


def _install(tree: Path, python: Path) -> None:
    """Install a tree with the versions of this environment."""
    venv.create(tree / ".venv", with_pip=True, clear=True)
    freeze = [sys.executable, "-m", "pip", "freeze", "--exclude-editable"]
    versions = subprocess.run(freeze, capture_output=True, text=True, check=True).stdout
    constraints = tree / ".venv/constraints.txt"
    constraints.write_text(versions, encoding="utf-8")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--constraint", str(constraints)]
    subprocess.run([*pip, "--editable", f".[{EXTRAS}]"], cwd=tree, check=True, env=_environment())


def compare(row: Row, old: Measure, new: Measure, rounds: int) -> list[Case]:
    """Measure a row on both sides in turns; again, if a case is above its limit."""
    limit = GRPC_LIMIT if row.grpc else KERNEL_LIMIT
    if old(row.number) is None or new(row.number) is None:  # the round that warms up
        return []
    cases = _run(row, old, new, rounds, limit)
    if any(case.slower for case in cases):
        for _ in range(RUNS - 1):
            repeated = _run(row, old, new, rounds, limit)
            pairs = zip(cases, repeated, strict=True)
            cases = [replace(case, runs=(*case.runs, *run.runs)) for case, run in pairs]
    return cases


def _run(row: Row, old: Measure, new: Measure, rounds: int, limit: float) -> list[Case]:
    """Run a row `rounds` times on each side; return the cases that both sides have."""
    sides: tuple[list[list[Figure]], list[list[Figure]]] = ([], [])
    for round_ in range(rounds):
        for side, measure, name in zip(sides, (old, new), ("old", "new"), strict=True):
            began = time.monotonic()
            side.append(measure(row.number) or [])
            seconds = time.monotonic() - began
            _progress(f"row {row.number}: round {round_ + 1} of {rounds}, {name}, {seconds:.0f} s")
    olds, news = _medians(sides[0]), _medians(sides[1])
    return [
        Case(row.number, figure, limit, ((olds[key].value, figure.value),))
        for key, figure in news.items()
        if key in olds and not math.isnan(olds[key].value / figure.value)
    ]


def _medians(runs: list[list[Figure]]) -> dict[tuple[str, int], Figure]:
    """Return the median figure of each case, by label and, where labels repeat, by place."""
    values: dict[tuple[str, int], list[Figure]] = {}
    for figures in runs:
        seen: list[str] = []
        for figure in figures:
            values.setdefault((figure.label, seen.count(figure.label)), []).append(figure)
            seen.append(figure.label)
    return {
        key: replace(figures[0], value=statistics.median(figure.value for figure in figures))
        for key, figures in values.items()
    }


def comparison(rows: Sequence[Row], revision: str, rounds: int, flags: Sequence[str]) -> list[Case]:
    """Compare rows of this tree with the same rows of a commit."""
    old, new = Side(*checkout(revision), flags), Side(ROOT, Path(sys.executable), flags)
    cases: list[Case] = []
    began = time.monotonic()
    for index, row in enumerate(rows):
        cases += compare(row, old.measure, new.measure, rounds)
        minutes = (time.monotonic() - began) / 60
        left = minutes / (index + 1) * (len(rows) - index - 1)
        _progress(f"row {row.number} is done, {index + 1} of {len(rows)}; {left:.0f} minutes left")
    return cases


def show(console: Console, cases: Sequence[Case]) -> None:
    """Print the table, then the slower cases and the newly missed floors."""
    table = Table("row", "case", "old", "new", "new / old", "limit", "runs", "verdict")
    for case in cases:
        verdict = "slower" if case.slower else "as fast"
        figures = (f"{case.old:.3g}", f"{case.new:.3g}", f"{case.ratio:.3f}", f"{case.limit:g}")
        table.add_row(case.row, case.figure.label, *figures, str(len(case.runs)), verdict)
    console.print(table)
    for line in _conclusions(cases):
        console.print(line)


def _conclusions(cases: Sequence[Case]) -> Iterator[str]:
    slower = [f"{case.row} ({case.figure.label})" for case in cases if case.slower]
    missed = [f"{case.row} ({case.figure.label})" for case in cases if case.floor_missed]
    yield f"Above their limits: {', '.join(slower) or 'none'}."
    yield f"Floors newly missed: {', '.join(missed) or 'none'}."


def to_json(revision: str, cases: Sequence[Case]) -> str:
    """Return the comparison as JSON."""
    rows = [
        {
            "row": case.row,
            "case": case.figure.label,
            "old": case.old,
            "new": case.new,
            "ratio": case.ratio,
            "limit": case.limit,
            "runs": case.runs,
            "slower": case.slower,
            "floor_missed": case.floor_missed,
        }
        for case in cases
    ]
    against = _git("rev-parse", f"{revision}^{{commit}}")
    return json.dumps({"against": against, "cases": rows}, indent=1) + "\n"


def _progress(line: str) -> None:
    """Print a line on progress on standard error."""
    print(line, file=sys.stderr, flush=True)
