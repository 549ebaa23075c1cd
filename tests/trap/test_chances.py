# SPDX-License-Identifier: Apache-2.0
"""Bytes that look like STFLE, NNPA or a conversion, but are none, stay as they are."""

import json
import subprocess
from collections import Counter
from dataclasses import dataclass

import pytest

from tests.trap import chances
from tests.trap.chances import LINKINGS, PLACE, Case, Linking, Program
from tests.trap.conftest import SECONDS, Ended, Runner, require

EACH = 7
"""Cases of each kind in each program: 7 x 5 kinds x 6 programs are 210."""
SYSROOT = "/usr/s390x-linux-gnu"


@dataclass(frozen=True, slots=True)
class ChancesRun:
    """A program, its cases, and its run."""

    cases: list[Case]
    program: Program
    ended: Ended
    """How it ended under `nnpa run --json`."""


@pytest.fixture(scope="module", params=LINKINGS, ids=lambda linking: linking.name)
def chances_run(
    request: pytest.FixtureRequest, runner: Runner, tmp_path_factory: pytest.TempPathFactory
) -> ChancesRun:
    """A program for each way to link."""
    linking: Linking = request.param
    require("s390x-linux-gnu-g++")
    chosen = chances.cases(LINKINGS.index(linking), EACH)
    program = chances.linked(chosen, linking, tmp_path_factory.mktemp(linking.name))
    return ChancesRun(chosen, program, runner.run(program.path, flags=("--json",)))


def _plain(program: Program) -> list[str]:
    """Return what a program prints under qemu-user alone."""
    ended = subprocess.run(
        ["qemu-s390x", "-L", SYSROOT, str(program.path)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.splitlines()


def test_cases_have_the_bytes(chances_run: ChancesRun) -> None:
    """Each function, or its data, contains the pattern of its case."""
    for number, case in enumerate(chances_run.cases):
        name = f"datum_{number}" if case.data else f"case_{number}"
        assert bytes.fromhex(case.pattern) in chances_run.program.contents[name], case
    assert set(Counter(case.kind for case in chances_run.cases).values()) == {EACH}


def test_prints_what_qemu_prints(chances_run: ChancesRun) -> None:
    """Each line is the same with and without the instruction; only the facility differs."""
    plain = _plain(chances_run.program)
    lines = chances_run.ended.output.splitlines()
    assert chances_run.ended.code == 0, chances_run.ended.errors
    different = [pair for pair in zip(plain[:-1], lines[:-1], strict=True) if pair[0] != pair[1]]
    assert different == []
    assert len([line for line in lines if line[0].isdigit()]) == len(chances_run.cases)
    assert (plain[-1], lines[-1]) == ("facility 0", "facility 1")


def test_the_facility_test_is_patched(chances_run: ChancesRun) -> None:
    """The program's own STFLE is patched at its address, and no other place of the program."""
    holder = chances_run.program.holder.name
    patched = json.loads(chances_run.ended.errors)["stfle"]["patched"]
    place = f"{holder}+{chances_run.program.symbols[PLACE]:#x}"
    assert place in patched
    inside = {place for place in patched if place.startswith(f"{holder}+")}
    if chances_run.program.symbols.get("__libc_start_main") is None:  # no C library in it
        assert inside == {place}
