# SPDX-License-Identifier: Apache-2.0
"""`nnpa faults sweep` tells apart programs that abort, ignore, hang and handle."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from nnpa_client.status import Status
from nnpa_tools.faults.sweep import STATUSES, Program, Unusable, sweep

from tests.libzdnn import toolchain
from tests.libzdnn.toolchain import Prefix

PROGRAMS = Path(__file__).parent / "programs"
WARNING, ERROR = Status.ZDNN_ELEMENT_RANGE_VIOLATION, Status.ZDNN_EXCEEDS_MDIS
SITES = [
    (1, "allochelper_ztensor"),
    (2, "allochelper_ztensor"),
    (3, "transform_ztensor"),
    (4, "add"),
    (5, "transform_origtensor"),
    (6, "free_ztensor_buffer"),
    (7, "free_ztensor_buffer"),
]


@pytest.fixture(scope="module")
def program(prefix: Prefix, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program, whose argument says how it treats statuses."""
    built = tmp_path_factory.mktemp("sweep") / "sweep"
    source = PROGRAMS / "sweep.c"
    return str(toolchain.compiled(source, built, prefix, "-std=gnu11", "-D_GNU_SOURCE"))


@pytest.mark.parametrize(
    ("mode", "warning", "error"),
    [
        ("abort", "crashed", "handled"),
        ("ignore", "ignored", "ignored"),
        ("hang", "ignored", "hung"),
        ("handle", "ignored", "handled"),
    ],
)
def test_each_way_to_treat_a_status_has_its_verdict(
    program: str, mode: str, warning: str, error: str
) -> None:
    """Each way to treat a status has its verdict, at every call of the program."""
    timeout = 2.0 if mode == "hang" else 30.0
    report = sweep(Program([program, mode], timeout), (WARNING, ERROR))
    assert [(site.call, site.operation) for site in report.sites] == SITES
    assert report.steady
    assert len(report.trials) == 2 * len(SITES)
    for trial in report.trials:
        assert trial.verdict == (warning if trial.status == WARNING else error), trial
        fine = ("handled", "ignored") if trial.status == WARNING else ("handled",)
        assert trial.is_fine == (trial.verdict in fine)
        if trial.verdict == "crashed":
            assert trial.code == -signal.SIGABRT


def test_crashes_do_not_use_up_the_server(program: str) -> None:
    """Sessions that crashed programs leave behind, more than a server usually has, are no harm."""
    warnings = [0x00020002 + number for number in range(10)]
    report = sweep(Program([program, "abort"], timeout=30.0), warnings)
    assert report.counts()["crashed"] == len(report.trials) == 70


def test_every_status_is_tried_by_default(program: str) -> None:
    """Without a choice every status of zDNN is tried at every call; numbers are the same again."""
    report = sweep(Program([program, "handle"]))
    assert {(trial.site.call, trial.status) for trial in report.trials} == {
        (call, int(status)) for call, _ in SITES for status in STATUSES
    }
    assert len(STATUSES) == len(Status) - 1
    assert report.counts()["handled"] == len(SITES) * (len(STATUSES) - 1)
    assert report.counts()["ignored"] == len(SITES)


def _nnpa(*arguments: str) -> "subprocess.CompletedProcess[str]":
    start = "from nnpa_tools.cli import main; main(prog_name='nnpa')"
    return subprocess.run(
        [sys.executable, "-c", start, "faults", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_json_lists_every_run(program: str) -> None:
    """--json lists every run; exit code 1 says that the program did not do well."""
    names = ("--status", WARNING.name, "--status", ERROR.name)
    answer = _nnpa("sweep", "--json", *names, "--", program, "abort")
    assert answer.returncode == 1, answer.stderr
    report: dict[str, Any] = json.loads(answer.stdout)
    assert report["program"] == [program, "abort"]
    assert [(call["call"], call["operation"]) for call in report["calls"]] == SITES
    assert report["counts"] == {"handled": 7, "ignored": 0, "crashed": 7, "hung": 0, "missed": 0}
    crashed = [run for run in report["runs"] if run["verdict"] == "crashed"]
    assert {run["signal"] for run in crashed} == {"SIGABRT"}
    assert {run["status"] for run in crashed} == {WARNING.name}
    handled = [run for run in report["runs"] if run["verdict"] == "handled"]
    assert {run["exit_code"] for run in handled} == {3}


def test_the_table_has_a_row_for_each_call(program: str) -> None:
    """The table has a row for each call, and 0 says that the program did well."""
    names = ("--status", WARNING.name, "--status", ERROR.name)
    answer = _nnpa("sweep", *names, "--", program, "handle")
    assert answer.returncode == 0, answer.stderr
    lines = answer.stdout.splitlines()
    assert "14 runs: 7 handled, 7 ignored" in lines[0]
    (add,) = [line.split() for line in lines if "zdnn_add" in line]
    assert add == ["4", "zdnn_add", "ignored", "handled"]


def test_what_cannot_be_swept(program: str, tmp_path: Path) -> None:
    """Programs that fail, hang or make no call without any fault are refused, and say why."""
    with pytest.raises(Unusable, match="makes no call"):
        sweep(Program(["true"]), (ERROR,))
    with pytest.raises(Unusable, match="ends with 1"):
        sweep(Program(["false"]), (ERROR,))
    with pytest.raises(Unusable, match="does not end within"):
        sweep(Program(["sleep", "60"], timeout=0.3, first_timeout=0.3), (ERROR,))
    assert _nnpa("sweep", "--", str(tmp_path / "absent")).returncode == 2
    assert _nnpa("sweep", "--status", "ZDNN_NO", "--", program).returncode == 2


def test_faults_run_ends_as_its_program(program: str, tmp_path: Path) -> None:
    """`nnpa faults run` runs a program under rules, and ends as it does."""
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: [{operation: zdnn_add, status: ZDNN_EXCEEDS_MDIS}]")
    answer = _nnpa("run", str(rules), "--", program, "handle")
    assert answer.returncode == 3
    assert "ZDNN_EXCEEDS_MDIS" in answer.stderr
    assert "1 fault injected" in answer.stderr
    rules.write_text("rules: [{operation: zdnn_add, program_check: data}]")
    assert _nnpa("run", str(rules), "--", program).returncode == 128 + signal.SIGILL
