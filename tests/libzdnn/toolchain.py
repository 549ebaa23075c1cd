# SPDX-License-Identifier: Apache-2.0
"""libzdnn built from source, once per content of its sources, outside the repository."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "client/libzdnn"
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "nnpa-libzdnn"
CARGO_TARGET = _CACHE / "target"
PLAIN = bool(os.environ.get("NNPA_TEST_PLAIN"))
"""Whether this is the plain stage, in which programs use no shortcut."""
TRANSFERS = ("sticks",) if PLAIN else ("sticks", "cache", "shm")
"""How sticks may travel: ZDNN_TRANSFER. The first is the oracle of the others."""
_BUILD_SECONDS = 1800
_KEPT = 3


@dataclass(frozen=True, slots=True)
class Prefix:
    """Where libzdnn is installed."""

    path: Path

    @property
    def include(self) -> Path:
        """The folder of `zdnn.h`."""
        return self.path / "include"

    @property
    def shared(self) -> Path:
        """The shared library."""
        return self.path / "lib/libzdnn.so.0"

    @property
    def static(self) -> Path:
        """The static library."""
        return self.path / "lib/libzdnn.a"

    def flags(self) -> list[str]:
        """Return the flags that link a program with the shared library and find it at run time."""
        lib = self.path / "lib"
        return [f"-I{self.include}", f"-L{lib}", "-lzdnn", f"-Wl,-rpath,{lib}"]


def require(*tools: str) -> None:
    """Skip the test, with one line, where a tool is missing."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"libzdnn: {', '.join(missing)} not installed")


def _sources() -> list[Path]:
    mine = [
        path
        for path in LIBRARY.rglob("*")
        if path.is_file()
        and not {"target", "examples", "wheel"} & set(path.relative_to(LIBRARY).parts)
    ]
    return sorted([*mine, *(ROOT / "protos/nnpa").rglob("*.proto")])


def _digest() -> str:
    digest = hashlib.sha256(sysconfig.get_platform().encode())
    for path in _sources():
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _forget_old(keep: Path) -> None:
    old = sorted(_CACHE.glob("prefix-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in old[_KEPT:]:
        if path != keep:
            shutil.rmtree(path, ignore_errors=True)


def installed() -> Prefix:
    """Return a prefix with the library of these sources; build it if there is none."""
    require("cargo", "gcc", "make")
    prefix = _CACHE / f"prefix-{_digest()}"
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (prefix / "done").exists():
            target = {**os.environ, "CARGO_TARGET_DIR": str(CARGO_TARGET)}
            command = ["make", "-C", str(LIBRARY), "install", f"PREFIX={prefix}"]
            build = subprocess.run(
                command, env=target, capture_output=True, text=True, timeout=_BUILD_SECONDS
            )
            assert build.returncode == 0, build.stderr[-4000:]
            (prefix / "done").touch()
            _forget_old(prefix)
    return Prefix(prefix)


def compiled(
    source: Path, program: Path, prefix: Prefix, *flags: str, compiler: str = "gcc"
) -> Path:
    """Compile a C program against the shared library, warnings being errors; return it."""
    command = [compiler, "-Wall", "-Wextra", "-Werror", "-g", str(source), "-o", str(program)]
    run([*command, *flags, *prefix.flags()])
    return program


def environment(**variables: str) -> dict[str, str]:
    """Return this process's environment with only these variables of the library.

    In the plain stage ZDNN_PLAIN is one more.
    """
    plain = {"ZDNN_PLAIN": "1"} if PLAIN else {}
    clean = {name: text for name, text in os.environ.items() if not name.startswith("ZDNN_")}
    return {**clean, **plain, **variables}


def run(command: Sequence[str], **variables: str) -> str:
    """Run a command that must succeed without a word on stderr; return its output."""
    answer = subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=120
    )
    assert answer.returncode == 0, f"{command}: {answer.returncode}\n{answer.stderr}"
    assert answer.stderr == "", answer.stderr
    return answer.stdout
