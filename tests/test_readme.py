# SPDX-License-Identifier: Apache-2.0
"""What the READMEs show runs as it stands, and their lines are short."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
READMES = (
    "README.md",
    "client/README.md",
    "client/python/README.md",
    "client/tools/README.md",
    "server/README.md",
    "emulator/README.md",
    "protos/README.md",
)
ELSEWHERE = {
    "import ray\n": "takes a Ray cluster: tests/tools/evaluation/test_ray_data.py runs it",
    "import torch\n": "takes PyTorch: tests/torch/test_compile.py runs it",
}
TUTORIALS = "deploy/docs/tutorials/"  # tests/deploy/test_site.py runs them
FRAMEWORKS = "deploy/docs/frameworks.md"  # tests/network/test_frameworks.py runs it
MAX_LINE = 120
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _blocks() -> list[tuple[str, int, str]]:
    """Return the Python blocks of all READMEs with their line."""
    blocks: list[tuple[str, int, str]] = []
    for name in READMES:
        path = ROOT / name
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for block in _BLOCK.finditer(text):
            blocks.append((name, text.count("\n", 0, block.start()) + 2, block[1]))
    return blocks


BLOCKS = _blocks()


@pytest.mark.parametrize(
    ("name", "line", "code"), BLOCKS, ids=[f"{name}:{line}" for name, line, _ in BLOCKS]
)
def test_a_block_runs(name: str, line: int, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python block of a README runs by itself, without an exception or a warning."""
    for line_of_code, why in ELSEWHERE.items():
        if line_of_code in code:
            pytest.skip(why)
    monkeypatch.chdir(ROOT)
    compiled = compile("\n" * (line - 1) + code, str(ROOT / name), "exec")
    exec(compiled, {"__name__": "__main__"})  # the block is the test


def test_the_front_door_and_the_client_show_code() -> None:
    """The front door and the client show code."""
    assert {"README.md", "client/README.md", "emulator/README.md"} <= {
        name for name, _, _ in BLOCKS
    }


def _documents() -> list[str]:
    """Return the documents of the repository; the changelog has one sentence per line."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    names = set(listed.stdout.splitlines()) or set(READMES)
    return sorted(names - {"CHANGELOG.md"})


def test_python_of_every_document_runs() -> None:
    """A document with Python is a README whose blocks run here, or a tutorial, which has a test."""
    with_code = {name for name in _documents() if "```python" in (ROOT / name).read_text("utf-8")}
    assert {name for name in with_code if not name.startswith(TUTORIALS)} <= {*READMES, FRAMEWORKS}


@pytest.mark.parametrize("name", _documents())
def test_lines_are_short(name: str) -> None:
    """A line outside tables and code has at most 120 characters."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / name).read_text("utf-8"), flags=re.M | re.S)
    lines = [line for line in text.splitlines() if not line.startswith(("|", "    ", "<details>"))]
    assert [line for line in lines if len(line) > MAX_LINE] == []
