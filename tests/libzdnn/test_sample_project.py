# SPDX-License-Identifier: Apache-2.0
"""A project of its own, in an environment of its own, uses wheels and plugin as documented."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.libzdnn import toolchain
from tests.libzdnn.toolchain import CARGO_TARGET, LIBRARY, ROOT

PROJECT = ROOT / "tests/fixtures/sample_project"
SECONDS = 1800


def succeed(folder: Path, *command: str | Path, **environment: str) -> str:
    """Run a command that must succeed, in no environment of Python's; return its output."""
    foreign = ("PYTHON", "PYTEST", "VIRTUAL_ENV")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    ended = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={**plain, **environment},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert ended.returncode == 0, f"{command}:\n{ended.stdout[-4000:]}{ended.stderr[-4000:]}"
    return ended.stdout


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """The wheels of these sources."""
    toolchain.require("cargo", "gcc", "make")
    folder = tmp_path / "wheels"
    pip = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder)
    succeed(ROOT, *pip, ROOT)
    succeed(ROOT, *pip, LIBRARY / "wheel", CARGO_TARGET_DIR=str(CARGO_TARGET))
    return folder


@pytest.fixture
def project(wheels: Path, tmp_path: Path) -> Path:
    """A copy of the project with its library and program built, its environment in `venv`."""
    folder = tmp_path / "scores"
    for source in PROJECT.rglob("*"):
        if source.is_file() and not {"build", "__pycache__"} & set(source.parts):
            copy = folder / source.relative_to(PROJECT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(source.read_bytes())
    succeed(folder, sys.executable, "-m", "venv", "venv")
    groups = tomllib.loads((folder / "pyproject.toml").read_text())["dependency-groups"]
    install = (folder / "venv/bin/pip", "install", "-q", "--find-links", wheels)
    succeed(folder, *install, *groups["test"])
    flags = succeed(folder, folder / "venv/bin/nnpa", "libzdnn", "--cflags", "--libs").strip()
    succeed(folder, "make", f"ZDNN={flags}")
    return folder


@pytest.mark.heavy
def test_sample_project(project: Path) -> None:
    """The project's suite passes on a machine of its default, and on both Telums by workers."""
    suite = (project / "venv/bin/python", "-m", "pytest")
    assert re.search(r"^6 passed", succeed(project, *suite, "-q"), re.MULTILINE)
    output = succeed(project, *suite, "-q", "-n", "2", "--nnpa-machine", "telum1,telum2")
    assert re.search(r"^9 passed", output, re.MULTILINE)


def test_manual_shows_its_suite() -> None:
    """The project's README has the commands that are run here."""
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    for command in ("nnpa libzdnn --cflags --libs", "pytest -n 2 --nnpa-machine telum1,telum2"):
        assert command in text
