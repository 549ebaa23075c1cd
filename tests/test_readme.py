# SPDX-License-Identifier: Apache-2.0
"""Python of the documents runs as it stands, their links lead somewhere, READMEs are short."""

import re
import subprocess
from functools import cache
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
MAX_LINES_OF_README = 150
MAX_LINES_OF_FRONT_PAGE = 200
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^```.*?^```$|^    [^\n]*$|<!--.*?-->", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)#?([^)\s]*)\)")


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


@pytest.mark.parametrize("name", [name for name in _documents() if name.endswith("README.md")])
def test_a_readme_is_short(name: str) -> None:
    """A README describes its room; manuals are pages of deploy/docs."""
    limit = MAX_LINES_OF_FRONT_PAGE if name == "README.md" else MAX_LINES_OF_README
    assert len((ROOT / name).read_text("utf-8").splitlines()) <= limit


@cache
def _anchors(name: str) -> set[str]:
    """Return the anchors of a document's headings, as the forge and the site make them."""
    headings = re.findall(r"^#+ (.*)$", _CODE.sub("", (ROOT / name).read_text("utf-8")), re.M)
    titles = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def _is_broken(name: str, path: str, anchor: str) -> bool:
    """Whether a link of a document leads to no file, or to no heading of a document."""
    target = (ROOT / name).parent / path if path else ROOT / name
    target = target / "README.md" if target.is_dir() else target
    if not target.is_file():
        return True
    is_document = target.suffix == ".md" and bool(anchor)
    return is_document and anchor not in _anchors(str(target.resolve().relative_to(ROOT)))


@pytest.mark.parametrize("name", _documents())
def test_links_lead_somewhere(name: str) -> None:
    """A link names a file of the repository, and a heading in it."""
    links = _LINK.findall(_CODE.sub("", (ROOT / name).read_text("utf-8")))
    assert [link for link in links if _is_broken(name, *link)] == []
