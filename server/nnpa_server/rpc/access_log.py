# SPDX-License-Identifier: Apache-2.0
"""The access log: lines are queued by the calls and written ten times a second, many at once.

Measured: writing a line costs its call a seventh of the time of a small Execute; queueing it,
little.
"""

import logging
import threading
from collections import deque

from nnpa_server.sessions.log_text import Facts, as_text

_log = logging.getLogger("nnpa.access")
_PERIOD = 0.1  # seconds from a call's end to its line, at most
MAX_QUEUED = 1000  # lines; a call that finds more writes them itself, so that they never pile up


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
                line = logging.LogRecord(_log.name, logging.INFO, "", 0, text, None, None)
                line.created, line.msecs = moment, moment % 1 * 1e3
                line.facts, line.more = facts, bool(self.queue)
                _log.handle(line)
