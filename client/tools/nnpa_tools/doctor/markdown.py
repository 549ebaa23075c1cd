# SPDX-License-Identifier: Apache-2.0
"""The verdict in Markdown, for a pull request."""

import shlex
from collections.abc import Iterable, Iterator, Sequence

from nnpa_client._values.display import counted

from nnpa_tools.doctor.laboratory import title_of
from nnpa_tools.doctor.report import Checked, Report, Seen, Time
from nnpa_tools.doctor.trials import CONDUCTS, Attempt

_MAX_CELL = 300  # characters
_RUNS = (
    "Each line is a run of the whole program. Operations are calls of zDNN, or instructions, that "
    "reached the machine; errors are those that were refused, by their status, with their number. "
    "Of two statuses or values the first run's stands first."
)
_TRIALS = (
    "In each of these runs one call of a function answers a status that it would not have, and "
    "the program is watched."
)
_TIMES = (
    "An estimate for the first run's calls, as an interval from public measurements (`nnpa "
    "estimate` explains the grades); nothing is measured here. Transforms made again are what "
    "transforming the same data once more takes of it."
)
_CHECK = "Whether the functions that it uses exist on a machine: by their names, without a run."


def verdict(report: Report) -> str:
    """Return the whole verdict."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"## nnpa doctor: `{shlex.join(report.program)}`"
    yield ""
    names = " and ".join(map(title_of, report.machines))
    count = len(report.findings)
    summary = counted(count, "finding") if count else "Nothing found"
    yield f"**{summary}**, for {names}."
    yield from _findings(report)
    yield from _section("What differs", _RUNS,
                        ("run", "what it is", "ends", "operations", "errors", "differs"),
                        map(_run_row, report.runs))  # fmt: skip
    answers = tuple(dict.fromkeys(attempt.answer for attempt in report.trials.attempts))
    yield from _section("Which statuses it ignores", _trials_are(report.trials.attempts),
                        ("function", *answers),
                        _trial_rows(report.trials.attempts, answers))  # fmt: skip
    yield from _section("Time on the machine, and what it would gain", _TIMES,
                        ("machine", "time", "grade", "transforms made again", "what dominates"),
                        map(_time_row, report.times))  # fmt: skip
    if report.gains:
        yield ""
        yield from (f"- {_escaped(text)}" for text in report.gains)
    yield from _section("What `nnpa check` says", _CHECK, ("machine", "runs", "why"),
                        map(_check_row, report.check))  # fmt: skip
    if report.left_out:
        yield from ("", "### Not looked at", "")
        yield from (f"- {text}" for text in report.left_out)


def _findings(report: Report) -> Iterator[str]:
    title = ""
    for finding in report.findings:
        if finding.title != title:
            title = finding.title
            yield from ("", f"### {title} (`{finding.rule}`)", "", finding.advice, "")
        yield f"- {_escaped(finding.text)}"


def _section(
    title: str, meaning: str, columns: Sequence[str], rows: Iterable[Sequence[str]]
) -> Iterator[str]:
    """Yield a heading, what the table means, and the table; nothing without rows."""
    listed = list(rows)
    if not listed:
        return
    yield from ("", f"### {title}", "", meaning, "")
    yield _row(columns)
    yield "|" + "---|" * len(columns)
    yield from map(_row, listed)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(text: str) -> str:
    short = text if len(text) <= _MAX_CELL else text[: _MAX_CELL - 3] + "..."
    return _escaped(short) or "-"


def _escaped(text: str) -> str:
    """Keep what a program prints from being markup."""
    plain = " ".join(text.split())
    return plain.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "'")


def _run_row(run: Seen) -> Sequence[str]:
    errors = ", ".join(f"{text} ({count})" for text, count in run.errors.items())
    differs = "; ".join(run.differs)
    if run.chose_machine:
        differs = f"it chooses the machine itself; {differs}".removesuffix("; ")
    return run.title, run.what, run.ended, str(run.operations), errors, differs


def _trials_are(attempts: Sequence[Attempt]) -> str:
    """Return what the table of trials means, with the words that it has."""
    words = (word for word in CONDUCTS if any(attempt.conduct == word for attempt in attempts))
    return f"{_TRIALS} " + "; ".join(f"{word}: {CONDUCTS[word]}" for word in words) + "."


def _trial_rows(attempts: Sequence[Attempt], answers: Sequence[str]) -> Iterator[Sequence[str]]:
    for function in dict.fromkeys(attempt.function for attempt in attempts):
        cells = [
            _verdicts(attempt for attempt in attempts
                      if (attempt.function, attempt.answer) == (function, answer))
            for answer in answers
        ]  # fmt: skip
        yield function, *cells


def _verdicts(attempts: Iterable[Attempt]) -> str:
    return ", ".join(dict.fromkeys(attempt.conduct for attempt in attempts))


def _time_row(time: Time) -> Sequence[str]:
    name = title_of(time.machine)
    if time.total is None:
        return name, "nothing to estimate", "", "", ""
    saved = "" if time.saved is None else str(time.saved)
    return name, str(time.total), time.total.grade, saved, time.dominant


def _check_row(checked: Checked) -> Sequence[str]:
    return checked.machine, checked.runs, "; ".join(checked.reasons)
