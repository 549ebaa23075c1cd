# SPDX-License-Identifier: Apache-2.0
"""Bytes that look like STFLE, NNPA or a conversion and are something else stay as they are."""

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
class Made:
    """A program, its cases, and its run."""

    cases: list[Case]
    program: Program
    ended: Ended
    """How it ended under `nnpa run --json`."""


@pytest.fixture(scope="module", params=LINKINGS, ids=lambda linking: linking.name)
def made(
    request: pytest.FixtureRequest, runner: Runner, tmp_path_factory: pytest.TempPathFactory
) -> Made:
    """A program for each way to link."""
    linking: Linking = request.param
    require("s390x-linux-gnu-g++")
    chosen = chances.cases(LINKINGS.index(linking), EACH)
    program = chances.linked(chosen, linking, tmp_path_factory.mktemp(linking.name))
    return Made(chosen, program, runner.run(program.path, flags=("--json",)))


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


def test_cases_have_the_bytes(made: Made) -> None:
    """Each function, or its data, contains the bytes that it is about."""
    for number, case in enumerate(made.cases):
        name = f"datum_{number}" if case.data else f"case_{number}"
        assert bytes.fromhex(case.pattern) in made.program.contents[name], case
    assert set(Counter(case.kind for case in made.cases).values()) == {EACH}


def test_prints_what_qemu_prints(made: Made) -> None:
    """Each line is the same with and without the instruction; only the facility differs."""
    plain = _plain(made.program)
    lines = made.ended.output.splitlines()
    assert made.ended.code == 0, made.ended.errors
    different = [pair for pair in zip(plain[:-1], lines[:-1], strict=True) if pair[0] != pair[1]]
    assert different == []
    assert len([line for line in lines if line[0].isdigit()]) == len(made.cases)
    assert (plain[-1], lines[-1]) == ("facility 0", "facility 1")


def test_the_facility_test_is_patched(made: Made) -> None:
    """The one STFLE of the program's own is patched at its address, and nothing else of it."""
    holder = made.program.holder.name
    patched = json.loads(made.ended.errors)["stfle"]["patched"]
    place = f"{holder}+{made.program.symbols[PLACE]:#x}"
    assert place in patched
    inside = {place for place in patched if place.startswith(f"{holder}+")}
    if made.program.symbols.get("__libc_start_main") is None:  # no C library in it
        assert inside == {place}
