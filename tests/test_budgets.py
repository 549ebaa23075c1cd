# SPDX-License-Identifier: Apache-2.0
"""Rooms keep to their budgets of lines."""

import pytest

from tests import budgets


def test_each_room_keeps_to_its_budget() -> None:
    """No room has more hand-written lines than `budgets.toml` gives it."""
    lines = budgets.count_lines()
    above = {
        f"{name}: {lines[name]} lines, {room.lines} at most"
        for name, room in budgets.budgets().items()
        if lines[name] > room.lines
    }
    assert not above, "delete first; to raise a budget is a commit of its own"


def test_each_file_is_in_one_room() -> None:
    """Every file of the product counts for exactly one room."""
    assert set(budgets.count_lines()) == set(budgets.budgets())


def test_the_readme_shows_the_budgets() -> None:
    """The table of the README equals the table of `budgets.toml`."""
    assert budgets.readme_table() == budgets.table(), "python -m tests.budgets --write"


@pytest.mark.parametrize(
    ("path", "is_counted"),
    [
        ("client/go/nnpa/session.go", True),
        ("client/go/nnpa/session_test.go", False),
        ("client/java/src/test/java/nnpa/SessionTest.java", False),
        ("client/typescript/testee/main.ts", False),
        ("client/python/examples/digits.py", False),
        ("tests/budgets.py", False),
    ],
)
def test_tests_and_examples_are_not_counted(path: str, is_counted: bool) -> None:
    """Tests, testees and examples of the SDKs are tests, wherever they lie."""
    assert budgets.is_product(path) is is_counted
