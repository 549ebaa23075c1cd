# SPDX-License-Identifier: Apache-2.0
"""The first run on a machine, whose cache has no compiled kernel."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.server.process import PATIENCE

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


@pytest.mark.heavy
def test_a_first_program_is_told_nothing(first: dict[str, str]) -> None:
    """A program's first sum on a machine comes without a word: nothing waits for a compiler."""
    ended = subprocess.run(
        [sys.executable, "-c", SUM], env=first, capture_output=True, text=True, timeout=PATIENCE,
        check=True,
    )  # fmt: skip
    assert (ended.stdout, ended.stderr) == ("2.0\n", "")


@pytest.mark.heavy
def test_the_first_demo_ends_with_its_report(first: dict[str, str]) -> None:
    """On an empty cache the prompt comes back with the report, which closes with a next command."""
    with subprocess.Popen(
        [sys.executable, "-uc", "from nnpa_tools.cli import main; main(['demo'])"],
        env=first, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        lines, times = list[str](), list[float]()
        for line in process.stdout:
            lines.append(line)
            times.append(time.monotonic())
        process.wait()
        ended = time.monotonic()
        assert (process.returncode, process.stderr.read()) == (0, "")
    assert lines[-2] == "On 360 digits DLFLOAT16 changed no answer on any machine.\n"
    assert lines[-1].startswith("Next: ")
    assert lines[-1].split()[2:4] == ["network", "analyze"]
    assert Path(lines[-1].split()[-1]).suffix == ".onnx"
    assert ended - times[-1] < 5, "the prompt comes with the report"
    titles = "convolutional network", "LSTM, row by row", "the same, ONNX hosted", "as promised"
    shown = [next(time for line, time in zip(lines, times, strict=True) if title in line)
             for title in titles]  # fmt: skip
    assert shown == sorted(shown)
    assert shown[1] - shown[0] > 0.05, "a part is printed as soon as it is done"
