# SPDX-License-Identifier: Apache-2.0
"""Files of real machines are rows of the score, whatever they hold."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from nnpa_client import Session, zdnn
from nnpa_tools.cli import main

from tests import vector_runner
from tests.tools.conformance.scoring import HEADING, Json, data, score, sent
from tests.vector_runner import VECTORS

HOSTILE = "<script>alert(1)</script>\x1b[31m"
Open = Callable[..., Session]
pytestmark = pytest.mark.usefixtures("no_results")


def with_another_bit(answers: list[str]) -> list[str]:
    """Return answers of which one has the last bit of its first element turned."""
    at = next(at for at, line in enumerate(answers) if '"memory"' in line)
    answer = json.loads(answers[at])
    operand = next(iter(answer["steps"][0]["outputs"].values()))
    first, *remaining = vector_runner.words(operand["memory"])
    operand["memory"] = " ".join([f"{int(first, 16) ^ 1:04X}", *remaining])
    return [*answers[:at], json.dumps(answer), *answers[at + 1 :]]


@pytest.mark.heavy
def test_a_file_dropped_in_changes_exactly_its_row(
    vectors: Path, answers: list[str], tmp_path: Path
) -> None:
    """A file of a z17 changes the row of the z17, and another bit in it that row again."""
    folder = tmp_path / "sent"
    folder.mkdir()
    scores = [score(vectors, folder)]
    file = sent(folder / "z17.jsonl", answers)
    scores.append(score(vectors, folder))
    sent(file, with_another_bit(answers))
    scores.append(score(vectors, folder))
    assert [ended.exit_code for ended in scores] == [0, 0, 1]
    rows = [data(ended)["real_machines"] for ended in scores]
    assert [row["machine"] for row in rows[0]] == ["telum1", "telum2"]
    assert [row[0] for row in rows] == [rows[0][0]] * 3
    assert [row[1]["equal"] for row in rows] == [None, True, False]
    (relu,) = rows[2][1]["functions"]
    assert (relu["function"], relu["worst"], relu["ulps"]["1"]) == ("relu", 1, 1)
    without = [
        {key: value for key, value in data(ended).items() if key != "real_machines"}
        for ended in scores
    ]
    assert without == [without[0]] * 3


@pytest.mark.heavy
def test_a_trace_is_a_row(vectors: Path, open_session: Open, tmp_path: Path) -> None:
    """A program's trace, with a heading beside it, is replayed and compared call by call."""
    file = tmp_path / "program.nnpa"
    session = open_session("telum2")
    with session.trace(file, contents=True):
        a = session.ztensor(np.ones((2, 3), np.float32))
        zdnn.add(a, a).numpy()
    (tmp_path / "program.nnpa.json").write_text(json.dumps(HEADING))
    ended = score(vectors, file)
    assert ended.exit_code == 0, ended.output
    (row,) = (row for row in data(ended)["real_machines"] if row["file"])
    assert row["equal"]
    assert "add" in {line["function"] for line in row["functions"]}


BAD = {
    "no heading": (dict.fromkeys(HEADING), "begins without a heading"),
    "newer": ({"results": 2}, "results of version 2, expected version 1: a newer zdnn-testee"),
    "unknown machine": ({"machine": "z99"}, "machine: 'z99', expected one of telum1 (z16)"),
    "no accelerator": ({"machine": "z15"}, "machine: 'z15', expected one of telum1 (z16)"),
    "hostile machine": ({"machine": HOSTILE}, "expected one of telum1 (z16)"),
    "unknown library": ({"library": "9.9"}, "library: '9.9', expected one of 1.0.0"),
    "no date": ({"date": "yesterday"}, "date: 'yesterday', expected YYYY-MM-DD"),
    "impossible date": ({"date": "2026-02-31"}, "date: '2026-02-31', day"),
    "number for a date": ({"date": 7}, "date: 7, expected text"),
    "long note": ({"note": "x" * 201}, "note: expected text of at most 200 characters"),
}


@pytest.mark.parametrize(("heading", "story"), BAD.values(), ids=[*BAD])
def test_a_bad_heading_ends_with_2(
    vectors: Path, tmp_path: Path, heading: Json, story: str
) -> None:
    """A heading is refused with file, key, value and what is expected, before anything runs."""
    ended = score(vectors, sent(tmp_path / "bad.jsonl", [], **heading))
    assert ended.exit_code == 2
    assert "bad.jsonl" in ended.stderr
    assert story in " ".join(ended.stderr.split())
    assert "\x1b" not in ended.stderr


OUT_OF_SHAPE = {
    "cut in a line": ('{"results": 1, "ma', "line 1: no JSON"),
    "cut between lines": (f"{json.dumps(HEADING)}\n", "is the file cut off?"),
    "empty": ("", "begins without a heading"),
    "a list": ("[]\n", "list, expected an object"),
    "deep": ("[" * 100_000, "line 1: no JSON"),
    "other count": (f'{json.dumps(HEADING)}\n{{"end": 3}}\n', "0 answers and no line"),
}


@pytest.mark.parametrize(("text", "story"), OUT_OF_SHAPE.values(), ids=[*OUT_OF_SHAPE])
def test_a_truncated_file_ends_with_2(vectors: Path, tmp_path: Path, text: str, story: str) -> None:
    """A file that ends too early, or is none, is refused and named."""
    (tmp_path / "bad.jsonl").write_text(text)
    ended = score(vectors, tmp_path / "bad.jsonl")
    assert ended.exit_code == 2
    assert "bad.jsonl" in ended.stderr
    assert story in " ".join(ended.stderr.split())


MEMORIES: dict[str, tuple[Any, str]] = {
    "an enormous text": ("3E00*99999999999", "a text of 99999999999 words, at most 67108864"),
    "long words": ("3E003E003E00", "words of 12 digits, at most 8"),
    "no words": ("xyz", "an answer out of shape"),
    "a number": (7, "an answer out of shape"),
}


@pytest.mark.heavy
@pytest.mark.parametrize(("memory", "story"), MEMORIES.values(), ids=[*MEMORIES])
def test_answers_out_of_shape_end_with_2(
    vectors: Path, answers: list[str], tmp_path: Path, memory: Any, story: str
) -> None:
    """Answers that cannot be compared are refused without a traceback, and the file is named."""
    answer = next(json.loads(line) for line in answers if '"memory"' in line)
    next(iter(answer["steps"][0]["outputs"].values()))["memory"] = memory
    ended = score(vectors, sent(tmp_path / "bad.jsonl", [json.dumps(answer)]))
    assert ended.exit_code == 2
    assert "bad.jsonl: an answer out of shape" in " ".join(ended.stderr.split())
    assert story in " ".join(ended.stderr.split())


@pytest.mark.heavy
def test_answers_to_other_vectors_end_with_2(vectors: Path, tmp_path: Path) -> None:
    """A file that answers none of the vectors here says nothing, and is refused."""
    text = json.dumps({"file": "no_function", "name": "x", "steps": []})
    ended = score(vectors, sent(tmp_path / "bad.jsonl", [text]))
    assert ended.exit_code == 2
    assert "bad.jsonl: no answered vector in common" in " ".join(ended.stderr.split())


def test_files_that_are_not_there_or_meet_end_with_2(vectors: Path, tmp_path: Path) -> None:
    """No such file, no text, and two files of one name are the caller's error, each by its name."""
    (tmp_path / "other").mkdir()
    twice = [sent(tmp_path / "z17.jsonl", []), sent(tmp_path / "other/z17.jsonl", [])]
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    for files, story in (
        ([tmp_path / "nowhere.jsonl"], "nowhere.jsonl' does not exist"),
        (twice, "z17.jsonl: two files of this name"),
        ([tmp_path / "binary.jsonl"], "binary.jsonl: neither a trace nor text in UTF-8"),
    ):
        ended = score(vectors, *files)
        assert ended.exit_code == 2
        assert story in " ".join(ended.stderr.split())


TRACES = {
    "no heading": (b"NNPATRC1", None, "takes a heading in program.nnpa.json"),
    "newer": (b"NNPATRC2", HEADING, "a trace of version 2, expected version 1: a newer nnpa"),
    "truncated": (b"NNPATRC1", HEADING, "program.nnpa"),
    "heading of a newer version": (b"NNPATRC1", {**HEADING, "results": 2}, "version 2"),
}


@pytest.mark.parametrize(("raw", "heading", "story"), TRACES.values(), ids=[*TRACES])
def test_a_bad_trace_ends_with_2(
    vectors: Path, tmp_path: Path, raw: bytes, heading: Json | None, story: str
) -> None:
    """A trace without a heading, of a newer version or without an end is refused and named."""
    (tmp_path / "program.nnpa").write_bytes(raw)
    if heading is not None:
        (tmp_path / "program.nnpa.json").write_text(json.dumps(heading))
    ended = score(vectors, tmp_path / "program.nnpa")
    assert ended.exit_code == 2
    assert story in " ".join(ended.stderr.split())


@pytest.mark.heavy
def test_hostile_names_are_text(vectors: Path, answers: list[str], tmp_path: Path) -> None:
    """Names and notes of a file are text on the page and in a terminal, whatever they say."""
    line = json.loads((vectors / "relu.jsonl").read_text().splitlines()[0])
    line["name"], line["steps"][0]["status"] = HOSTILE, "ZDNN_INVALID_STRIDES"
    (vectors / "relu.jsonl").write_text((VECTORS / "relu.jsonl").read_text() + json.dumps(line))
    file = sent(tmp_path / "<b>z17<b>.jsonl", answers, note=HOSTILE)
    arguments = ["conformance", "score", "--suite", "vectors", "--vectors", str(vectors)]
    ended = CliRunner().invoke(main, [*arguments, "--out", str(tmp_path / "out"), str(file)])
    assert ended.exit_code == 1
    assert "\x1b" not in ended.stdout
    html = (tmp_path / "out/score.html").read_text()
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 2
    assert "<script" not in html
    assert "&lt;b&gt;z17&lt;b&gt;.jsonl" in html
