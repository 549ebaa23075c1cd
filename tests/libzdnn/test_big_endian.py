# SPDX-License-Identifier: Apache-2.0
"""libzdnn as a big-endian machine has it: built for s390x, run by QEMU, against a native server."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.libzdnn import toolchain
from tests.libzdnn.toolchain import LIBRARY, Prefix
from tests.vector_runner import VECTORS

TARGET = "s390x-unknown-linux-gnu"
CROSS = "s390x-linux-gnu-"
SYSROOT = Path("/usr/s390x-linux-gnu")  # where Debian's cross packages put the C library
BUILD_SECONDS = 1800


@pytest.fixture(scope="module")
def big_endian(tmp_path_factory: pytest.TempPathFactory) -> Prefix:
    """The library for s390x."""
    toolchain.require("cargo", "rustup", f"{CROSS}gcc", "qemu-s390x", "make")
    if TARGET not in toolchain.run(["rustup", "target", "list", "--installed"]).split():
        pytest.skip(f"libzdnn: rustup target {TARGET} not installed")
    prefix = tmp_path_factory.mktemp("s390x") / "prefix"
    names = {"CARGO_TARGET_DIR": str(toolchain.CARGO_TARGET)}
    command = ["make", "-C", str(LIBRARY), "install", f"PREFIX={prefix}"]
    made = subprocess.run(
        [*command, f"TARGET={TARGET}", f"CROSS={CROSS}"],
        env={**os.environ, **names},
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
    )
    assert made.returncode == 0, made.stderr[-4000:]
    return Prefix(prefix)


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["add", "lstm_forward", "quantized_matmul", "gru_forward"])
def test_same_results(
    name: str, big_endian: Prefix, prefix: Prefix, server: str, tmp_path: Path
) -> None:
    """A program prints on a big-endian machine what it prints on this one."""
    source = LIBRARY / f"examples/{name}.c"
    here = toolchain.compiled(source, tmp_path / "here", prefix, "-std=gnu11")
    there = tmp_path / "there"
    toolchain.compiled(source, there, big_endian, "-std=gnu11", compiler=f"{CROSS}gcc")
    qemu = ["qemu-s390x", "-L", str(SYSROOT), "-E", f"LD_LIBRARY_PATH={SYSROOT / 'lib'}"]
    expected = toolchain.run([str(here)], ZDNN_SERVER=server)
    assert toolchain.run([*qemu, str(there)], ZDNN_SERVER=server) == expected
    assert len(expected.splitlines()) >= 15


@pytest.mark.heavy
@pytest.mark.parametrize("file", ["conv2d", "transform_ztensor", "quantized_matmul_op", "reduce"])
def test_same_answers_to_vectors(
    file: str, big_endian: Prefix, prefix: Prefix, server: str
) -> None:
    """Words of sticks and arrays are those of a little-endian machine, most significant first."""
    qemu = ["qemu-s390x", "-L", str(SYSROOT), "-E", f"LD_LIBRARY_PATH={SYSROOT / 'lib'}"]
    path = str(VECTORS / f"{file}.jsonl")
    told = [
        subprocess.run(
            [*emulator, str(one.path / "bin/zdnn-testee"), "--emulated", path],
            env={**os.environ, "ZDNN_SERVER": server, "ZDNN_LOGLEVEL": "off"},
            capture_output=True,
            text=True,
            timeout=300,
        ).stdout
        for emulator, one in ((qemu, big_endian), ([], prefix))
    ]
    assert told[0] == told[1]
    assert '"steps"' in told[0]
