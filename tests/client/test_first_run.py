# SPDX-License-Identifier: Apache-2.0
"""The first run on a machine, whose cache has no compiled kernel."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from nnpa_server.tuning.kernel_cache import sources_digest
from nnpa_server.tuning.warmup import kernel_marks

from tests.server.process import PATIENCE

DEMO = """
import signal
from nnpa_client.cli import main

signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background ignores it
main(["demo"])
"""
SUM = """
import numpy as np
from nnpa_client import connect, zdnn

connect().close()
with connect() as session:
    a = session.ztensor(np.ones((2, 3), np.float32))
    print(zdnn.add(a, a).numpy()[0, 0])
"""


@pytest.fixture
def first(tmp_path: Path) -> dict[str, str]:
    """An environment with an empty cache."""
    kept = {name: text for name, text in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    return {**kept, "XDG_CACHE_HOME": str(tmp_path)}


def told(environment: dict[str, str]) -> list[str]:
    """Return what a first program is told on its standard error; it has its result."""
    ended = subprocess.run(
        [sys.executable, "-c", SUM], env=environment, capture_output=True, text=True,
        timeout=PATIENCE, check=True,
    )  # fmt: skip
    assert ended.stdout == "2.0\n"
    return ended.stderr.splitlines()


@pytest.mark.shortcut
def test_connect_says_that_kernels_are_being_compiled(first: dict[str, str]) -> None:
    """`connect()` says in one line that kernels are not compiled yet, and what does it at once."""
    (line,) = told(first)
    assert line.startswith("nnpa: kernels are being compiled, once for this machine")
    assert "nnpa-server --compile-kernels" in line


def test_connect_says_nothing_where_kernels_are_compiled(first: dict[str, str]) -> None:
    """A cache in which all steps have left their file is not spoken of."""
    place = Path(first["XDG_CACHE_HOME"]) / f"nnpa/kernels-{sources_digest()}"
    place.mkdir(parents=True, mode=0o700)
    place.parent.chmod(0o700)
    for mark in kernel_marks(place).values():
        mark.touch()
    assert told(first) == []


@pytest.mark.heavy
def test_the_first_demo_reports_before_it_compiles(first: dict[str, str]) -> None:
    """The first `nnpa demo` has its whole report before kernels are compiled, which Ctrl-C ends."""
    with subprocess.Popen(
        [sys.executable, "-c", DEMO],
        env=first,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(2)]
        process.send_signal(signal.SIGINT)
        report, more = process.communicate(timeout=PATIENCE)
    assert lines[0].startswith("Times are those of NumPy.")
    assert lines[1].startswith("compiling kernels, once for this machine: 0 of ")
    assert (process.returncode, more) == (0, "")
    assert ["as", "promised", "yes", "yes"] in [line.split() for line in report.splitlines()]
