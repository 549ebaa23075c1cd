# SPDX-License-Identifier: Apache-2.0
"""Containers for s390x, whose programs the system starts by qemu through binfmt_misc.

The image is made of Debian's packages; binfmt_misc knows s390x only as long as these tests run.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.libzdnn.toolchain import require
from tests.trap.conftest import SECONDS, Ended, Runner

REGISTRATION = "nnpa-test-s390x"
MAGIC = rb"\x7fELF\x02\x02\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x16"
MASK = rb"\xff\xff\xff\xff\xff\xff\xff\xfc\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff"
PACKAGES = "dash,libc6,coreutils"
LIBRARY = "/opt/nnpa/libnnpa-trap.so"


@pytest.fixture(scope="module", autouse=True)
def started_by_the_system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have the kernel start qemu for programs for s390x, in containers too."""
    require("qemu-s390x-static")
    if os.geteuid() != 0:
        pytest.skip("only root may register an architecture and start these containers")
    folder = tmp_path_factory.mktemp("binfmt_misc")
    mounted = subprocess.run(
        ["mount", "-t", "binfmt_misc", "binfmt_misc", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"this kernel has no binfmt_misc: {mounted.stderr.strip()}")
    interpreter = str(shutil.which("qemu-s390x-static")).encode()
    rule = b":".join((b"", REGISTRATION.encode(), b"M", b"", MAGIC, MASK, interpreter, b"OF"))
    try:
        (folder / "register").write_bytes(rule)
        yield
        (folder / REGISTRATION).write_text("-1")
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@dataclass(frozen=True, slots=True)
class Container:
    """A container of Debian for s390x, and the engine that runs programs in it."""

    engine: tuple[str, ...]
    name: str

    def command(self, program: Path, *command: str) -> list[str]:
        """Return the command line in the container, with socket, library and program mounted."""
        volumes = (
            "$NNPA_TRAP_SOCKET:$NNPA_TRAP_SOCKET",
            "$NNPA_TRAP_STATS:$NNPA_TRAP_STATS",
            f"$NNPA_TRAP_LIBRARY:{LIBRARY}:ro",
            f"{program}:/program:ro",
        )
        names = ("NNPA_TRAP_SOCKET", "NNPA_TRAP_SESSION", "NNPA_TRAP_MACHINE", "NNPA_TRAP_STATS")
        variables = (*(f"{name}=${name}" for name in names), f"LD_PRELOAD={LIBRARY}")
        line = [*self.engine, "run", "--network", "host"]
        line += [word for volume in volumes for word in ("-v", f'"{volume}"')]
        line += [word for variable in variables for word in ("-e", f'"{variable}"')]
        line += [self.name, "--", *command]
        return ["sh", "-c", " ".join(line)]

    def run(self, runner: Runner, program: Path, *command: str, machine: str = "z17") -> Ended:
        """Run a command in the container by `nnpa run`."""
        flags = ("--container", "--machine", machine, "--stats")
        return runner.run(*self.command(program, *command), flags=flags)


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """A container with files from Debian's packages."""
    require("mmdebstrap", "buildah", "runc")
    folder = tmp_path_factory.mktemp("containers")
    files = folder / "debian.tar"
    bootstrap = [
        "mmdebstrap",
        "--quiet",
        "--arch=s390x",
        "--variant=extract",
        f"--include={PACKAGES}",
    ]
    subprocess.run([*bootstrap, "bookworm", str(files)], check=True, timeout=SECONDS)
    places = ("--root", str(folder / "root"), "--runroot", str(folder / "run"))
    engine = ("buildah", *places, "--storage-driver", "vfs")
    started = subprocess.run([*engine, "from", "scratch"], check=True, capture_output=True)
    name = started.stdout.decode().strip()
    subprocess.run([*engine, "add", "-q", name, str(files), "/"], check=True, timeout=SECONDS)
    yield Container(engine, name)
    subprocess.run([*engine, "rm", name], check=True, capture_output=True)


def test_query_and_addition(runner: Runner, container: Container) -> None:
    """A program in a container finds the facility, adds, and returns its code."""
    program = runner.compile("add.c")
    ended = container.run(runner, program, "/program")
    assert ended.output == runner.run(program).output
    assert ended.output.splitlines()[0] == "stfle 1 hwcap 1"
    assert ended.code == 7
    assert "NNPA instructions: 4 (QAF 1, ADD 3)" in ended.errors


def test_programs_that_programs_start(runner: Runner, container: Container) -> None:
    """A program that a shell of the container starts has the instruction, too."""
    ended = container.run(runner, runner.compile("add.c"), "sh", "-c", "'/program; /program'")
    assert ended.output.splitlines().count("add 4100") == 2
    assert ended.code == 7


def test_machine(runner: Runner, container: Container) -> None:
    """A container on a z15 finds no facility, and the instruction ends it."""
    command = ("sh", "-c", "'/program; echo $?'")  # a first process is not ended by its signals
    ended = container.run(runner, runner.compile("add.c"), *command, machine="z15")
    assert ended.output.splitlines()[-1] == str(128 + 4)


def test_no_program(runner: Runner) -> None:
    """An engine that is not installed, and a sysroot for a container, are refused by name."""
    ended = runner.run("no-such-engine", flags=("--container",))
    assert (ended.code, "no-such-engine: no program of this host" in ended.errors) == (2, True)
    ended = runner.run("sh", flags=("--container", "--sysroot", "/"))
    assert (ended.code, "--sysroot: a container has files of its own" in ended.errors) == (2, True)
