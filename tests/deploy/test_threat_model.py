# SPDX-License-Identifier: Apache-2.0
"""The tables of what is defended: each row has tests that exist, each attack a row."""

import ast
import re
from functools import cache
from pathlib import Path

from tests.hostile import attack

TOP = Path(__file__).parents[2]
TESTS = TOP / "tests"
_HEADS = ["attempt", "answer", "test", "attack"]


def _section(title: str) -> str:
    """Return the text under a heading of the second level."""
    text = (TOP / "deploy/docs/defended.md").read_text(encoding="utf-8")
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def _rows(section: str) -> list[list[str]]:
    """Return the cells of the rows of all tables."""
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def _defended() -> list[list[str]]:
    """Return the rows of the tables of attempts."""
    rows = _rows(_section("Attempts and answers"))
    return [row for row in rows if row != _HEADS and not row[0].startswith("---")]


@cache
def _tests_of(name: str) -> set[str]:
    """Return the names of the tests of a file."""
    tree = ast.parse((TESTS / name).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_attempt_names_tests_that_exist() -> None:
    """A row names tests in full, or more of the file that it named last; all of them exist."""
    assert len(_defended()) > 40
    for attempt, answer, tests, _ in _defended():
        assert attempt, tests
        assert answer, attempt
        file, names = "", re.findall(r"`([\w/]+\.py)?::(\w+)`", tests)
        assert names, attempt
        for named_file, function in names:
            file = named_file or file
            assert function.startswith("test_"), attempt
            assert function in _tests_of(file), f"{attempt}: {file}::{function}"
        assert len(names) == tests.count("::"), attempt


def test_every_attack_is_an_attempt() -> None:
    """Each number of `poe attack` stands in a row, and no other one does."""
    numbers = re.compile(r"\d+")
    named = {int(number) for row in _defended() for number in numbers.findall(row[3])}
    assert named == {int(numbers.findall(number)[0]) for number in attack.load_rows()}


def test_what_is_not_defended_has_a_reason() -> None:
    """Each row says what, and why the server cannot."""
    rows = _rows(_section("What is not defended"))[2:]
    assert rows
    assert all(what and why for what, why, _ in rows)
