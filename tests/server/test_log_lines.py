# SPDX-License-Identifier: Apache-2.0
"""Lines of the server's log: their forms, and that those that come together all arrive at once."""

import io
import json
import logging
import re
import time
from typing import Any

import pytest
from nnpa_server.logs import AccessLog, JsonLines, Lines, TextLines


class _Written(io.StringIO):
    """A stream that counts how often it is flushed."""

    flushes = 0

    def flush(self) -> None:
        self.flushes += 1


def _lines(formatter: logging.Formatter) -> tuple[logging.Handler, _Written]:
    handler, stream = Lines(formatter), _Written()
    handler.setStream(stream)
    stream.flushes = 0
    return handler, stream


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
    """What calls have noted is written in their order, many at once, with nothing held back."""
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
