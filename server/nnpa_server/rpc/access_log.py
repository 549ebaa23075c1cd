# SPDX-License-Identifier: Apache-2.0
"""The access log: lines are noted by the calls and written ten times a second, many at once.

Measured: writing a line costs its call a seventh of the time of a small Execute; noting it, little.
"""

import logging
import threading
import time
from collections import deque

from nnpa_server.sessions.log_text import Facts, as_text

_log = logging.getLogger("nnpa.access")
_PERIOD = 0.1  # seconds from a call's end to its line, at most
_MOST_WAITING = 1000  # above it a call writes the lines itself, so that they never pile up


class AccessLog:
    """Lines of the logger nnpa.access, each with the time when it was noted; `close` ends it."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, Facts]] = deque()
        self._writing = threading.Lock()
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="access-log", daemon=True).start()

    def note(self, facts: Facts) -> None:
        """Have a line written soon, in the order of the calls."""
        if _log.isEnabledFor(logging.INFO):
            self._waiting.append((time.time(), facts))
            if len(self._waiting) > _MOST_WAITING:
                self._write()

    def close(self) -> None:
        """Write what is left and end."""
        self._stopped.set()
        self._write()

    def _run(self) -> None:
        while not self._stopped.wait(_PERIOD):
            self._write()

    def _write(self) -> None:
        with self._writing:
            while self._waiting:
                noted, facts = self._waiting.popleft()
                text = as_text(facts)
                line = logging.LogRecord(_log.name, logging.INFO, "", 0, text, None, None)
                line.created, line.msecs = noted, noted % 1 * 1e3
                line.facts, line.more = facts, bool(self._waiting)
                _log.handle(line)
