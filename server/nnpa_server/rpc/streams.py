# SPDX-License-Identifier: Apache-2.0
"""Bound the open streams of a server, and cut off idle ones.

A stream keeps a thread while it waits for its client. So streams are bounded, and a stream that is
idle for `idle_timeout` seconds is cancelled. Conversations, whose messages are calls of their own,
have a bound of their own. Each caller has a share of both.
"""

import threading
import time
from collections.abc import Callable

from nnpa_server.rpc.call import Call, interrupt
from nnpa_server.rpc.callers import Shares
from nnpa_server.sessions.cancellation import CallContext

# Streams that observe other calls, and last until they are cut off.
_OBSERVING = frozenset(("ObserveNetwork", "RecordTrace"))


class Streams:
    """The open streams, used under the interceptor's lock; a thread cuts off idle ones."""

    def __init__(
        self, lock: threading.RLock, max_streams: int, max_conversations: int, idle_timeout: float
    ) -> None:
        self._lock = lock
        self._streams = Shares("max_streams", max_streams, "streams")
        self._conversations = Shares("max_conversations", max_conversations, "conversations")
        self._idle_timeout = idle_timeout
        self._open: set[Call] = set()
        self._stopped = threading.Event()
        threading.Thread(target=self._reap, name="streams", daemon=True).start()

    def add(self, call: Call) -> None:
        """Add a stream; raise CallRefused if its caller may have no more."""
        self._shares(call).take(call.caller)
        self._open.add(call)

    def discard(self, call: Call) -> None:
        """Forget a stream that ended."""
        self._open.remove(call)
        self._shares(call).give(call.caller)

    def _shares(self, call: Call) -> Shares:
        return self._conversations if call.converses else self._streams

    def count_idle(self) -> int:
        """Count the streams that run nothing: observers, and conversations that wait."""
        return sum(
            stream.method in _OBSERVING or (stream.waiting and stream.converses)
            for stream in self._open
        )

    def hang_up(self) -> bool:
        """End the conversations that wait for their next message; return True if there were any."""
        return self._cut_off(lambda call: call.converses and call.waiting, interrupt)

    def close(self) -> None:
        """Stop looking for idle streams."""
        self._stopped.set()

    def _cut_off(
        self, is_chosen: Callable[[Call], bool], end: Callable[[CallContext], object]
    ) -> bool:
        """End the chosen streams; a message that comes to one of them meanwhile is ignored."""
        with self._lock:
            ended = [call for call in self._open if is_chosen(call)]
            for call in ended:
                call.is_cut_off = True
        for call in ended:
            end(call.context)
        return bool(ended)

    def _reap(self) -> None:
        while not self._stopped.wait(min(5.0, self._idle_timeout / 4)):
            self._cut_off(self._is_idle, lambda context: context.cancel())

    def _is_idle(self, call: Call) -> bool:
        idled = time.monotonic() - call.touched > self._idle_timeout
        return idled and (call.waiting or not call.converses)
