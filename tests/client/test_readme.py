# SPDX-License-Identifier: Apache-2.0
"""The client's README: its Python runs, and its table has every function."""

import re
from pathlib import Path

import pytest

from tests.client.zdnn.test_verbs import ARMS, LOCAL

README = Path(__file__).parents[2] / "client" / "README.md"
TEXT = README.read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_python_blocks_run(block: str) -> None:
    """A Python block of the README runs as it stands."""
    exec(compile(block, str(README), "exec"), {"__name__": "readme"})


def test_the_translation_table_has_all_functions() -> None:
    """The C-to-Python table has one row per function, and each row names it on both sides."""
    rows = re.findall(r"^\| `zdnn_(\w+)\(.*?\)` \| (.*) \|$", TEXT, re.MULTILINE)
    assert sorted(name for name, _python in rows) == sorted(set(ARMS) | LOCAL)
    for name, python in rows:
        assert re.search(rf"(zdnn|session)\.{name}\(", python), name
