# SPDX-License-Identifier: Apache-2.0
"""libzdnn in hosts of other languages: C++, a program with its own protobuf, a JVM, the wheel."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from nnpa_client import libzdnn
from nnpa_tools.cli import main

from tests.libzdnn import toolchain
from tests.libzdnn.toolchain import LIBRARY, Prefix

PROGRAMS = Path(__file__).parent / "programs"
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.mark.parametrize("standard", ["c++11", "c++17", "c++23"])
def test_cpp_wrapper(standard: str, prefix: Prefix, server: str, tmp_path: Path) -> None:
    """The C++ wrapper computes, throws and frees, in old C++ and new."""
    toolchain.require("g++")
    source, program = LIBRARY / "examples/matmul.cpp", tmp_path / "matmul"
    flags = (f"-std={standard}", "-Wpedantic", *SANITIZERS)
    toolchain.compiled(source, program, prefix, *flags, compiler="g++")
    printed = toolchain.run([str(program)], ZDNN_SERVER=server, ZDNN_LOGLEVEL="off")
    shape = "ZDNN_INVALID_SHAPE: Invalid shape in one (or more) of the input/output tensor(s)."
    assert printed.splitlines() == ["14", "25", "20", "31", shape]


def test_host_with_protobuf(prefix: Prefix, server: str, tmp_path: Path) -> None:
    """A program may have a protobuf of its own, of any version."""
    toolchain.require("g++", "pkg-config")
    if subprocess.run(["pkg-config", "--exists", "protobuf"]).returncode:
        pytest.skip("libzdnn: libprotobuf-dev not installed")
    flags = toolchain.run(["pkg-config", "--cflags", "--libs", "protobuf"]).split()
    program = tmp_path / "host"
    source = str(PROGRAMS / "protobuf_host.cpp")
    toolchain.run(["g++", "-std=c++17", source, "-o", str(program), *prefix.flags(), *flags])
    assert toolchain.run([str(program)], ZDNN_SERVER=server) == "right\n"


def test_jvm(prefix: Prefix, server: str, tmp_path: Path) -> None:
    """A JVM calls the library from several threads while it collects garbage."""
    toolchain.require("java", "javac")
    settings = subprocess.run(
        ["java", "-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
        timeout=60,
    ).stderr
    home = re.search(r"java\.home = (.*)", settings)
    assert home is not None
    include = Path(home[1]) / "include"
    if not (include / "jni.h").exists():
        pytest.skip("libzdnn: jni.h not installed")
    library = tmp_path / "libhost.so"
    headers = (f"-I{include}", f"-I{include / 'linux'}")
    toolchain.compiled(PROGRAMS / "host_jni.c", library, prefix, "-shared", "-fPIC", *headers)
    toolchain.run(["javac", "-d", str(tmp_path), str(PROGRAMS / "Host.java")])
    command = ["java", "-Xcheck:jni", "-cp", str(tmp_path), "Host", str(library)]
    assert toolchain.run(command, ZDNN_SERVER=server) == "right\n"


def test_command_without_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the library is not installed, the command says how to get it."""
    monkeypatch.setattr(libzdnn, "_PACKAGE", "nnpa_libzdnn_is_not_there")
    answer = CliRunner().invoke(main, ["libzdnn", "--path"])
    assert answer.exit_code == 1
    assert "pip install client/libzdnn/wheel in a clone of nnpa" in answer.output


def _newest_glibc(library: Path) -> str:
    """Return the tag of the oldest system with every symbol version that the library needs."""
    command = ["nm", "-D", "--with-symbol-versions", "--undefined-only", str(library)]
    versions = re.findall(r"@GLIBC_(\d+)\.(\d+)", toolchain.run(command))
    return "manylinux_{}_{}_".format(*max((int(a), int(b)) for a, b in versions))


@pytest.mark.heavy
def test_wheel(server: str, tmp_path: Path) -> None:
    """The wheel carries all that a program needs, says on which systems, and where it is."""
    toolchain.require("cargo", "gcc", "make")
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("libzdnn: hatchling not installed")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    built = ["wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    target = str(toolchain.CARGO_TARGET)
    toolchain.run([*pip, *built, str(LIBRARY / "wheel")], CARGO_TARGET_DIR=target)
    (wheel,) = tmp_path.glob("*.whl")
    assert _newest_glibc(toolchain.installed().shared) in wheel.name
    place = tmp_path / "site"
    toolchain.run([*pip, "install", "--no-index", "--target", str(place), str(wheel)])
    run = [sys.executable, "-c", "from nnpa_tools.commands.libzdnn import libzdnn; libzdnn()"]
    flags = toolchain.run([*run, "--cflags", "--libs"], PYTHONPATH=str(place)).split()
    program, source = tmp_path / "add", str(LIBRARY / "examples/add.c")
    toolchain.run(["gcc", "-std=gnu11", source, "-o", str(program), *flags])
    printed = toolchain.run([str(program)], ZDNN_SERVER=server)
    assert printed.splitlines()[-1] == "out element 3071 254.000000"
