# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest that writes what tests came to, a JSON line each: `--score-log FILE`.

A test that runs several cases tells them by `record_property("score", [[outcome, count, reason]])`.
"""

import json
from pathlib import Path
from typing import Any, TextIO

import pytest

CASES, _ABOUT = "score", "score_about"
_LONGEST = 500
_OUTCOMES = {"passed": "passed", "failed": "failed", "skipped": "not run"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --score-log."""
    parser.addoption("--score-log", type=Path, help="where cases are written, as JSON lines")


def pytest_configure(config: pytest.Config) -> None:
    """Write in the process that all reports reach, not in workers."""
    path = config.getoption("--score-log")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Log(path.open("a", encoding="utf-8")), "score-log")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have each report say its test's law, and what its parameters are."""
    for item in items:
        document = getattr(getattr(item, "function", None), "__doc__", None) or item.name
        parameters = getattr(getattr(item, "callspec", None), "id", "")
        item.user_properties.append((_ABOUT, [document.strip().splitlines()[0], parameters]))


class _Log:
    """Writes lines as tests end."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._of = 0

    def _write(self, line: dict[str, Any]) -> None:
        self._out.write(json.dumps(line) + "\n")
        self._out.flush()

    def _expect(self, count: int) -> None:
        if count > self._of:
            self._of = count
            self._write({"of": count})

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Say how many tests there will be."""
        self._expect(len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Say how many tests there will be in workers."""
        self._expect(len(ids))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Tell of a module that cannot be collected, as a failed case."""
        if report.failed:
            story = _first(report.longreprtext)
            line = {"law": "collection", "id": "", "test": report.nodeid, "reason": story}
            self._write({**line, "outcome": "failed"})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tell of a test that ended, or could not begin or end well."""
        if report.when != "call" and report.passed:
            return
        properties: dict[str, Any] = dict(report.user_properties)
        law, parameters = properties[_ABOUT]
        line = {"law": law, "id": parameters, "test": report.nodeid, "reason": _reason(report)}
        line["outcome"] = _OUTCOMES[report.outcome]
        if report.passed and CASES in properties:
            line["cases"] = [case for case in properties[CASES] if case[1]]
            line["count"] = 1
        self._write(line)

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
    """Return the line that says what went wrong, the first of pytest's marked lines."""
    marked = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    return (marked or text.strip().splitlines() or [""])[0][:_LONGEST]
