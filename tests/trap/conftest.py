# SPDX-License-Identifier: Apache-2.0
"""The trap library of these sources, programs for s390x, and a server for them."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.client.server_process import serving

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
CROSS_COMPILER = "s390x-linux-gnu-gcc"
SECONDS = 120
NNPA = (sys.executable, "-c", "from nnpa_tools.cli import main; main()")


def require(*tools: str) -> None:
    """Skip the test where a tool is missing; fail it if NNPA_REQUIRE_TOOLCHAINS says so."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        end = pytest.fail if os.environ.get("NNPA_REQUIRE_TOOLCHAINS") == "1" else pytest.skip
        end(f"trap: {', '.join(missing)} not installed")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, which need a cross compiler and qemu-user."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.libzdnn)


@pytest.fixture(scope="session")
def trap_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, built from these sources."""
    require("make", CROSS_COMPILER, "qemu-s390x")
    out = tmp_path_factory.mktemp("trap")
    command = ["make", "-C", str(ROOT / "client/trap"), f"OUT={out}"]
    build = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert build.returncode == 0, build.stderr
    return out / "libnnpa-trap.so"


@dataclass(frozen=True, slots=True)
class Ended:
    """The exit code, the output and the errors of a program that ended."""

    code: int
    output: str
    errors: str


@dataclass(frozen=True, slots=True)
class Runner:
    """Compiles programs of the tests and runs them, by default at a shared server."""

    folder: Path
    library: Path
    server: str

    def compile(self, name: str, *flags: str) -> Path:
        """Return a program, or a library, compiled once."""
        program = self.folder / "".join((Path(name).stem, *flags)).replace("/", "")
        if not program.exists():
            sources = [str(PROGRAMS / part) for part in name.split()]
            warnings = ("-Wall", "-Wextra", "-Werror", "-O2", "-march=z13")
            command = [CROSS_COMPILER, *warnings, *sources, "-o", str(program), *flags]
            build = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
            assert build.returncode == 0, build.stderr
        return program

    def environment(self, **variables: str) -> dict[str, str]:
        """Return this process's environment for `nnpa run`."""
        return {**os.environ, "NNPA_TRAP_LIBRARY": str(self.library), **variables}

    def command(self, *command: str | Path, flags: tuple[str, ...] = ()) -> list[str]:
        """Return `nnpa run` of a command."""
        chosen = () if "--server" in flags or "--private" in flags else ("--server", self.server)
        flags = tuple(flag for flag in flags if flag != "--private")
        return [*NNPA, "run", *chosen, *flags, "--", *map(str, command)]

    def run(self, *command: str | Path, flags: tuple[str, ...] = (), **variables: str) -> Ended:
        """Run a command to its end."""
        ended = subprocess.run(
            self.command(*command, flags=flags),
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            cwd=self.folder,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    def filter(self, *command: str | Path, contents: bytes, **variables: str) -> bytes:
        """Run a command that reads these bytes and must succeed in silence; return its output."""
        ended = subprocess.run(
            self.command(*command),
            env=self.environment(**variables),
            input=contents,
            capture_output=True,
            timeout=SECONDS,
        )
        assert (ended.returncode, ended.stderr) == (0, b"")
        return ended.stdout


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server process that shares memory."""
    socket = Path(tmp_path_factory.mktemp("served")) / "nnpa.sock"
    flags = ("--max-sessions", "256", "--shared-memory", "--allow-faults")
    with serving([f"unix:{socket}"], *flags) as targets:
        yield targets[0]


@pytest.fixture(scope="session")
def runner(trap_library: Path, server: str, tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """A runner of programs for s390x."""
    return Runner(tmp_path_factory.mktemp("programs"), trap_library, server)
