# SPDX-License-Identifier: Apache-2.0
"""libmli built from source: installed as its users install it, or with sanitizers as a program."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from mli_emulator import DebugLevel, Options

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "client/libmli"
PROGRAMS = Path(__file__).parent / "programs"
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-ffp-contract=off", "-g", "-O1")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@dataclass(frozen=True, slots=True)
class Prefix:
    """The folder where libmli is installed."""

    path: Path

    @property
    def shared(self) -> Path:
        """The shared library."""
        return self.path / "lib/libmli.so.0"

    @property
    def static(self) -> Path:
        """The static library."""
        return self.path / "lib/libmli.a"

    def flags(self) -> list[str]:
        """Return the flags that link a program with the shared library, also at run time."""
        lib = self.path / "lib"
        return [f"-I{self.path / 'include'}", f"-L{lib}", "-lmli", f"-Wl,-rpath,{lib}"]


def require(*tools: str) -> None:
    """Skip the test where a tool is missing; fail it if NNPA_REQUIRE_TOOLCHAINS says so."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        reason = f"libmli: {', '.join(missing)} not installed"
        assert os.environ.get("NNPA_REQUIRE_TOOLCHAINS") != "1", reason
        pytest.skip(reason)


def run(command: Sequence[str], seconds: float = 300, **variables: str) -> str:
    """Run a command that must succeed without a word on stderr; return its output."""
    environment = {**os.environ, **variables}
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=seconds
    )
    assert ended.returncode == 0, f"{command}: {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
    assert ended.stderr == "", ended.stderr
    return ended.stdout


def installed(folder: Path, *options: str) -> Prefix:
    """Build the library by its makefile, and install it."""
    require("gcc", "make", "ld", "objcopy")
    prefix = folder / "prefix"
    variables = [f"OUT={folder / 'out'}", f"PREFIX={prefix}", *options]
    run(["make", "-s", "-C", str(LIBRARY), "install", *variables])
    return Prefix(prefix)


def definitions(options: Options) -> list[str]:
    """Return the compiler's definitions of the options that a build fixes."""
    conversion = {"exact": "EXACT", "2.0.2": "LIBRARY_2_0_2", "2.0 EA": "LIBRARY_2_0_EA"}
    return [
        f"-DMLI_DEBUG_MODE=DBG_MODE_{options.debug.name}",
        f"-DROUND_MODE=ROUND_MODE_{options.rounding.name}",
        f"-DACCUMULATOR=ACCUMULATOR_{options.accumulator.name}",
        f"-DCONVERSION=CONVERSION_{conversion[options.conversion.value]}",
    ]


def sanitized(source: Path, program: Path, options: Options) -> Path:
    """Compile a program and the library's sources for these options, with sanitizers; return it."""
    require("gcc")
    sources = [str(path) for path in sorted((LIBRARY / "src").glob("*.c"))]
    flags = [*STRICT, *SANITIZERS, *definitions(options), f"-I{LIBRARY / 'include'}"]
    run(["gcc", *flags, str(source), *sources, "-o", str(program), "-lm"])
    return program


def runs_sanitized(program: Path, options: Options, *arguments: str) -> str:
    """Run a sanitized program; memory that an abort leaves behind is no leak."""
    leaks = int(options.debug < DebugLevel.ASSERT)
    return run([str(program), *arguments], 1800, ASAN_OPTIONS=f"detect_leaks={leaks}")
