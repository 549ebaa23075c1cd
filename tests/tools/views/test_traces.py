# SPDX-License-Identifier: Apache-2.0
"""The view Traces: answers about files, and refusals of `nnpa view`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nnpa.zdnn.v1.trace_pb2 import TracedInstruction, TraceRecord
from nnpa_client import Session, connect, trace
from nnpa_client.trace.format import MAGIC
from nnpa_page import Refusal, Visitor
from nnpa_tools.views.traces import MAX_ROWS, TraceViews

from tests.tools.views.viewing import calls, record, refused, viewing, write

NOBODY = Visitor()
MANY = 20_000  # calls, of which some survive in a file that is cut


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """A session of a private server."""
    with connect() as opened:
        yield opened


@pytest.fixture
def views(session: Session, tmp_path: Path) -> TraceViews:
    """The views of two traces of one program, the second with other values."""
    pair = [(name, record(session, tmp_path / name, scale))
            for name, scale in (("left", 1.0), ("right", 1.0625))]  # fmt: skip
    return TraceViews(pair)


def summaries(views: TraceViews) -> list[dict[str, Any]]:
    """Return the summary of each trace as the page receives it."""
    shown: list[dict[str, Any]] = json.loads(json.dumps(views.traces(NOBODY, {})))["traces"]
    return shown


def rows_of(views: TraceViews, which: int) -> list[dict[str, Any]]:
    """Return the first rows of a trace."""
    return [dict(row) for row in views.rows(NOBODY, {"trace": str(which)})]


def operation(views: TraceViews, which: int, row: int) -> dict[str, Any]:
    """Return a row in full."""
    return dict(views.operation(NOBODY, {"trace": str(which), "row": str(row)}))


def row_named(views: TraceViews, name: str) -> int:
    """Return the first row of a function in the first trace."""
    names = [row["name"] for row in rows_of(views, 0)]
    return names.index(name)


def test_lists_the_operations_of_the_program(views: TraceViews) -> None:
    """Rows are the program's operations in order, with times and statuses."""
    rows = rows_of(views, 0)
    names = [row["name"] for row in rows]
    assert names == ["allochelper_ztensor", "transform_ztensor"] * 2 + [
        "add", "transform_origtensor", "log",
    ]  # fmt: skip
    assert [row["valid"] for row in rows] == [True] * 7
    assert rows[6]["status"] == "ELEMENT_RANGE_VIOLATION"
    starts = [row["start_ns"] for row in rows]
    assert starts == sorted(starts)
    summary, _ = summaries(views)
    assert summary["rows"] == 7
    assert summary["begin_ns"] == starts[0]
    assert summary["end_ns"] >= starts[-1]


def test_marks_rows_with_lint_findings(views: TraceViews) -> None:
    """An array that is transformed twice is marked at both transforms, with a sentence."""
    marked = [row for row, line in enumerate(rows_of(views, 0)) if line["findings"]]
    assert marked == [1, 3]
    (text,) = operation(views, 0, 1)["findings"]
    assert text.startswith("equal-bytes: the same 12 bytes were transformed 2 times")


def test_marks_differences_in_both_traces(views: TraceViews) -> None:
    """A call with another result is marked in both traces with the distance in ulp."""
    row = row_named(views, "transform_origtensor")
    for which in (0, 1):
        assert rows_of(views, which)[row]["differences"] == ["48 ulp"]
        shown = operation(views, which, row)
        assert shown["partner"] == row
        (text,) = shown["differences"]
        assert "3 of 3 elements, 48 ulp at most, first [0, 0]: 3 and 3.1875" in text


def test_marks_the_first_call_of_one_trace_only(tmp_path: Path) -> None:
    """The first call that only one trace has is a difference, and has no partner."""
    long, short = write(tmp_path / "long", *calls(3)), write(tmp_path / "short", *calls(2))
    for order in ((long, short), (short, long)):
        views = TraceViews([(path.name, trace.read(path)) for path in order])
        which = order.index(long)
        assert [line["differences"] for line in rows_of(views, which)] == [[], [], ["operation"]]
        assert [line["differences"] for line in rows_of(views, 1 - which)] == [[], []]
        assert operation(views, which, 1)["partner"] == 1
        assert operation(views, which, 2)["partner"] is None


def test_describes_a_call_in_full(views: TraceViews) -> None:
    """A call has operands with shapes and types, message, answer, contents and estimate."""
    shown = operation(views, 0, row_named(views, "add"))
    operands = {entry["operand"]: entry for entry in shown["operands"]}
    assert list(operands) == ["input_a", "input_b", "output"]
    assert (operands["output"]["shape"], operands["output"]["output"]) == ([1, 3], True)
    assert operands["input_a"]["type"] == "ZDNN_DLFLOAT16"
    assert "add" in shown["message"]
    assert "us, grade" in shown["estimate"]
    assert "output sticks out: 4,096 bytes: 3 -4 0.5" in shown["contents"]
    (array,) = operation(views, 0, row_named(views, "transform_origtensor"))["contents"]
    assert array.endswith("array out: 12 bytes: 3 -4 0.5")


def test_gives_the_error_of_a_failed_call(tmp_path: Path) -> None:
    """The operation that ended with a call's error has its reason and message."""
    records = calls(1)
    records[1].call.ClearField("results")
    records[1].call.error.reason = "PROGRAM_CHECK"
    records[1].call.error.message = "data exception: input_a is 3, must be 2"
    views = TraceViews([("failed", trace.read(write(tmp_path / "failed", *records)))])
    assert not rows_of(views, 0)[0]["valid"]
    shown = operation(views, 0, 0)
    assert (shown["status"], shown["why"]) == (
        "PROGRAM_CHECK", "data exception: input_a is 3, must be 2",
    )  # fmt: skip


def test_lists_instructions_after_operations(tmp_path: Path) -> None:
    """Instructions of a program with its own library follow the operations."""
    issued = TraceRecord(
        instruction=TracedInstruction(session=1, general_register_0=16, duration_ns=5, start_ns=7)
    )
    views = TraceViews([("t", trace.read(write(tmp_path / "t", *calls(2), issued)))])
    assert [line["name"] for line in rows_of(views, 0)] == ["add", "add", "NNPA_ADD"]
    assert operation(views, 0, 2)["name"] == "NNPA_ADD"
    assert [line["place"] for line in rows_of(views, 0)] == ["call 0", "call 1", "session 1"]


def test_names_file_and_machines_in_the_title(tmp_path: Path) -> None:
    """The title has the file without its folder, and each machine once with its system."""
    records = calls(1)
    for number, name in enumerate(("machines/telum1", "machines/telum1", "")):
        joined = TraceRecord()
        joined.session.session = 2 + number
        joined.session.options.machine.name = name
        joined.session.options.machine.display_name = "IBM z16, Telum I"
        records.append(joined)
    path = write(tmp_path / "t.nnpa", *records)
    (summary,) = summaries(TraceViews([(str(path), trace.read(path))]))
    assert summary["title"] == (
        "t.nnpa on telum2 and telum1 (IBM z16, Telum I) and custom machine (IBM z16, Telum I)"
    )


def test_returns_rows_in_parts(tmp_path: Path) -> None:
    """An answer has the rows from the requested one on, up to the limit."""
    count = MAX_ROWS + 20
    views = TraceViews([("t", trace.read(write(tmp_path / "t", *calls(count))))])
    assert len(views.rows(NOBODY, {})) == MAX_ROWS
    tail = views.rows(NOBODY, {"from": str(count - 3)})
    assert [line["start_ns"] for line in tail] == [1000 * (count - left) for left in (3, 2, 1)]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"trace": "2", "row": "0"}, "trace is '2', must be 0 to 1"),
        ({"trace": "<b>", "row": "0"}, "trace is '<b>', must be 0 to 1"),
        ({"row": "7"}, "row is '7', must be 0 to 6"),
        ({}, "row is '', must be 0 to 6"),
    ],
)
def test_refuses_unknown_rows(views: TraceViews, query: dict[str, str], text: str) -> None:
    """An unknown row or trace is refused by field, value and limit."""
    with pytest.raises(Refusal) as caught:
        views.operation(NOBODY, query)
    assert caught.value.text == text


def test_refuses_a_missing_file(tmp_path: Path) -> None:
    """A missing file is named, and nothing is served."""
    result = refused(tmp_path / "gone")
    assert result.exit_code == 2
    assert f"'{tmp_path}/gone' does not exist" in result.output


def test_refuses_a_trace_of_a_newer_version(tmp_path: Path) -> None:
    """A trace of a newer version is refused; the refusal names both versions."""
    (tmp_path / "newer").write_bytes(MAGIC[:-1] + b"7")
    result = refused(tmp_path / "newer")
    assert result.exit_code == 2
    assert "newer: a trace of version 7, expected version 1: a newer nnpa wrote it" in result.output


def test_shows_the_records_of_a_truncated_trace(tmp_path: Path) -> None:
    """The whole records of a truncated file are shown, with a line that says so."""
    whole = write(tmp_path / "whole", *calls(MANY)).read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) * 2 // 3])
    views = TraceViews([("cut", trace.read(tmp_path / "cut"))])
    (summary,) = summaries(views)
    assert summary["headings"][-1] == "This trace is not complete: interrupted: it has no end."
    assert 0 < summary["rows"] < MANY


def test_shows_an_empty_trace(tmp_path: Path) -> None:
    """A trace without calls has no rows, and a request for a row is refused."""
    views = TraceViews([("empty", trace.read(write(tmp_path / "empty")))])
    assert views.rows(NOBODY, {}) == []
    with pytest.raises(Refusal, match="row is '0', must be"):
        views.operation(NOBODY, {"row": "0"})


def test_refuses_three_traces(tmp_path: Path) -> None:
    """A third trace is refused by number and limit."""
    path = write(tmp_path / "t", *calls(1))
    result = refused(path, path, path)
    assert result.exit_code == 2
    assert "FILES: 3 traces, at most 2" in result.output


def test_refuses_a_port_in_use(tmp_path: Path) -> None:
    """A port in use is refused by name and number."""
    path = write(tmp_path / "t", *calls(1))
    with viewing(path) as page:
        port = page.host.rpartition(":")[2]
        result = refused("--port", port, path)
    assert result.exit_code == 2
    assert f"--port: {port}: Address already in use" in result.output


def test_needs_a_token_and_opens_no_other_file(tmp_path: Path) -> None:
    """Data need the token, and a path in a request opens no file."""
    path = write(tmp_path / "t", *calls(1))
    with viewing(path) as page:
        assert page.get("/data/traces").status == 401
        assert page.get("/data/traces", page.token, Host="evil.example").status == 403
        assert page.get("/data/views", page.token).data == ["traces", "rows", "operation"]
        assert page.get(f"/data/traces?file={path}", page.token).data["traces"][0]["rows"] == 1
        answer = page.get(f"/data/operation?trace={path}&row=0", page.token)
        assert "must be 0 to 0" in answer.data["error"]
        assert page.get(f"/{path}", page.token).status == 404
