# SPDX-License-Identifier: Apache-2.0
"""`nnpa check`: which functions of a program run on which machine."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from nnpa_tools.cli import main
from nnpa_tools.commands.check import NothingToCheck, functions_of

from tests.tools.commands.elf import shared_object

SOUND = shared_object(["zdnn_add", "zdnn_gelu", "printf"])


def _check(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["check", *arguments], input=stdin)


def _document(*arguments: str, stdin: str | None = None) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(_check("--json", *arguments, stdin=stdin).stdout)
    return document


@pytest.mark.parametrize("big", [False, True], ids=["x86-64", "s390x"])
def test_undefined_symbols_of_a_program_are_judged(tmp_path: Path, big: bool) -> None:
    """The command judges a program's undefined zdnn_ symbols, whatever machine it is for."""
    program = tmp_path / "program"
    program.write_bytes(shared_object(["zdnn_add", "zdnn_gelu", "printf"], ["zdnn_own"], big=big))
    document = _document(str(program), "--machine", "telum1", "--machine", "telum2")
    assert [function["name"] for function in document["functions"]] == ["zdnn_add", "zdnn_gelu"]
    add, gelu = (function["machines"] for function in document["functions"])
    assert add["telum1"] == {"runs": "yes", "reason": ""}
    assert gelu["telum1"]["runs"] == "no"
    assert "ZDNN_UNAVAILABLE_FUNCTION" in gelu["telum1"]["reason"]
    assert gelu["telum2"]["runs"] == "yes"
    assert document["machines"] == {"telum1": {"runs": "no"}, "telum2": {"runs": "yes"}}


def test_symbol_versions_are_cut_off(tmp_path: Path) -> None:
    """The suffix of a versioned symbol is not part of the function's name."""
    program = tmp_path / "program"
    program.write_bytes(shared_object(["zdnn_add@ZDNN_1.0"]))
    assert [function["name"] for function in _document(str(program))["functions"]] == ["zdnn_add"]


def test_lists_of_names_are_merged(tmp_path: Path) -> None:
    """Names come from files, standard input and the command line, prefix or not, and once each."""
    names = tmp_path / "names.txt"
    names.write_text("zdnn_add, sub  # zdnn_gelu\n\nzdnn_mul\n")
    document = _document(str(names), "-", "zdnn_add", "div", stdin="zdnn_add\nmax")
    checked = [function["name"] for function in document["functions"]]
    assert checked == ["zdnn_add", "zdnn_div", "zdnn_max", "zdnn_mul", "zdnn_sub"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("add", "--machine", "telum1"), 0),
        (("gelu",), 0),
        (("gelu", "--machine", "telum2"), 0),
        (("gelu", "--machine", "z16"), 1),
        (("gelu", "--machine", "z17", "--library", "1.0.1"), 1),
        (("matmul_bcast_op", "--machine", "telum1"), 0),
        (("no_such_function", "--machine", "telum2"), 1),
        (("add", "--machine", "z14"), 2),
        (("add", "--library", "0.9"), 2),
        (("no/such/file",), 2),
    ],
)
def test_exit_codes(arguments: tuple[str, ...], code: int) -> None:
    """Exit 1: a function does not run on a machine that was named; 2: usage."""
    assert _check(*arguments).exit_code == code


def test_the_table_says_where_functions_run() -> None:
    """The table says where each function runs; the lines below it say why it does not."""
    text = _check("gelu", "add").stdout
    rows = [line.split() for line in text.splitlines()]
    assert ["zdnn_add", "1.0.0", "yes", "yes", "no"] in rows
    assert ["zdnn_gelu", "1.1.0", "no", "yes", "no"] in rows
    assert "on telum1: needs NNPA parameter block format 1 (Telum II)" in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "names no function"),
        (b"# nothing here\n", "names no function"),
        (b"zdnn-add", "'zdnn-add' is no function name"),
        (b'puts("sum");', "PROGRAM is a compiled program, or a list of function names"),
        (b"\xff\xfe\x00", "neither an ELF file nor a text"),
        (shared_object(["printf"]), "no zdnn_ symbol at all"),
        (shared_object([], ["zdnn_add"]), "linked statically"),
        (SOUND[:100], "damaged ELF file"),
    ],
    ids=["empty", "comment", "dash", "source", "binary", "without", "static", "cut"],
)
def test_nothing_to_check(content: bytes, message: str) -> None:
    """An input without functions is refused, and the reason names the input."""
    with pytest.raises(NothingToCheck, match=f"^input: .*{message}"):
        functions_of("input", content)


@given(
    st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.integers(0, 255)), min_size=1),
    st.integers(4, len(SOUND)),
)
@settings(max_examples=300, deadline=None)
def test_damaged_programs_are_read_or_refused(damage: list[tuple[int, int]], length: int) -> None:
    """A damaged file gives names or a refusal, and no other error."""
    program = bytearray(SOUND)
    for place, value in damage:
        program[place] = value
    with contextlib.suppress(NothingToCheck):
        assert all(functions_of("input", bytes(program[:length])))
