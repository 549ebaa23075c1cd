# SPDX-License-Identifier: Apache-2.0
"""libmli as its users get it: header, symbols, pkg-config, CMake, and a build's messages."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mli_emulator import KERNELS, ElType, MliStatus, RnnMode, RnnOutActivation

from tests.libmli import toolchain
from tests.libmli.toolchain import LIBRARY, Prefix

HEADER = LIBRARY / "include/mli_api.h"
EXAMPLE = LIBRARY / "examples/fully_connected.c"
ENUMS = (MliStatus, ElType, RnnMode, RnnOutActivation)
FUNCTIONS = {f"mli_{name}" for name in KERNELS}
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
NULL_INPUT = """
#include "mli_api.h"
int main(void) {
  mli_tensor out = {0};
  return mli_krn_tanh_fx8(0, &out);
}
"""


def _compile(compiler: str, standard: str, text: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"libmli: {compiler} not installed")
    language = "c++" if "+" in standard else "c"
    command = [compiler, f"-std={standard}", *WARNINGS, f"-I{HEADER.parent}", "-x", language]
    ended = subprocess.run(
        [*command, "-fsyntax-only", "-"], input=text, capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr[:2000]


def _values() -> list[str]:
    members = [f"{member.name} == {member.value}" for enum in ENUMS for member in enum]
    return [*members, "MLI_MAX_RANK == 4", "MLI_EL_LARGE_ENUM == 0x02000000"]


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("standard", ["c99", "c11", "c2x"])
def test_c(compiler: str, standard: str) -> None:
    """In every C, each name has the number that it has in Python, and idx may be left out."""
    checks = [f"typedef char v{n}[({value}) ? 1 : -1];" for n, value in enumerate(_values())]
    call = "int f(const mli_tensor *t) { return mli_hlp_tensor_scale(t) + g(t); }"
    with_idx = "static int g(const mli_tensor *t) { return mli_hlp_tensor_scale(t, 2); }"
    extern = "int f(const mli_tensor *t);"
    _compile(
        compiler, standard, "\n".join(['#include "mli_api.h"', *checks, extern, with_idx, call, ""])
    )


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize("standard", ["c++11", "c++17", "c++20"])
def test_cpp(compiler: str, standard: str) -> None:
    """In every C++, each name has the number that it has in Python, and idx may be left out."""
    checks = [f'static_assert({value}, "{n}");' for n, value in enumerate(_values())]
    call = "int f(const mli_tensor *t) { return mli_hlp_tensor_scale(t, 2); }"
    short = "int g(const mli_tensor *t) { return mli_hlp_tensor_scale(t) + f(t); }"
    _compile(compiler, standard, "\n".join(['#include "mli_api.h"', *checks, call, short, ""]))


def test_nothing_but_the_functions() -> None:
    """The header declares the emulator's functions, and no others."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(encoding="utf-8"), flags=re.S)
    declared = set(re.findall(r"^\w+ (mli_(?:krn|hlp)_\w+)\(", text, flags=re.M))
    assert declared == FUNCTIONS


def test_exports(prefix: Prefix) -> None:
    """`nm -D` shows the functions and nothing else."""
    lines = toolchain.run(["nm", "-D", "--defined-only", str(prefix.shared)]).splitlines()
    assert {line.split()[-1] for line in lines} == FUNCTIONS


def test_depends_on_the_c_library_only(prefix: Prefix) -> None:
    """`ldd` shows libc and libm beside the loader, and the library is found by its soname."""
    lines = toolchain.run(["ldd", str(prefix.shared)]).splitlines()
    names = {Path(line.split()[0]).name for line in lines}
    loader = {name for name in names if name.startswith(("ld-linux", "linux-vdso"))}
    assert names - loader <= {"libc.so.6", "libm.so.6"}
    dynamic = toolchain.run(["readelf", "-d", str(prefix.shared)])
    assert re.findall(r"\(SONAME\).*\[(.*)\]", dynamic) == ["libmli.so.0"]


def test_static_library_has_no_other_symbols(prefix: Prefix) -> None:
    """The archive's global symbols are the functions; inner names cannot clash with a program's."""
    lines = toolchain.run(["nm", "-g", "--defined-only", str(prefix.static)]).splitlines()
    assert {line.split()[-1] for line in lines if len(line.split()) == 3} == FUNCTIONS


def test_pkg_config(prefix: Prefix, tmp_path: Path) -> None:
    """A program compiles and runs with the flags of pkg-config."""
    toolchain.require("pkg-config")
    _runs_by_pkg_config(prefix, tmp_path / "program")


def _runs_by_pkg_config(prefix: Prefix, program: Path) -> None:
    where = str(prefix.path / "lib/pkgconfig")
    flags = toolchain.run(["pkg-config", "--cflags", "--libs", "mli"], PKG_CONFIG_PATH=where)
    toolchain.run(["gcc", str(EXAMPLE), "-o", str(program), *flags.split()])
    library_path = str(prefix.path / "lib")
    assert toolchain.run([str(program)], LD_LIBRARY_PATH=library_path).split() == ["24", "-8"]


def test_cmake(prefix: Prefix, tmp_path: Path) -> None:
    """find_package(mli) gives a shared and a static target, add_subdirectory the sources."""
    toolchain.require("cmake")
    lines = [
        "cmake_minimum_required(VERSION 3.16)",
        "project(consumer C)",
        "find_package(mli 0.1 REQUIRED)",
        f"add_executable(shared {EXAMPLE})",
        "target_link_libraries(shared mli::mli)",
        f"add_executable(static {EXAMPLE})",
        "target_link_libraries(static mli::mli_static)",
    ]
    _cmake(tmp_path / "installed", lines, prefix, "shared", "static")
    sources = [*lines[:2], f"add_subdirectory({LIBRARY} mli)", *lines[5:]]
    _cmake(tmp_path / "sources", sources, prefix, "static")


def _cmake(folder: Path, lines: list[str], prefix: Prefix, *programs: str) -> None:
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text("\n".join(lines))
    build = folder / "build"
    configure = ["cmake", "-S", str(folder), "-B", str(build), f"-DCMAKE_PREFIX_PATH={prefix.path}"]
    toolchain.run(configure)
    toolchain.run(["cmake", "--build", str(build)])
    for program in programs:
        assert toolchain.run([str(build / program)]).split() == ["24", "-8"]


def test_wheel(prefix: Prefix, tmp_path: Path) -> None:
    """The wheel has a program's files and flags, and names its system."""
    toolchain.require("gcc", "make", "pkg-config")
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("libmli: hatchling not installed")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    toolchain.run([*pip, *build, str(LIBRARY / "wheel")])
    (wheel,) = tmp_path.glob("*.whl")
    assert "manylinux_2_" in wheel.name
    place = str(tmp_path / "site")
    toolchain.run([*pip, "install", "--no-index", "--target", place, str(wheel)])
    where = [sys.executable, "-c", "import nnpa_libmli; print(nnpa_libmli.PREFIX)"]
    installed = Prefix(Path(toolchain.run(where, PYTHONPATH=place).strip()))
    _runs_by_pkg_config(installed, tmp_path / "program")
    names = {str(path.relative_to(prefix.path)) for path in prefix.path.rglob("*")}
    assert names <= {str(path.relative_to(installed.path)) for path in installed.path.rglob("*")}


@pytest.mark.parametrize(
    ("level", "returned", "printed"),
    [
        ("RELEASE", 0, ""),
        ("RET_CODES", MliStatus.MLI_STATUS_BAD_TENSOR, ""),
        ("ASSERT", -6, "MLI_STATUS_BAD_TENSOR (tensor_c1): in is NULL, must be a tensor\n"),
    ],
)
def test_debug_levels(level: str, returned: int, printed: str, tmp_path: Path) -> None:
    """`make MLI_DEBUG_MODE=` selects OK always, a status, or a sentence and an abort."""
    prefix = toolchain.installed(tmp_path, f"MLI_DEBUG_MODE={level}")
    source, program = tmp_path / "null.c", tmp_path / "null"
    source.write_text(NULL_INPUT)
    toolchain.run(["gcc", *WARNINGS[:1], str(source), "-o", str(program), *prefix.flags()])
    ended = subprocess.run([str(program)], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (returned, printed)
