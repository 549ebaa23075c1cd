# SPDX-License-Identifier: Apache-2.0
"""The server's log on standard error: text, or one JSON object per line.

(Measured: to format a line costs a seventh of the time of a small Execute; to queue it, little.)
"""

import io
import json
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

Facts: TypeAlias = Mapping[str, object]
MAX_QUEUED = 1000  # lines; a call that finds more formats them itself, so that they never pile up
MAX_QUEUED_BYTES = 8 << 20  # of lines that the standard error has not taken
_PERIOD = 0.1  # seconds from a call's end to its line, at most
_FLUSH_TIMEOUT = 0.2  # seconds that the end waits for the reader of the log
_VITAL = frozenset(("nnpa.audit", "nnpa.failure", "nnpa.server"))  # loggers dropped last
_access = logging.getLogger("nnpa.access")
_log = logging.getLogger("nnpa.server")


def as_text(facts: Facts) -> str:
    """Return facts as the text of a log line."""
    return " ".join([f"{key}={_plain(value)}" for key, value in facts.items()])


def _plain(value: object) -> str:
    """Return a value for a log line, quoted if it has blanks: no client can fake a line."""
    text = value if isinstance(value, str) else str(value)
    return repr(text) if " " in text or not text.isprintable() else text


@lru_cache(maxsize=2)
def _second(moment: int) -> str:
    """Return a time in whole seconds UTC, without the zone."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))


def _time(record: logging.LogRecord) -> str:
    return f"{_second(int(record.created))}.{record.msecs:03.0f}Z"


class TextLines(logging.Formatter):
    """Formats a record as time (UTC), level, logger, message, and a traceback if there is one."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base's name
        """Return the line without a traceback."""
        return f"{_time(record)} {record.levelname} {record.name} {record.message}"


class JsonLines(logging.Formatter):
    """Formats a record as a JSON object: time (UTC), level, logger, message or facts, exception."""

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


class LineQueue:
    """A queue of lines for a file that may block; a thread writes them.

    Its bytes are bounded: lines that find no room are dropped. Ordinary lines have half of the
    room, so that vital lines are dropped last. Once the file takes lines again, a line tells the
    number of dropped lines.
    """

    def __init__(self, file: int, max_bytes: int = MAX_QUEUED_BYTES) -> None:
        self._file, self._max_bytes = file, max_bytes
        self._lines: deque[bytes] = deque()
        self._size = self._dropped = 0  # the bytes that wait or are being written, and lines
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def put(self, line: str, *, is_vital: bool = False, more: bool = False) -> None:
        """Queue a line, or drop it; `more` says that further lines follow at once."""
        data = line.encode("utf-8", "backslashreplace")
        room = self._max_bytes if is_vital else self._max_bytes // 2
        with self._changed:
            if self._size + len(data) > room:
                self._dropped += 1
            else:
                self._lines.append(data)
                self._size += len(data)
            if not more:
                self._changed.notify_all()

    def flush(self, timeout: float = _FLUSH_TIMEOUT) -> None:
        """Wait until queued lines are written, unless the file takes none."""
        with self._changed:
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._size == 0, timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
                lines = list(self._lines)
                self._lines.clear()
            data = b"".join(lines)
            is_written, dropped = self._write(data), 0
            with self._changed:
                self._size -= len(data)
                if is_written:
                    dropped, self._dropped = self._dropped, 0
                else:
                    self._dropped += len(lines)
                self._changed.notify_all()
            if dropped:
                _log.warning("%d lines of the log were dropped: nobody read them", dropped)

    def _write(self, data: bytes) -> bool:
        """Write all lines; return False if the reader is gone or the disk is full."""
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError:
            return False
        return True


class Lines(logging.Handler):
    """Formats records and queues their lines; a record with `more` waits for the next one."""

    def __init__(self, formatter: logging.Formatter, queue: LineQueue) -> None:
        super().__init__()
        self._queue = queue
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        """Format a record and queue its line."""
        try:
            is_vital = record.name in _VITAL or record.levelno >= logging.ERROR
            more = getattr(record, "more", False)
            self._queue.put(f"{self.format(record)}\n", is_vital=is_vital, more=more)
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Wait until queued lines are written, for a moment at most."""
        self._queue.flush()


class _Stderr(io.TextIOBase):
    """A standard error for Python that writes to the queue."""

    encoding = "utf-8"

    def __init__(self, queue: LineQueue) -> None:
        self._queue = queue

    def write(self, text: str) -> int:
        """Queue a text."""
        self._queue.put(text, is_vital=True)
        return len(text)


def start_logging(level: str, *, as_json: bool) -> None:
    """Send all records from this level on, and Python's standard error, to file descriptor 2."""
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False  # never logged
    try:
        file = os.dup(2)
    except OSError:  # the process that started the server closed it
        file = os.open(os.devnull, os.O_WRONLY)
    queue = LineQueue(file)
    handler = Lines(JsonLines() if as_json else TextLines(), queue)
    logging.basicConfig(level=level.upper(), handlers=[handler])
    sys.stderr = _Stderr(queue)


def flush() -> None:
    """Wait until the lines of all records are written, for a moment at most."""
    for handler in logging.getLogger().handlers:
        handler.flush()


class AccessLog:
    """Queues lines of the logger nnpa.access with their times; `close` ends its thread."""

    def __init__(self) -> None:
        self.queue: deque[tuple[float, Facts]] = deque()
        self._writing = threading.Lock()
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="access-log", daemon=True).start()

    def close(self) -> None:
        """Write the queued lines, and end the thread."""
        self._stopped.set()
        self.write()

    def _run(self) -> None:
        while not self._stopped.wait(_PERIOD):
            self.write()

    def write(self) -> None:
        """Write the queued lines in the order of the calls."""
        with self._writing:
            while self.queue:
                moment, facts = self.queue.popleft()
                text = as_text(facts)
                line = logging.LogRecord(_access.name, logging.INFO, "", 0, text, None, None)
                line.created, line.msecs = moment, moment % 1 * 1e3
                line.facts, line.more = facts, bool(self.queue)
                _access.handle(line)
