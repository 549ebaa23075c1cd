# SPDX-License-Identifier: Apache-2.0
"""Wait for signals and for the end of the parent process, and end this process in time.

The handlers do nothing. Python runs them in the main thread, which may hold a lock that a handler
needs, or be about to wait for an event that a handler has set: either would wait forever.
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
"""The number that `Signals.wait` returns for the parent's end; no signal has it."""
_OVERTIME = 0.6  # seconds beyond --drain-timeout until the process ends, whatever still runs
_LAST_WORDS = 0.35  # seconds that this may take, the log's included; then C ends it
_QUIET = 0.1  # seconds without a call, after which clients have heard that the server drains
_QUIET_TIMEOUT = 0.5  # seconds that calls are still refused when none runs any more
_log = logging.getLogger("nnpa.server")


def _noted(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the wakeup socket has the signal for `Signals.wait`."""


class Signals:
    """Collects signals from its construction on; the main thread constructs it and waits."""

    def __init__(self, *numbers: int) -> None:
        self._receiver, self._sender = socket.socketpair()
        self._sender.setblocking(False)  # a handler never waits: a lost signal is one of many
        signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, _noted)

    def wait(self, timeout: float | None = None) -> int:
        """Return the next signal's number, or PARENT_ENDED; 0 after `timeout` seconds."""
        self._receiver.settimeout(timeout)
        try:
            return self._receiver.recv(1)[0]
        except TimeoutError:
            return 0

    def delay(self, reason: int, seconds: float, announce: Callable[[], object]) -> None:
        """Call `announce` and wait `seconds` before the server drains, for proxies to notice.

        Do nothing if the parent ended. A signal other than SIGHUP ends the wait.
        """
        if not seconds or reason == PARENT_ENDED:
            return
        _log.info("health is NOT_SERVING, calls are taken for %g s more", seconds)
        announce()
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and self.wait(left) == signal.SIGHUP:
            pass

    def watch_parent(self) -> None:
        """Make `wait` return PARENT_ENDED when the process that started this one has ended.

        If standard input is a pipe, its end counts too: the parent's end of it closes with the
        parent, also before this process could look for its parent.
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
    """Wait until no call has come for 0.1 s: gRPC cancels calls that come while it stops."""
    until = min(until, time.monotonic() + _QUIET_TIMEOUT)
    while (left := min(until, last_busy() + _QUIET) - time.monotonic()) > 0:
        time.sleep(left)


def end_in_time(
    signals: Signals, reason: int, drain_timeout: float, last_words: Callable[[], object]
) -> None:
    """End the process at a second signal, or soon after `drain_timeout`, whatever still runs.

    PARENT_ENDED counts as no signal, neither now nor as the `reason` of the drain: a parent sends a
    signal and closes its end of a pipe, and the two arrive in any order. `last_words` writes the
    queued lines of the log. If a thread never gives up the interpreter's lock, faulthandler ends
    the process from C.
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
