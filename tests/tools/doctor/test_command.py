# SPDX-License-Identifier: Apache-2.0
"""`nnpa doctor` on the command line: exit codes, messages for what cannot be examined, JSON."""

import json
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from nnpa_client.doctor import Report, verdict
from nnpa_tools.cli import main
from nnpa_tools.doctor.trials import CONDUCTS, EXCEPTION, Attempt, Trials
from nnpa_tools.faults.sweep import VERDICTS, Verdict

CONDITIONS = (
    *("z17", "the same again", "z16", "without NNPA", "sanitizer"),
    *("zDNN 1.0.1", "zDNN 1.1.2"),
)
ADDING = "from nnpa_client import connect"
PROGRAM = """, zdnn
with connect() as session:
    zdnn.add(session.ztensor([[1.0]]), session.ztensor([[2.0]])).numpy()
"""


def _doctor(*words: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *words])


def test_what_cannot_be_started(tmp_path: Path) -> None:
    """A missing or non-executable program is a usage error that says how to mend it."""
    absent = _doctor("--", str(tmp_path / "absent"))
    assert absent.exit_code == 2
    assert f"{tmp_path / 'absent'}: no such program" in absent.output
    script = tmp_path / "program.py"
    script.write_text(ADDING)
    answer = _doctor("--", str(script))
    assert answer.exit_code == 2
    assert f"{script}: not executable: chmod +x, or name what runs it" in answer.output
    script.chmod(0o755)
    garbage = _doctor("--quick", "--", str(script))
    assert garbage.exit_code == 2
    assert f"{script}: Exec format error" in garbage.output


def test_machines_have_nnpa() -> None:
    """An unknown machine, or one without NNPA, is a usage error that lists the machines."""
    answer = _doctor("--machine", "z15", "--", "true")
    assert answer.exit_code == 2
    assert "'z15' has no NNPA, expected one of telum1 (z16)" in answer.output
    assert _doctor("--machine", "z99", "--", "true").exit_code == 2


def test_a_program_that_never_calls_zdnn() -> None:
    """A program without a session is a usage error, and the message asks how it is linked."""
    answer = _doctor("--", "true")
    assert answer.exit_code == 2
    assert "true: it opened no session at ZDNN_SERVER: is it linked with libzdnn" in answer.output


@pytest.mark.heavy
def test_a_program_that_hangs(tmp_path: Path) -> None:
    """A program is killed at the limit with its children, and the verdict says so."""
    pid = tmp_path / "pid"
    answer = _doctor("--timeout", "1", "--", "sh", "-c", f"sleep 600 & echo $! > {pid}; wait")
    assert answer.exit_code == 1
    assert "### It does not end (`hang`)" in answer.stdout
    assert "- z17: killed with all its processes after 1 s" in answer.stdout
    assert _is_gone(int(pid.read_text()))


def _is_gone(pid: int) -> bool:
    """Wait until a process has ended, at most some seconds; a zombie has."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_a_program_that_crashes() -> None:
    """A program that a signal ends has a verdict, which names the signal and its last words."""
    answer = _doctor("--json", "--", "sh", "-c", "echo out of luck >&2; kill -SEGV $$")
    assert answer.exit_code == 1
    report = json.loads(answer.stdout)
    (finding,) = report["findings"]
    assert finding["rule"] == "failure"
    assert finding["text"] == "z17: SIGSEGV; it says: out of luck"
    assert tuple(run["title"] for run in report["runs"]) == CONDITIONS
    assert report["left_out"] == ["statuses and range violations: it fails without (SIGSEGV)"]
    assert not report["clean"]


def test_each_run_says_what_it_is() -> None:
    """A run's line says how it differs from the first, so that its operations can be compared."""
    answer = _doctor("--", "sh", "-c", "exit 3")
    lines = answer.stdout.splitlines()
    begin = lines.index("### What differs")
    assert lines[begin + 2].startswith("Each line is a run of the whole program. Operations are ")
    rows = [line.split(" | ")[:2] for line in lines[begin + 6 : begin + 6 + len(CONDITIONS)]]
    titles, meanings = (tuple(cells) for cells in zip(*rows, strict=True))
    assert titles == tuple(f"| {title}" for title in CONDITIONS)
    assert len(set(meanings[:5])) == 5
    assert (
        "allocations, which libzdnn makes by itself otherwise, count as operations"
        in (meanings[CONDITIONS.index("the same again")])
    )


@pytest.mark.heavy
def test_each_table_says_what_it_means() -> None:
    """Between a heading and its table stands a sentence."""
    answer = _doctor("--quick", "--", sys.executable, "-c", ADDING + PROGRAM)
    lines = answer.stdout.splitlines()
    tables = [place for place, line in enumerate(lines) if line.startswith("|---")]
    assert len(tables) == 3  # runs, times, check
    for place in tables:
        assert lines[place - 5].startswith("### ")
        assert lines[place - 3].endswith(".")


def test_each_conduct_is_explained() -> None:
    """The legend above the table of trials explains exactly the words of the table."""
    assert CONDUCTS.keys() == {*VERDICTS, "aborted", "interrupted"}
    ends: tuple[tuple[Verdict, str, int | None], ...] = (
        ("crashed", "ZDNN_INVALID_SHAPE", -6),
        ("crashed", EXCEPTION, 132),
        ("hung", "ZDNN_INVALID_SHAPE", None),
    )
    attempts = [
        Attempt("zdnn_add", 1, answer, False, conduct, code, False)
        for conduct, answer, code in ends
    ]
    report = Report((), (), (), (), Trials(tuple(attempts)), (), (), ())
    (sentence,) = (line for line in verdict(report).splitlines() if line.startswith("In each"))
    for word, meaning in CONDUCTS.items():
        is_in_it = word in ("aborted", "interrupted", "hung")
        assert (f"{word}: {meaning}" in sentence) == is_in_it, word
