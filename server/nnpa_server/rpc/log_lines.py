# SPDX-License-Identifier: Apache-2.0
"""What the server's log looks like on the standard error: text, or one JSON object per line.

The access log has a line for each call, so a line is made in few steps, and those that come
together are written together.
"""

import json
import logging
import time
from functools import lru_cache


@lru_cache(maxsize=2)
def _second(moment: int) -> str:
    """Return a second in UTC, without its zone."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))


def _time(record: logging.LogRecord) -> str:
    return f"{_second(int(record.created))}.{record.msecs:03.0f}Z"


class TextLines(logging.Formatter):
    """Time (UTC), level, logger and message; an exception's traceback behind them."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base's name
        """Return the first line."""
        return f"{_time(record)} {record.levelname} {record.name} {record.message}"


class JsonLines(logging.Formatter):
    """One JSON object per record: time (UTC), level, logger, message or facts, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        facts = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            **getattr(record, "facts", {"message": record.getMessage()}),
        }
        if record.exc_info:
            facts["exception"] = self.formatException(record.exc_info)
        return json.dumps(facts)


class Lines(logging.StreamHandler):  # type: ignore[type-arg, unused-ignore] # generic in stubs only
    """Writes lines to the standard error; a record that says `more` waits for the next."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__(open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False))  # noqa: SIM115 - open as long as the process
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        try:
            self.stream.write(self.format(record) + self.terminator)
            if not getattr(record, "more", False):
                self.flush()
        except Exception:
            self.handleError(record)


def start_logging(level: str, *, as_json: bool) -> None:
    """Have every record of this level or above written to the standard error."""
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False  # never logged
    handler = Lines(JsonLines() if as_json else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler])
