# SPDX-License-Identifier: Apache-2.0
"""libzdnn for other machines: cross-compiled, run by QEMU, against a native server."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.libzdnn import toolchain
from tests.libzdnn.toolchain import LIBRARY, Prefix
from tests.vector_runner import VECTORS

BUILD_SECONDS = 1800
SILENT = {"quantized_ztensor"}
PROGRAMS = sorted({path.stem for path in (LIBRARY / "examples").glob("*.c")} - SILENT)


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine: its name in QEMU, its target in Rust, and its triplet in Debian."""

    name: str
    target: str
    debian: str

    @property
    def compiler(self) -> str:
        """Debian's cross compiler."""
        return f"{self.debian}-gcc"

    @property
    def emulator(self) -> list[str]:
        """The command that runs a program with the C library of Debian's cross packages."""
        root = f"/usr/{self.debian}"
        return [f"qemu-{self.name}", "-L", root, "-E", f"LD_LIBRARY_PATH={root}/lib"]


@dataclass(frozen=True, slots=True)
class Cross:
    """The library for another machine, installed."""

    machine: Machine
    prefix: Prefix


S390X = Machine("s390x", "s390x-unknown-linux-gnu", "s390x-linux-gnu")  # big-endian
ARM64 = Machine("aarch64", "aarch64-unknown-linux-gnu", "aarch64-linux-gnu")


@pytest.fixture(scope="module", params=[S390X, ARM64], ids=lambda machine: machine.name)
def cross(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cross:
    """The library for another machine, built from source."""
    machine: Machine = request.param
    toolchain.require("cargo", "rustup", machine.compiler, machine.emulator[0], "make")
    if machine.target not in toolchain.run(["rustup", "target", "list", "--installed"]).split():
        pytest.skip(f"libzdnn: rustup target {machine.target} not installed")
    prefix = tmp_path_factory.mktemp(machine.name) / "prefix"
    names = {"CARGO_TARGET_DIR": str(toolchain.CARGO_TARGET)}
    command = ["make", "-C", str(LIBRARY), "install", f"PREFIX={prefix}"]
    build = subprocess.run(
        [*command, f"TARGET={machine.target}", f"CROSS={machine.debian}-"],
        env={**os.environ, **names},
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
    )
    assert build.returncode == 0, build.stderr[-4000:]
    return Cross(machine, Prefix(prefix))


@pytest.mark.heavy
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_print_the_same_on_other_machines(
    name: str, cross: Cross, prefix: Prefix, server: str, tmp_path: Path
) -> None:
    """A program prints the same on another machine as on this one."""
    source = LIBRARY / f"examples/{name}.c"
    here = toolchain.compiled(source, tmp_path / "here", prefix, "-std=gnu11")
    foreign, compiler = tmp_path / "foreign", cross.machine.compiler
    toolchain.compiled(source, foreign, cross.prefix, "-std=gnu11", compiler=compiler)
    expected = toolchain.run([str(here)], ZDNN_SERVER=server)
    assert toolchain.run([*cross.machine.emulator, str(foreign)], ZDNN_SERVER=server) == expected
    assert len(expected.splitlines()) >= 15


@pytest.mark.heavy
@pytest.mark.parametrize("file", ["conv2d", "transform_ztensor", "quantized_matmul_op", "reduce"])
def test_same_answers_to_vectors(file: str, cross: Cross, prefix: Prefix, server: str) -> None:
    """Answers on another machine equal this machine's: words have the high digit first."""
    path = str(VECTORS / f"{file}.jsonl")
    answers = [
        subprocess.run(
            [*emulator, str(installed.path / "bin/zdnn-testee"), "--emulated", path],
            env={**os.environ, "ZDNN_SERVER": server, "ZDNN_LOGLEVEL": "off"},
            capture_output=True,
            text=True,
            timeout=300,
        ).stdout
        for emulator, installed in ((cross.machine.emulator, cross.prefix), ([], prefix))
    ]
    assert answers[0] == answers[1]
    assert '"steps"' in answers[0]
