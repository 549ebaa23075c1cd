# SPDX-License-Identifier: Apache-2.0
"""Python of the documents runs as it stands, and their lines are short."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ELSEWHERE = {
    "import ray\n": "takes a Ray cluster: tests/tools/evaluation/test_ray_data.py runs it",
    "import torch\n": "takes PyTorch: tests/torch/test_compile.py runs it",
}
RUN_BY_OTHERS = (
    "deploy/docs/tutorials/",  # tests/deploy/test_site.py runs them
    "deploy/docs/frameworks.md",  # tests/network/test_frameworks.py runs it
)
MAX_LINE = 120
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _documents() -> list[str]:
    """Return the documents of the repository; the changelog has one sentence per line."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    names = listed.stdout.splitlines() or ["README.md"]
    return sorted({name for name in names if (ROOT / name).is_file()} - {"CHANGELOG.md"})


def _blocks() -> list[tuple[str, int, str]]:
    """Return the Python blocks of the documents that no other test runs, with their line."""
    blocks: list[tuple[str, int, str]] = []
    for name in _documents():
        text = "" if name.startswith(RUN_BY_OTHERS) else (ROOT / name).read_text(encoding="utf-8")
        for block in _BLOCK.finditer(text):
            blocks.append((name, text.count("\n", 0, block.start()) + 2, block[1]))
    return blocks


BLOCKS = _blocks()


@pytest.mark.parametrize(
    ("name", "line", "code"),
    [
        pytest.param(*block, marks=() if block[0] == "README.md" else pytest.mark.heavy)
        for block in BLOCKS
    ],
    ids=[f"{name}:{line}" for name, line, _ in BLOCKS],
)
def test_a_block_runs(name: str, line: int, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python block of a document runs by itself, without an exception or a warning."""
    for line_of_code, why in ELSEWHERE.items():
        if line_of_code in code:
            pytest.skip(why)
    monkeypatch.chdir(ROOT)
    compiled = compile("\n" * (line - 1) + code, str(ROOT / name), "exec")
    exec(compiled, {"__name__": "__main__"})  # the block is the test


def test_the_front_doors_show_code() -> None:
    """The READMEs of the repository, the clients and the emulators show code."""
    assert {"README.md", "client/README.md", "emulator/README.md"} <= {
        name for name, _, _ in BLOCKS
    }


@pytest.mark.parametrize("name", _documents())
def test_lines_are_short(name: str) -> None:
    """A line outside tables and code has at most 120 characters."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / name).read_text("utf-8"), flags=re.M | re.S)
    lines = [line for line in text.splitlines() if not line.startswith(("|", "    ", "<details>"))]
    assert [line for line in lines if len(line) > MAX_LINE] == []
