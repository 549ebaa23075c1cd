# SPDX-License-Identifier: Apache-2.0
"""The ten example programs of the zDNN API Reference, in every SDK: the same bits as in Python."""

import json
import os
import runpy
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nnpa_client import Ztensor, connect

from tests.conformance import java, typescript
from tests.conformance.testees import ROOT

EXAMPLES = ROOT / "client/python/examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py") if not path.stem.startswith("mli_"))
REQUIRED = "NNPA_REQUIRE_TOOLCHAINS"
SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Program:
    """An SDK's program that runs the ten.

    It takes the server's address as its argument, and prints one line of JSON per example: `name`,
    and `results`, a list of FP32 words for each array that the example returns; of
    `quantized_ztensor` the structure's rec_scale and offset. `tools` are what it takes; `build`
    gets a folder of its own and returns the command.
    """

    name: str
    tools: tuple[str, ...]
    build: Callable[[Path], list[str]]


def _typescript(_folder: Path) -> list[str]:
    return typescript.program("examples/run.js")


def _java(_folder: Path) -> list[str]:
    return java.program("dev.nnpa.examples.Examples")


def _go(folder: Path) -> list[str]:
    program, home = str(folder / "programs"), ROOT / "client/go"
    subprocess.run(["go", "build", "-o", program, "./examples/programs"], cwd=home, check=True)
    return [program]


PROGRAMS = (
    Program("go", ("go",), _go),
    Program("java", java.TOOLS, _java),
    Program("typescript", typescript.TOOLS, _typescript),
)


def _words(result: object) -> list[list[str]]:
    """Return what a Python example returned as words of FP32, one list per array."""
    if isinstance(result, Ztensor):
        result = np.array([result.rec_scale, result.offset], np.float32)
    arrays: Sequence[Any] = result if isinstance(result, tuple | list) else [result]
    bits = [np.ascontiguousarray(array, np.float32).view(np.uint32).ravel() for array in arrays]
    return [[f"{word:08X}" for word in words.tolist()] for words in bits]


@pytest.mark.conformance
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: str(program.name))
def test_the_ten_examples(program: Program, server: str, tmp_path: Path) -> None:
    """Each of the ten programs gives the same bits in the SDK as in Python."""
    missing = [tool for tool in program.tools if shutil.which(tool) is None]
    if missing:
        story = f"examples of {program.name}: {', '.join(missing)} not installed"
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(story)
        pytest.skip(story)
    command = [*program.build(tmp_path), server]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert ended.returncode == 0, ended.stderr[-2000:]
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    got = {line["name"]: line["results"] for line in lines}
    assert sorted(got) == NAMES
    for name in NAMES:
        with connect(server):
            expected = runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]()
        assert got[name] == _words(expected), name
