# SPDX-License-Identifier: Apache-2.0
"""`nnpa faults` with rules and with Python programs; C programs are in tests/libzdnn."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from nnpa_client.faults import schema
from nnpa_client.status import Status
from nnpa_tools.cli import main
from nnpa_tools.faults.sweep import Program, sweep

PROGRAM = """\
import sys
import numpy as np
from nnpa_client import ZdnnError, connect, zdnn
with connect() as session:
    a = session.ztensor(np.ones(4, np.float32))
    try:
        zdnn.add(a, a)
    except ZdnnError as error:
        if "careful" in sys.argv:
            sys.exit(str(error))
"""


def _nnpa(*arguments: str) -> "subprocess.CompletedProcess[str]":
    start = "from nnpa_tools.cli import main; main(prog_name='nnpa')"
    return subprocess.run(
        [sys.executable, "-c", start, "faults", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_schema_is_the_package_s() -> None:
    """The command prints the schema that the package holds."""
    answer = CliRunner().invoke(main, ["faults", "schema"])
    assert answer.exit_code == 0
    assert json.loads(answer.stdout) == schema()


@pytest.mark.heavy
def test_check_names_field_and_limit(tmp_path: Path) -> None:
    """A server reads the file: its refusal is a usage error with field, value and limit."""
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: [{operation: zdnn_add, status: ZDNN_EXCEEDS_MDIS}, {note: true}]")
    answer = CliRunner().invoke(main, ["faults", "check", str(rules)])
    assert (answer.exit_code, answer.stdout) == (0, f"{rules}: 2 rules\n")
    rules.write_text("rules: [{note: true}]")
    assert CliRunner().invoke(main, ["faults", "check", str(rules)]).stdout == f"{rules}: 1 rule\n"
    rules.write_text("rules: [{operation: zdnn_ad, note: true}]")
    answer = CliRunner().invoke(main, ["faults", "check", str(rules)])
    assert answer.exit_code == 2
    assert "session.fault_rules[0].operation is 'zdnn_ad', must be one of" in answer.stderr
    rules.write_text("rules: [{nosuch: 1}]")
    answer = CliRunner().invoke(main, ["faults", "check", str(rules)])
    assert answer.exit_code == 2
    assert "rules[0].nosuch: unknown" in answer.stderr


@pytest.mark.heavy
def test_run_a_python_program(tmp_path: Path) -> None:
    """connect() without a target meets the rules of the command that runs the program."""
    rules, program = tmp_path / "rules.yaml", tmp_path / "program.py"
    rules.write_text("rules: [{operation: zdnn_add, status: ZDNN_EXCEEDS_MDIS}]")
    program.write_text(PROGRAM)
    answer = _nnpa("run", str(rules), "--", sys.executable, str(program), "careful")
    assert answer.returncode == 1
    assert "ZDNN_EXCEEDS_MDIS: session.fault_rules[0] is injected at call 3" in answer.stderr
    assert "1 fault injected" in answer.stderr


@pytest.mark.heavy
def test_sweep_a_python_program(tmp_path: Path) -> None:
    """The sweep tells a Python program that ignores an exception from one that handles it."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    for words, expected in (([], "ignored"), (["careful"], "handled")):
        command = [sys.executable, str(program), *words]
        report = sweep(Program(command, timeout=60), [Status.ZDNN_EXCEEDS_MDIS])
        verdicts = {trial.site.operation: trial.verdict for trial in report.trials}
        assert verdicts["add"] == expected
        assert verdicts["transform_ztensor"] == "handled"


@pytest.mark.heavy
def test_sweep_by_several_jobs(tmp_path: Path) -> None:
    """Concurrent runs give the same verdicts and report as runs one after the other."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM + "print('done at', session.transport.target)\n")
    statuses = ("--status", "ZDNN_EXCEEDS_MDIS", "--status", "ZDNN_ELEMENT_RANGE_VIOLATION")
    command = ("--json", "--timeout", "60", "--", sys.executable, str(program))
    reports = []
    for jobs in ("1", "3"):
        answer = _nnpa("sweep", "--jobs", jobs, *statuses, *command)
        assert "runs" not in answer.stderr.splitlines()
        report = json.loads(answer.stdout)
        for run in report["runs"]:
            assert run.pop("seconds") > 0
        reports.append((answer.returncode, report))
    assert reports[0] == reports[1]
    assert reports[0][1]["steady_output"]
    verdicts = {(run["operation"], run["verdict"]) for run in reports[0][1]["runs"]}
    assert ("add", "ignored") in verdicts
    assert ("transform_ztensor", "handled") in verdicts


def test_sweep_takes_a_number_of_jobs() -> None:
    """A value that is no number of jobs is a usage error that names the limits."""
    answer = CliRunner().invoke(main, ["faults", "sweep", "--jobs", "1025", "--", "true"])
    assert answer.exit_code == 2
    assert "'1025', expected auto or 1 to 1024" in answer.output
