# SPDX-License-Identifier: Apache-2.0
"""Programs that are linked statically: a loader answers the instruction before they begin."""

import shutil
from pathlib import Path

import pytest

from tests.trap.conftest import Runner

LINKED = ("-static", "-lpthread", "-ldl", "-Wl,-w")


@pytest.fixture(scope="module")
def life(runner: Runner) -> Path:
    """The program of all scenes; what it says of dlopen is the linker's warning."""
    return runner.compile("life.c", *LINKED)


def test_query_and_addition(runner: Runner) -> None:
    """A static program finds the facility, adds, and returns its code."""
    program = runner.compile("add.c", "-static")
    ended = runner.run(program)
    assert ended.output.splitlines()[0] == "stfle 1 hwcap 1"
    assert "add 4100" in ended.output.splitlines()
    assert ended.output == runner.run(runner.compile("add.c")).output
    assert (ended.code, ended.errors) == (7, "")


@pytest.mark.parametrize(
    ("scene", "lines"),
    [
        ("threads", ["400 right"]),
        ("churn", ["200 right, next descriptors 3 few"]),
        ("fork", ["parent 4100", "child 4100", "parent 4100, child's code 9"]),
        ("closes", ["4100 4100"]),
    ],
)
def test_life(runner: Runner, life: Path, scene: str, lines: list[str]) -> None:
    """Threads, a fork and closed descriptors work in static programs, too."""
    ended = runner.run(life, scene)
    assert (ended.output.splitlines(), ended.code, ended.errors) == (lines, 0, "")


@pytest.mark.parametrize(("how", "code"), [("mismatched", 128 + 4), ("null", 128 + 11)])
def test_exceptions(runner: Runner, life: Path, how: str, code: int) -> None:
    """An exception ends a static program by its signal."""
    assert runner.run(life, "dies", how).code == code


def test_conversions_are_patched(runner: Runner) -> None:
    """Eight threads that meet a place first get right results."""
    program = runner.compile("race.c", "-static", "-lpthread")
    assert runner.run(program, "200").output == "0 wrong\n"


@pytest.mark.parametrize(("machine", "code"), [("z16", 3), ("z15", 128 + 4)])
def test_program_without_addresses_of_its_own(runner: Runner, machine: str, code: int) -> None:
    """A position-independent program without a loader is mapped where there is room."""
    flags = ("-nostdlib", "-fPIE", "-pie", "-Wl,--no-dynamic-linker")
    program = runner.compile("bare.c", *flags)
    assert runner.run(program, flags=("--machine", machine)).code == code


def test_missing_loader(runner: Runner, tmp_path: Path) -> None:
    """A library without the loader beside it runs no static program, and says so."""
    alone = tmp_path / "libnnpa-trap.so"
    shutil.copy2(runner.library, alone)
    ended = runner.run(runner.compile("add.c", "-static"), NNPA_TRAP_LIBRARY=str(alone))
    assert ended.code == 2
    assert "linked statically, and there is no" in ended.errors
