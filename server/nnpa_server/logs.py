# SPDX-License-Identifier: Apache-2.0
"""The server's log on the standard error: text, or one JSON object per line.

The access log has a line for each call. A line takes few steps; calls queue theirs, and those that
come together are written together, ten times a second. (Measured: writing a line costs its call a
seventh of the time of a small Execute; queueing it, little.)
"""

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

Facts: TypeAlias = Mapping[str, object]
MAX_QUEUED = 1000  # lines; a call that finds more writes them itself, so that they never pile up
_PERIOD = 0.1  # seconds from a call's end to its line, at most
_access = logging.getLogger("nnpa.access")


def as_text(facts: Facts) -> str:
    """Return facts as the text of a log line."""
    return " ".join([f"{key}={_plain(value)}" for key, value in facts.items()])


def _plain(value: object) -> str:
    """Return a value for a log line: quoted where it has blanks, so that no client fakes a line."""
    text = value if isinstance(value, str) else str(value)
    return repr(text) if " " in text or not text.isprintable() else text


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


class AccessLog:
    """Lines of the logger nnpa.access, each queued with its time; `close` ends it."""

    def __init__(self) -> None:
        self.queue: deque[tuple[float, Facts]] = deque()
        self._writing = threading.Lock()
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="access-log", daemon=True).start()

    def close(self) -> None:
        """Write what is left and end."""
        self._stopped.set()
        self.write()

    def _run(self) -> None:
        while not self._stopped.wait(_PERIOD):
            self.write()

    def write(self) -> None:
        """Write the lines that are queued, in the order of the calls."""
        with self._writing:
            while self.queue:
                moment, facts = self.queue.popleft()
                text = as_text(facts)
                line = logging.LogRecord(_access.name, logging.INFO, "", 0, text, None, None)
                line.created, line.msecs = moment, moment % 1 * 1e3
                line.facts, line.more = facts, bool(self.queue)
                _access.handle(line)
