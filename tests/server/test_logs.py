# SPDX-License-Identifier: Apache-2.0
"""Lines of the server's log: their forms, and lines that are written together."""

import json
import logging
import os
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from nnpa_server.logs import AccessLog, JsonLines, LineQueue, Lines, TextLines

from tests.server.process import wait_until


class _Written(LineQueue):
    """A queue that keeps its lines, and counts how often those that came are to be written."""

    def __init__(self) -> None:
        super().__init__(os.open(os.devnull, os.O_WRONLY))
        self.text, self.flushes = "", 0

    def put(self, line: str, *, is_vital: bool = False, more: bool = False) -> None:
        del is_vital
        self.text += line
        self.flushes += not more

    def getvalue(self) -> str:
        """Return the lines."""
        return self.text


def _lines(formatter: logging.Formatter) -> tuple[logging.Handler, _Written]:
    written = _Written()
    return Lines(formatter, written), written


def _record(message: str, **facts: Any) -> logging.LogRecord:
    record = logging.LogRecord("nnpa.server", logging.INFO, "", 0, message, None, None)
    record.created, record.msecs = 1_700_000_000.042, 42.0
    vars(record).update(facts)
    return record


def test_text_has_time_level_logger_and_message() -> None:
    """A line of text begins with the time in UTC, milliseconds included."""
    handler, stream = _lines(TextLines())
    handler.emit(_record("ready"))
    assert stream.getvalue() == "2023-11-14T22:13:20.042Z INFO nnpa.server ready\n"


def test_json_is_one_object_per_line() -> None:
    """A record with facts has those, any other its message, behind time, level and logger."""
    handler, stream = _lines(JsonLines())
    handler.emit(_record("ready"))
    handler.emit(_record("", facts={"calls": 3}))
    first, second = map(json.loads, stream.getvalue().splitlines())
    head = {"time": "2023-11-14T22:13:20.042Z", "level": "info", "logger": "nnpa.server"}
    assert (first, second) == ({**head, "message": "ready"}, {**head, "calls": 3})


def test_a_traceback_follows_its_line() -> None:
    """An exception is told behind the line that reports it."""
    handler, stream = _lines(TextLines())
    try:
        raise KeyError("gone")
    except KeyError as error:
        handler.emit(_record("failed", exc_info=(KeyError, error, error.__traceback__)))
    first, *rest = stream.getvalue().splitlines()
    assert first.endswith("failed")
    assert rest[-1] == "KeyError: 'gone'"


def test_lines_of_calls_leave_together(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Lines of calls are written in their order, many at once, and all of them by `close`."""
    handler, stream = _lines(TextLines())
    logger = logging.getLogger("nnpa.access")
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "propagate", False)
    caplog.set_level(logging.INFO, logger.name)
    log = AccessLog()
    for number in range(9):
        log.queue.append((time.time(), {"method": "Execute", "id": number}))
    log.close()
    assert re.findall(r"id=(\d)", stream.getvalue()) == list("012345678")
    assert 1 <= stream.flushes < 9  # its thread may have written some before


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_no_call_waits_for_the_reader_of_the_log(
    pipe: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    """Lines for an unread pipe are queued, then dropped; vital lines are dropped last."""
    reading, writing = pipe
    queue, line = LineQueue(writing, max_bytes=1 << 20), "x" * 99 + "\n"
    for _ in range(20_000):
        queue.put(line)
    for number in range(1000):
        queue.put(f"{number:099}\n", is_vital=True)
    began = time.monotonic()
    queue.flush(0.1)
    assert time.monotonic() - began < 5
    text = ""
    while f"{999:099}\n" not in text:
        text += os.read(reading, 1 << 20).decode()
    assert len(text) <= 1 << 20
    assert text.count(line) >= 5000
    assert len(re.findall(r"^0\d{98}$", text, re.MULTILINE)) == 1000
    wait_until(lambda: bool(caplog.messages))
    dropped = 20_000 - text.count(line)
    assert caplog.messages == [f"{dropped} lines of the log were dropped: nobody read them"]


def test_a_closed_pipe_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """After the log's reader has gone, lines are dropped and no write is tried again."""
    reading, writing = os.pipe()
    os.close(reading)
    queue = LineQueue(writing)
    for _ in range(10):
        queue.put("line\n", is_vital=True)
        queue.flush(5)
    os.close(writing)
    assert caplog.messages == []
