# SPDX-License-Identifier: Apache-2.0
"""The bench's reports are data: kept as JSON, read back, printed as a table."""

import math
from dataclasses import replace
from io import StringIO

from rich.console import Console

from tests.bench.__main__ import LAST
from tests.bench.report import Figure, Header, Report, Result

HEADER = Header("a cpu", 2, "openblas x1", "Python 3", "warm", True, None)


def test_the_report_of_the_last_run_is_read_and_printed() -> None:
    """The file that is kept is what `to_json` writes, and its table names every row."""
    text = LAST.read_text(encoding="utf-8")
    report = Report.from_json(text)
    assert report.to_json() == text
    printed = StringIO()
    report.show(Console(file=printed, width=160))
    table = printed.getvalue()
    assert all(f"│ {result.row} " in table for result in report.results)


def test_a_figure_without_value_survives() -> None:
    """What could not be measured is null in JSON, and no number afterwards."""
    figure = Figure("peer", math.nan, 1.0, note="not here")
    report = Report(HEADER, [Result("1", "goal", [figure])])
    (result,) = Report.from_json(report.to_json()).results
    assert math.isnan(result.figures[0].value)
    assert replace(result.figures[0], value=0.0) == replace(figure, value=0.0)


def test_verdicts() -> None:
    """A share should be great, a time small; restricted BLAS is not judged."""
    share = Figure("share", 0.5, 0.4, 0.9, more=True)
    time = Figure("time", 2.0, 1.5, 1.2)
    assert [share.verdict(), time.verdict()] == ["reached", "missed"]
    assert replace(share, value=0.9).verdict() == "moonshot"
    assert replace(time, value=1.2).verdict() == "moonshot"
    assert time.verdict(judged=False) == "-"
