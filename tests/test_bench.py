# SPDX-License-Identifier: Apache-2.0
"""The bench's reports are data; an older commit's rows are compared with this tree's."""

import math
import re
from dataclasses import replace
from io import StringIO

from nnpa_client._server.shortcuts import SHORTCUTS as CLIENT_SHORTCUTS
from nnpa_server.config import SHORTCUTS as SERVER_SHORTCUTS
from rich.console import Console

from tests.bench.__main__ import LAST
from tests.bench.against import GRPC_LIMIT, KERNEL_LIMIT, Measure, compare, show
from tests.bench.report import Figure, Header, Report, Result, Row
from tests.bench.scenarios import SCENARIOS
from tests.bench.shortcuts import ROOT, SHORTCUTS, Price, from_json, lower_bound, to_json

HEADER = Header("a cpu", 2, "openblas x1", "Python 3", "warm", True, None)


def test_the_report_of_the_last_run_is_read_and_printed() -> None:
    """The committed file equals the output of `to_json`, and its table names every row."""
    text = LAST.read_text(encoding="utf-8")
    report = Report.from_json(text)
    assert report.to_json() == text
    printed = StringIO()
    report.show(Console(file=printed, width=160))
    table = printed.getvalue()
    assert all(f"│ {result.row} " in table for result in report.results)


def test_a_figure_without_value_survives() -> None:
    """A figure without a value is null in JSON, and NaN when it is read back."""
    figure = Figure("peer", math.nan, 1.0, note="not here")
    report = Report(HEADER, [Result("1", "goal", [figure])])
    (result,) = Report.from_json(report.to_json()).results
    assert math.isnan(result.figures[0].value)
    assert replace(result.figures[0], value=0.0) == replace(figure, value=0.0)


def test_shares_are_great_and_times_small() -> None:
    """A share should be great, a time small; restricted BLAS is not judged."""
    share = Figure("share", 0.5, 0.4, 0.9, more=True)
    time = Figure("time", 2.0, 1.5, 1.2)
    assert [share.verdict(), time.verdict()] == ["reached", "missed"]
    assert replace(share, value=0.9).verdict() == "moonshot"
    assert replace(time, value=1.2).verdict() == "moonshot"
    assert time.verdict(judged=False) == "-"


def _row(grpc: bool) -> Row:
    return Row("7", "goal", list, grpc)


def _measure(*values: float, more: bool = False) -> Measure:
    """Return a function that measures these values in turn, the first when it warms up."""
    left = iter(values)

    def measure(_number: str) -> list[Figure]:
        return [Figure("case", next(left), 2.0, more=more)]

    return measure


def test_a_row_within_its_limit_is_run_once() -> None:
    """The medians of the rounds are compared; the round that warms up does not count."""
    old, new = _measure(9.0, 1.0, 1.2, 1.1), _measure(0.1, 1.3, 1.2, 0.2)
    (case,) = compare(_row(grpc=True), old, new, 3)
    assert (case.old, case.new, len(case.runs)) == (1.1, 1.2, 1)
    assert case.limit == GRPC_LIMIT
    assert not case.slower


def test_a_row_above_its_limit_is_run_three_times() -> None:
    """The medians of the three runs count."""
    old, new = _measure(*[1.0] * 4), _measure(1.0, 1.2, 1.0, 1.04)
    (case,) = compare(_row(grpc=False), old, new, 1)
    assert (case.limit, len(case.runs)) == (KERNEL_LIMIT, 3)
    assert case.ratio == 1.04
    assert not case.slower


def test_a_share_costs_more_when_it_is_less() -> None:
    """The comparison names a floor that only the older commit reached."""
    old, new = _measure(*[2.5] * 4, more=True), _measure(*[1.5] * 4, more=True)
    (case,) = compare(_row(grpc=True), old, new, 1)
    assert case.slower
    printed = StringIO()
    show(Console(file=printed, width=160), [case])
    assert "Above their limits: 7 (case)." in printed.getvalue()
    assert "Floors newly missed: 7 (case)." in printed.getvalue()


def test_a_row_of_one_side_only_is_left_out() -> None:
    """The comparison leaves out rows that the older commit does not have."""
    assert compare(_row(grpc=True), lambda _number: None, _measure(1.0), 3) == []


def _price(ratios: list[float], share: float | None = None) -> Price:
    figures = (ratios[0], lower_bound(ratios), 100.0, share)
    return Price("stream", "client", "channel", "small add", 100, *figures, ratios)


def test_a_shortcut_pays_by_its_lower_bound() -> None:
    """A shortcut pays if it saves 15 % of time by the median's lower bound, or 10 % of memory."""
    assert lower_bound([2.0] * 9 + [1.0]) == 2.0
    assert _price([1.2, 1.1, 1.3] * 3).verdict == "does not pay"
    assert _price([1.2] * 10).verdict == "pays"
    assert _price([1.1] * 10).verdict == "does not pay"
    assert _price([1.1] * 10, 0.12).verdict == "saves memory"


def test_price_tags_are_read_back_as_written() -> None:
    """Prices in JSON are read back without a change."""
    prices = [_price([1.25] * 10, 0.03)]
    assert from_json(to_json(prices)) == prices


def test_every_shortcut_has_one_tag_for_a_scenario() -> None:
    """The table names existing scenarios, and none twice."""
    keys = [(shortcut.where, shortcut.name, shortcut.scenario) for shortcut in SHORTCUTS]
    assert len(set(keys)) == len(keys)
    assert {scenario for _, _, scenario in keys} <= SCENARIOS.keys()


def test_every_shortcut_has_a_price() -> None:
    """The table names every shortcut of server, client and libzdnn, and files that exist."""
    rust = (ROOT / "client/libzdnn/src/process/shortcuts.rs").read_text(encoding="utf-8")
    shortcuts = {
        "server": set(SERVER_SHORTCUTS),
        "client": set(CLIENT_SHORTCUTS),
        "libzdnn": set(re.findall(r'\("([a-z-]+)", Some\(Shortcut::', rust)),
    }
    for side, names in shortcuts.items():
        assert {entry.name for entry in SHORTCUTS if entry.where == side} == names
    assert all((ROOT / file).is_file() for entry in SHORTCUTS for file in entry.files)
