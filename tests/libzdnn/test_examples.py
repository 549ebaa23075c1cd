# SPDX-License-Identifier: Apache-2.0
"""The ten example programs of the zDNN API Reference 1.2.0 in C give the same bits as in Python."""

import re
import runpy
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nnpa_client import connect

from tests.libzdnn import toolchain
from tests.libzdnn.toolchain import LIBRARY, ROOT, TRANSFERS, Prefix

C = LIBRARY / "examples"
PYTHON = ROOT / "client/python/examples"
NAMES = sorted(path.stem for path in C.glob("*.c"))
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def _bits(results: Any) -> list[str]:
    arrays: Sequence[Any] = results if isinstance(results, list | tuple) else [results]
    words = [np.ascontiguousarray(array, "<f4").view("<u4").ravel() for array in arrays]
    return [f"{word:08X}" for word in np.concatenate(words).tolist()]


def test_the_ten_programs() -> None:
    """There are ten examples, and each exists in Python too."""
    assert len(NAMES) == 10
    assert set(NAMES) <= {path.stem for path in PYTHON.glob("*.py")}


@pytest.mark.parametrize("name", NAMES)
def test_same_bits_as_in_python(name: str, prefix: Prefix, server: str, tmp_path: Path) -> None:
    """A C example prints the bits of its Python translation, however sticks travel; no leak."""
    source = C / f"{name}.c"
    program = toolchain.compiled(source, tmp_path / name, prefix, "-std=gnu11", *SANITIZERS)
    with connect(server):
        results = runpy.run_path(str(PYTHON / f"{name}.py"))["main"]()
    if name == "add":
        expected = [f"out element {i} {element:f}" for i, element in enumerate(results)]
    else:
        expected = [] if name == "quantized_ztensor" else _bits(results)
    for transfer in TRANSFERS:
        environment = {"ZDNN_SERVER": server, "ZDNN_TRANSFER": transfer}
        assert toolchain.run([str(program)], **environment).splitlines() == expected, transfer


def test_static_library(prefix: Prefix, server: str, tmp_path: Path) -> None:
    """A program that is linked with libzdnn.a and calls zdnn_init needs no shared library."""
    program, source = tmp_path / "static", C / "lstm_forward.c"
    command = ["gcc", "-std=gnu11", "-Wall", "-Werror", "-DSTATIC_LIB", f"-I{prefix.include}"]
    libraries = [str(prefix.static), "-lpthread", "-ldl", "-lm"]
    toolchain.run([*command, str(source), "-o", str(program), *libraries])
    assert "libzdnn" not in toolchain.run(["ldd", str(program)])
    assert len(toolchain.run([str(program)], ZDNN_SERVER=server).splitlines()) == 30


BUILDING = re.compile(r"^    (gcc program\.c \$\(pkg-config .*)$", re.MULTILINE)


def test_a_program_starts_as_documented(prefix: Prefix, server: str, tmp_path: Path) -> None:
    """In an empty folder the README's line builds a program that finds the library by itself."""
    toolchain.require("pkg-config")
    shutil.copy(C / "add.c", tmp_path / "program.c")
    (line,) = BUILDING.findall((LIBRARY / "README.md").read_text())
    paths = {"PKG_CONFIG_PATH": str(prefix.path / "lib/pkgconfig"), "LD_LIBRARY_PATH": ""}
    toolchain.run(["sh", "-c", f"cd {tmp_path} && {line}"], **paths)
    printed = toolchain.run([str(tmp_path / "program")], ZDNN_SERVER=server, **paths)
    assert printed.splitlines()[-1] == "out element 3071 254.000000"


def test_cmake(prefix: Prefix, server: str, tmp_path: Path) -> None:
    """find_package(zdnn) gives a shared and a static target."""
    toolchain.require("cmake")
    lines = [
        "cmake_minimum_required(VERSION 3.16)",
        "project(consumer C)",
        "find_package(zdnn 1.2 REQUIRED)",
        f"add_executable(shared {C / 'add.c'})",
        "target_link_libraries(shared zdnn::zdnn)",
        f"add_executable(static {C / 'add.c'})",
        "target_link_libraries(static zdnn::zdnn_static)",
    ]
    (tmp_path / "CMakeLists.txt").write_text("\n".join(lines))
    build = tmp_path / "build"
    toolchain.run(
        ["cmake", "-S", str(tmp_path), "-B", str(build), f"-DCMAKE_PREFIX_PATH={prefix.path}"]
    )
    toolchain.run(["cmake", "--build", str(build)])
    for name in ("shared", "static"):
        printed = toolchain.run([str(build / name)], ZDNN_SERVER=server)
        assert printed.splitlines()[-1] == "out element 3071 254.000000"
