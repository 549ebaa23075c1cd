# SPDX-License-Identifier: Apache-2.0
"""The site: its tutorials run as they stand, its pages are in its table of contents."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SITE = Path(__file__).parents[2] / "deploy/site"
TUTORIALS = sorted((SITE / "tutorials").glob("*.md"))
_BLOCK = re.compile(r'^```(python|console)(?: title="(\S+)")?\n(.*?)^```$', re.M | re.S)


def program(language: str, text: str) -> list[str]:
    """Return the command that runs a block: Python, or the lines of a shell after "$ "."""
    if language == "python":
        return [sys.executable, "-W", "error", "-c", text]
    commands = re.findall(r"^\$ (.*)$", text, re.M)
    assert len(commands) == len(text.splitlines()), "a console shows commands alone"
    return ["bash", "-euo", "pipefail", "-c", "\n".join(commands)]


@pytest.mark.heavy
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs(path: Path, tmp_path: Path) -> None:
    """Blocks of a tutorial run in their order in an empty folder; one with a title is a file."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    blocks = _BLOCK.findall(path.read_text(encoding="utf-8"))
    assert blocks
    for language, title, text in blocks:
        if title:
            (tmp_path / title).write_text(text, encoding="utf-8")
            continue
        ended = subprocess.run(
            program(language, text), cwd=tmp_path, env=environment, capture_output=True, text=True,
            check=False, timeout=600,
        )  # fmt: skip
        assert ended.returncode == 0, f"{text}\n{ended.stdout}\n{ended.stderr}"


def test_every_page_is_in_the_table_of_contents() -> None:
    """The table of contents names each page of the site's own once, and files that exist."""
    text = (SITE / "mkdocs.yml").read_text(encoding="utf-8")
    named = re.findall(r"[\w./-]+\.md", text.partition("\nnav:\n")[2])
    own = {str(page.relative_to(SITE.parents[1])) for page in SITE.rglob("*.md")}
    assert own <= set(named)
    assert len(named) == len(set(named))
    assert [name for name in named if not (SITE.parents[1] / name).is_file()] == []
