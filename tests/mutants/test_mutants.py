# SPDX-License-Identifier: Apache-2.0
"""The mutation check itself: it draws each kind of fault, and tells killed ones from survivors."""

import random
import sys
from pathlib import Path

import pytest

from tests.mutants.__main__ import ROOMS, TESTS, faults_of
from tests.mutants.sites import Mutation, mutations
from tests.mutants.trial import Trial
from tests.scratch_copy import ROOT

DOUBLE = '''\
"""Returns 2 * x."""


def double(x: int | None, calls: list[int]) -> int:
    """Double a number, and remember it."""
    calls.append(1)
    return 0 if x is None else 2 * x
'''
TEST = """\
from double import double


def test_double():
    assert double(None, []) == 0
    assert double(3, []) == 6
"""


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    """A folder with one function and its test."""
    (tmp_path / "double.py").write_text(DOUBLE)
    (tmp_path / "test_double.py").write_text(TEST)
    command = (sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", str(tmp_path))
    return Trial(tmp_path, command)


def _mutation(before: str, after: str) -> Mutation:
    """Return the mutation of `DOUBLE` that makes one text another."""
    for mutation in mutations(DOUBLE):
        if (DOUBLE[mutation.start : mutation.end], mutation.text) == (before, after):
            return mutation
    raise AssertionError(f"{before} never becomes {after}")


def test_each_kind_of_fault_is_drawn() -> None:
    """Docstrings and annotations stay; comparison, condition, constants, sum and call change."""
    changed = [
        (mutation.kind, DOUBLE[mutation.start : mutation.end], mutation.text)
        for mutation in mutations(DOUBLE)
    ]
    assert changed == [
        ("statement", "calls.append(1)", "pass"),
        ("constant", "1", "(2)"),
        ("constant", "0", "(1)"),
        ("comparison", "x is None", "(x is not None)"),
        ("condition", "x is None", "(not (x is None))"),
        ("constant", "2", "(3)"),
        ("arithmetic", "2 * x", "(2 // x)"),
    ]


@pytest.mark.heavy
def test_a_fault_is_killed_by_the_test_that_fails(trial: Trial, tmp_path: Path) -> None:
    """The verdict names the test; the file is as it was afterwards."""
    assert trial.run_without_fault().failed is None
    verdict = trial.judge(Path("double.py"), _mutation("2 * x", "(2 // x)"))
    assert verdict.by is not None
    assert verdict.by.endswith("test_double.py::test_double")
    assert (verdict.file, verdict.line, verdict.kind) == ("double.py", 7, "arithmetic")
    assert (tmp_path / "double.py").read_text() == DOUBLE


@pytest.mark.heavy
def test_a_fault_that_no_test_finds_survives(trial: Trial) -> None:
    """The verdict of a survivor has no test, and shows the changed line."""
    verdict = trial.judge(Path("double.py"), _mutation("calls.append(1)", "pass"))
    assert verdict.by is None
    assert "-    calls.append(1)\n+    pass" in verdict.diff


@pytest.mark.heavy
def test_tests_that_do_not_end_kill_a_fault(tmp_path: Path) -> None:
    """A run over three times as long as the faultless one is ended, and the verdict says so."""
    (tmp_path / "wait.py").write_text("if 1 == 2:\n    import time\n    time.sleep(600)\n")
    trial = Trial(tmp_path, (sys.executable, "wait.py"), shortest_limit=1.0)
    assert trial.run_without_fault().failed is None
    source = (tmp_path / "wait.py").read_text()
    (negated,) = (mutation for mutation in mutations(source) if mutation.kind == "condition")
    verdict = trial.judge(Path("wait.py"), negated)
    assert verdict.by == "no end in 1 s"
    assert verdict.seconds < 60


def test_faults_of_every_room_are_valid_python() -> None:
    """Every room has faults, and each of 200 can be parsed and changes the program."""
    every = faults_of()
    for room in ROOMS:
        assert any(str(file).startswith(room) for file, _ in every), room
    for file, mutation in random.Random(1).sample(every, 200):
        source = (ROOT / file).read_text(encoding="utf-8")
        changed = mutation.applied(source)
        assert changed != source
        compile(changed, file, "exec")


def test_the_command_is_the_readmes() -> None:
    """Faults are judged by `pytest` as the README has it, up to the first failure."""
    assert TESTS[1:4] == ("-m", "pytest", "-x")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert any(line.endswith(".venv/bin/pytest") for line in readme.splitlines())
