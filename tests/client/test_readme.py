# SPDX-License-Identifier: Apache-2.0
"""The page from C to Python has every function."""

import re
from pathlib import Path

from tests.client.zdnn.test_verbs import ARMS, LOCAL

PAGE = Path(__file__).parents[2] / "deploy/docs/python/zdnn.md"


def test_the_translation_table_has_all_functions() -> None:
    """The C-to-Python table has one row per function, and each row names it on both sides."""
    rows = re.findall(r"^\| `zdnn_(\w+)\(.*?\)` \| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert sorted(name for name, _python in rows) == sorted(set(ARMS) | LOCAL)
    for name, python in rows:
        assert re.search(rf"(zdnn|session)\.{name}\(", python), name
