# SPDX-License-Identifier: Apache-2.0
"""Programs for s390x with threads, forks, handlers and child programs beside the instruction."""

from pathlib import Path

import pytest

from tests.trap.conftest import Runner

SIGILL, SIGSEGV = 128 + 4, 128 + 11
TELUM_1 = "80 00 fc 00 c0 00 78 00 80 00 c0 00 c0 00 e0" + " 00" * 17
TELUM_2 = "80 00 fc 00 f0 00 7c 00 f0 00 c0 00 c0 00 f0" + " 00" * 15 + " c0 00"
PAGE = 4096


@pytest.fixture(scope="module")
def life(runner: Runner) -> Path:
    """The program of all scenes."""
    return runner.compile("life.c", "-lpthread", "-ldl")


@pytest.mark.parametrize(("machine", "functions"), [("z16", TELUM_1), ("z17", TELUM_2)])
def test_query_and_addition(runner: Runner, machine: str, functions: str) -> None:
    """A program finds the facility, asks what is installed, adds, and meets its limits."""
    ended = runner.run(runner.compile("add.c"), flags=("--machine", machine))
    assert ended.output.splitlines() == [
        "stfle 1 hwcap 1",
        f"query cc 0 functions {functions}",
        "add 4100",
        "overflow cc 0 r0 0000008000000010 value 7fff",
        "too large cc 1 r0 0012000000000010 value 1234",
    ]
    assert (ended.code, ended.errors) == (7, "")


@pytest.mark.parametrize(
    ("scene", "lines"),
    [
        ("threads", ["400 right"]),
        ("churn", ["200 right, next descriptors 3 few"]),
        ("fork", ["parent 4100", "child 4100", "parent 4100, child's code 9"]),
        ("closes", ["4100 4100"]),
        ("masks", ["4100"]),
        ("nothing", ["no NNPA"]),
    ],
)
def test_life_goes_on(runner: Runner, life: Path, scene: str, lines: list[str]) -> None:
    """Threads, short threads, a fork, closed descriptors and blocked signals change nothing."""
    ended = runner.run(life, scene)
    assert (ended.output.splitlines(), ended.code, ended.errors) == (lines, 0, "")


@pytest.mark.parametrize(
    ("how", "report"),
    [
        ("misaligned", "signal 4 code 2 at 1 offset -1"),
        ("mismatched", "signal 4 code 2 at 1 offset -1"),
        ("second-page", "signal 11 code 1 at 0 offset 4096"),
        ("null", "signal 11 code 1 at 0 offset 0"),
        ("read-only", "signal 11 code 2 at 0 offset 0"),
    ],
)
def test_own_handlers(runner: Runner, life: Path, how: str, report: str) -> None:
    """A handler gets signal, code and address of an exception, with its mask, and goes on.

    Outputs are untouched, and the instruction works afterwards.
    """
    ended = runner.run(life, "handled", how)
    assert ended.output.splitlines() == [
        f"{report} opcode b93b0000 r0 10 usr1 1",
        "then 4100, output 0000",
    ]
    assert (ended.code, ended.errors) == (0, "")


@pytest.mark.parametrize(
    ("how", "code", "text"),
    [
        ("misaligned", SIGILL, "specification exception"),
        ("mismatched", SIGILL, "data exception"),
        ("second-page", SIGSEGV, "access exception"),
        ("null", SIGSEGV, "access exception"),
    ],
)
def test_without_handlers(runner: Runner, life: Path, how: str, code: int, text: str) -> None:
    """A program without a handler dies by the signal, and standard error says why."""
    ended = runner.run(life, "dies", how)
    assert (ended.code, ended.output) == (code, "")
    assert f"nnpa-trap: {text}: " in ended.errors


def test_own_illegal_instructions(runner: Runner, life: Path) -> None:
    """A program's handler of SIGILL still gets the program's own instructions and signals."""
    lines = runner.run(life, "own-trap").output.splitlines()
    assert lines[0] == "kept 1"
    assert lines[1].startswith("signal 4 code 1 at")
    assert lines[2].startswith("signal 4 code -6 at")
    assert lines[3:] == ["then 4100"]


def test_dlopen(runner: Runner, life: Path) -> None:
    """A library that is loaded after the start finds the facility, too."""
    late = runner.compile("late.c", "-shared", "-fPIC")
    assert runner.run(life, "dlopen", late).output == "stfle 1 add 4100\n"


@pytest.mark.parametrize("way", ["exec", "spawn"])
def test_programs_for_s390x_are_started(runner: Runner, life: Path, way: str) -> None:
    """A child program for s390x has the instruction, too, and its exit code comes through."""
    ended = runner.run(life, "start", way, runner.compile("add.c"))
    lines = ended.output.splitlines()
    assert lines[:2] == ["before 4100", "stfle 1 hwcap 1"]
    assert "add 4100" in lines
    assert (ended.code, lines[-1]) == (
        (7, "too large cc 1 r0 0012000000000010 value 1234") if way == "exec" else (0, "code 7")
    )
    assert ended.errors == ""


@pytest.mark.parametrize("way", ["exec", "spawn"])
def test_host_programs_are_started(runner: Runner, life: Path, way: str) -> None:
    """A host program gets no LD_PRELOAD, so its loader prints no error."""
    ended = runner.run(life, "start", way, "sh", "-c", "echo [$LD_PRELOAD]")
    assert ended.output.splitlines()[:2] == ["before 4100", "[]"]
    assert (ended.code, ended.errors) == (0, "")


def test_exec_of_a_missing_file_fails(runner: Runner, life: Path) -> None:
    """Exec of a missing file fails as without `nnpa run`, and the program goes on."""
    ended = runner.run(life, "start", "exec", "/no/such/file")
    assert (ended.code, ended.errors) == (3, "/no/such/file: No such file or directory\n")


def test_programs_of_the_sysroot_are_started(runner: Runner, life: Path, tmp_path: Path) -> None:
    """A program that lies in the sysroot only is started by its path there."""
    (tmp_path / "lib").symlink_to("/usr/s390x-linux-gnu/lib")
    (tmp_path / "opt").mkdir()
    (tmp_path / "opt/inside").symlink_to(runner.compile("add.c"))
    flags = ("--sysroot", str(tmp_path))
    ended = runner.run(life, "start", "spawn", "/opt/inside", flags=flags)
    assert ended.output.splitlines()[-1] == "code 7"
    assert ended.errors == ""
