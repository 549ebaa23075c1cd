# SPDX-License-Identifier: Apache-2.0
"""Signals to a server process, the end of its parent, and its own end in time.

Nothing is done in a handler. Python runs handlers in the main thread, which may at that moment have
the lock that they need, or be about to wait for what they have set: either would be for ever.
Source: Python, "signal.set_wakeup_fd".
"""

import faulthandler
import logging
import os
import select
import signal
import socket
import stat
import threading
import time
from collections.abc import Callable
from types import FrameType

from nnpa_server.logs import flush

PARENT_ENDED = 255
"""What `Signals.wait` returns for the parent's end; no signal has this number."""
_OVERTIME = 0.6  # seconds beyond --drain-timeout until the process ends, whatever still runs
_LAST_WORDS = 0.35  # seconds that this may take, the log's included; then C ends it
_QUIET = 0.1  # seconds without a call, after which clients have heard that the server drains
_QUIET_TIMEOUT = 0.5  # seconds that calls are still refused when none runs any more
_log = logging.getLogger("nnpa.server")


def _noted(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the wakeup socket has the signal for `Signals.wait`."""


class Signals:
    """Signals that come from the moment this is made; the main thread makes it, and waits."""

    def __init__(self, *numbers: int) -> None:
        self._receiver, self._sender = socket.socketpair()
        self._sender.setblocking(False)  # a handler never waits: what finds no room is one of many
        signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, _noted)

    def wait(self, timeout: float | None = None) -> int:
        """Return the next signal's number, or PARENT_ENDED; 0 where nothing comes in time."""
        self._receiver.settimeout(timeout)
        try:
            return self._receiver.recv(1)[0]
        except TimeoutError:
            return 0

    def delay(self, reason: int, seconds: float, announce: Callable[[], object]) -> None:
        """Announce the end that `reason` asks for, and wait before it; not if the parent ended.

        Another signal than SIGHUP ends the wait.
        """
        if not seconds or reason == PARENT_ENDED:
            return
        _log.info("health is NOT_SERVING, calls are taken for %g s more", seconds)
        announce()
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and self.wait(left) == signal.SIGHUP:
            pass

    def watch_parent(self) -> None:
        """Have PARENT_ENDED come when the process that started this one ends, however it ends.

        A standard input that is a pipe counts too: the parent's end of it closes with the parent,
        also in the moments before this process could look for its parent.
        """
        parent, watched = os.getppid(), list[int]()
        if stat.S_ISFIFO(os.fstat(0).st_mode):
            watched.append(0)
        try:
            watched.append(os.pidfd_open(parent))
        except (OSError, AttributeError):
            _log.debug("no pidfd: asking for the parent twice a second")

        def wait() -> None:
            while os.getppid() == parent:
                ready, _, _ = select.select(watched, (), (), 0.5)
                if ready and (ready != [0] or not os.read(0, 4096)):
                    break
            self._sender.send(bytes([PARENT_ENDED]))

        threading.Thread(target=wait, name="parent", daemon=True).start()


def wait_for_quiet(last_busy: Callable[[], float], until: float) -> None:
    """Wait until no call has come for a moment: gRPC cancels calls that come while it stops."""
    until = min(until, time.monotonic() + _QUIET_TIMEOUT)
    while (left := min(until, last_busy() + _QUIET) - time.monotonic()) > 0:
        time.sleep(left)


def end_in_time(
    signals: Signals, reason: int, drain_timeout: float, last_words: Callable[[], object]
) -> None:
    """Have the process end at a second signal, or soon after `drain_timeout`, whatever still runs.

    The parent's end is neither of them, also as the `reason` that `Signals.wait` returned: parents
    ask, and close their end of a pipe, and both are seen in any order. `last_words` writes what is
    not in the log yet. Should a thread keep the interpreter's lock so long, C ends the process.
    """
    until = time.monotonic() + drain_timeout + _OVERTIME

    def watch() -> None:
        left = 2 if reason == PARENT_ENDED else 1
        while left and (number := signals.wait(max(1e-3, until - time.monotonic()))):
            left -= number not in (signal.SIGHUP, PARENT_ENDED)
        _log.warning("ended at once, calls were cut off")
        last_words()
        end_now()

    threading.Thread(target=watch, name="end", daemon=True).start()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    timeout = drain_timeout + _OVERTIME + _LAST_WORDS
    faulthandler.dump_traceback_later(timeout, exit=True, file=nowhere)


def end_now() -> None:
    """End the process without waiting for threads."""
    flush()
    os._exit(0)
