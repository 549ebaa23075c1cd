# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest that writes the outcomes of tests as the cases of a suite: `--score-fd N`.

A test that runs several cases lists them: `record_property("score", [[outcome, count, reason]])`.
"""

import json
import os
from dataclasses import asdict
from typing import Any, TextIO

import pytest
from nnpa_tools.conformance.counts import Case

CASES, _ABOUT = "score", "score_about"
_LONGEST = 500
_OUTCOMES = {"passed": "passed", "failed": "failed", "skipped": "not run"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of a suite."""
    parser.addoption("--score-fd", type=int, help="file descriptor that takes cases, JSON lines")
    parser.addoption("--score-group", default="law", help="what of a test names its group")


def pytest_configure(config: pytest.Config) -> None:
    """Write in the process that receives all reports, not in workers."""
    number = config.getoption("--score-fd")
    if number is not None and not hasattr(config, "workerinput"):
        os.set_inheritable(number, False)
        grouped_by = str(config.getoption("--score-group"))
        log = _Log(os.fdopen(number, "w", encoding="utf-8"), grouped_by)
        config.pluginmanager.register(log, "score-log")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add the test's law and its parameters to each report."""
    for item in items:
        document = getattr(getattr(item, "function", None), "__doc__", None) or item.name
        parameters = getattr(getattr(item, "callspec", None), "id", "")
        item.user_properties.append((_ABOUT, [document.strip().splitlines()[0], parameters]))


class _Log:
    """Writes cases as tests end, grouped as `pytest_suites.Tests` says."""

    def __init__(self, out: TextIO, grouped_by: str) -> None:
        self._out, self._grouped_by = out, grouped_by
        self._of = 0

    def _write(self, line: dict[str, Any]) -> None:
        self._out.write(json.dumps(line) + "\n")
        self._out.flush()

    def _expect(self, count: int) -> None:
        if count > self._of:
            self._of = count
            self._write({"of": count})

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Write the number of tests."""
        self._expect(len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Write the number of tests in workers."""
        self._expect(len(ids))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write a module that cannot be collected as a failed case."""
        if report.failed:
            story = _first(report.longreprtext)
            self._write(asdict(Case("collection", "failed", "", report.nodeid, story)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write a test that ended, or that failed in setup or teardown."""
        if report.when != "call" and report.passed:
            return
        properties: dict[str, Any] = dict(report.user_properties)
        group, machine = self._group(*properties[_ABOUT])
        cases = [(_OUTCOMES[report.outcome], 1, _reason(report))]
        if report.passed and CASES in properties:
            cases = [case for case in properties[CASES] if case[1]]
        for outcome, count, reason in cases:
            self._write(asdict(Case(group, outcome, machine, report.nodeid, reason, count)))

    def _group(self, law: str, parameters: str) -> tuple[str, str]:
        """Return a test's group, and its machine where the parameters end with one."""
        if self._grouped_by == "law":
            return law, ""
        group, _, last = parameters.rpartition("-")
        return group, last if self._grouped_by == "subject and machine" else ""

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """End with 0 if tests failed: the suite itself has run to its end."""
        if session.exitstatus == pytest.ExitCode.TESTS_FAILED:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_unconfigure(self) -> None:
        """Close the file."""
        self._out.close()


def _reason(report: pytest.TestReport) -> str:
    if report.passed:
        return ""
    if report.skipped and isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")[:_LONGEST]
    return _first(report.longreprtext)


def _first(text: str) -> str:
    """Return the line with the error, the first of pytest's marked lines."""
    marked = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    return (marked or text.strip().splitlines() or [""])[0][:_LONGEST]
