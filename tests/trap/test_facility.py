# SPDX-License-Identifier: Apache-2.0
"""STFLE that no proof covers, and the rules by which a program's owner patches it or not."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.trap.conftest import Ended, Runner

NAMES = ("without_unwind", "with_tail", "by_address")
SECONDS = 20


@pytest.fixture(scope="module")
def hidden(runner: Runner) -> Path:
    """A program with three STFLE that no function around them proves."""
    return runner.compile("hidden.c hidden.S")


def places(program: Path) -> list[str]:
    """Return the places of the three STFLE, as --stats names them."""
    command = ["s390x-linux-gnu-nm", str(program)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS)
    rows = (line.split() for line in listed.stdout.splitlines())
    addresses = {row[2]: int(row[0], 16) for row in rows if len(row) == 3}
    return [f"{program.name}+{addresses[f'{name}_place']:#x}" for name in NAMES]


def fates(ended: Ended, program: Path) -> dict[str, list[str]]:
    """Return the program's own places by their fate, without libraries' places."""
    stfle: dict[str, list[str]] = json.loads(ended.errors)["stfle"]
    own = {
        fate: [place for place in listed if place.startswith(f"{program.name}+")]
        for fate, listed in stfle.items()
    }
    return {fate: listed for fate, listed in own.items() if listed}


def test_unproven_places_stay_and_are_listed(runner: Runner, hidden: Path) -> None:
    """Unproven places are left unpatched, and --stats lists object and offset."""
    ended = runner.run(hidden, flags=("--json",))
    assert ended.output == "0 0 0\n"
    assert fates(ended, hidden) == {"unproven": sorted(places(hidden))}
    lines = runner.run(hidden, flags=("--stats",)).errors.splitlines()
    (line,) = (line for line in lines if line.startswith("not patched"))
    assert line.startswith("not patched, nothing proves them STFLE: ")
    assert all(place in line for place in places(hidden))


@pytest.mark.parametrize(
    "flags",
    [("-no-pie",), ("-fPIE", "-pie"), ("-static",), ("-O0",), ("-Os",)],
    ids=["absolute", "pie", "static", "plain", "small"],
)
def test_a_case_of_a_switch_is_answered(runner: Runner, flags: tuple[str, ...]) -> None:
    """A table of a switch leads to its cases, however the program is compiled."""
    program = runner.compile("switch.c", *flags)
    ended = runner.run(program, "a", flags=("--json",))
    assert ended.output == "1\n"
    assert len(fates(ended, program)["patched"]) >= 1
    assert "unproven" not in fates(ended, program)


def test_patch_by_name(runner: Runner, hidden: Path) -> None:
    """--patch NAME patches the unproven places of that file; --no-patch of a place wins."""
    ended = runner.run(hidden, flags=("--json", "--patch", hidden.name))
    assert ended.output == "1 1 1\n"
    assert fates(ended, hidden) == {"patched": sorted(places(hidden))}
    first, second, third = places(hidden)
    chosen = ("--json", "--patch", hidden.name, "--no-patch", second)
    ended = runner.run(hidden, flags=chosen)
    assert ended.output == "1 0 1\n"
    assert fates(ended, hidden) == {"kept": [second], "patched": sorted((first, third))}


@pytest.mark.parametrize("number", range(len(NAMES)))
def test_patch_by_place(runner: Runner, hidden: Path, number: int) -> None:
    """--patch NAME+0xOFFSET patches that place and no other."""
    ended = runner.run(hidden, flags=("--patch", places(hidden)[number]))
    assert ended.output.split() == ["1" if i == number else "0" for i in range(len(NAMES))]
    assert ended.errors == ""


@pytest.mark.parametrize("flags", [(), ("-static",)], ids=["dynamic", "static"])
def test_no_patch(runner: Runner, flags: tuple[str, ...]) -> None:
    """--no-patch NAME leaves proven places, too, in static and dynamic programs."""
    program = runner.compile("add.c", *flags)
    ended = runner.run(program, flags=("--stats", "--no-patch", program.name))
    assert ended.output.splitlines()[0] == "stfle 0 hwcap 1"
    assert f"not patched, --no-patch: {program.name}+0x" in ended.errors


def test_rules_reach_programs_that_are_started(runner: Runner) -> None:
    """A program that a program starts gets the same rules."""
    life, add = runner.compile("life.c", "-lpthread", "-ldl"), runner.compile("add.c")
    ended = runner.run(life, "start", "spawn", add, flags=("--no-patch", add.name))
    assert "stfle 0 hwcap 1" in ended.output.splitlines()


@pytest.mark.parametrize("flag", ["--patch", "--no-patch"])
def test_a_name_without_a_place_is_named(runner: Runner, hidden: Path, flag: str) -> None:
    """A rule that matches nothing in the run is named in a line on standard error."""
    ended = runner.run(hidden, flags=(flag, "libmissing.so.1"))
    assert (ended.code, ended.output) == (0, "0 0 0\n")
    assert ended.errors == f"{flag}: libmissing.so.1 has no place that looks like STFLE\n"


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("./add",), "'./add', expected a file's name without folders"),
        (("a:b",), "'a:b', expected a file's name without folders"),
        (("",), "'', expected a file's name"),
        (("n" * 300, "m" * 300), "names of 601 bytes, limit 511; give fewer"),
    ],
)
def test_wrong_names_are_refused(
    runner: Runner, hidden: Path, names: tuple[str, ...], words: str
) -> None:
    """A name that no file can have, or too many names, is a usage error."""
    flags = tuple(word for name in names for word in ("--no-patch", name))
    ended = runner.run(hidden, flags=flags)
    assert ended.code == 2
    assert f"--no-patch: {words}" in ended.errors
