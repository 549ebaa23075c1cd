# SPDX-License-Identifier: Apache-2.0
"""The open streams of a server: bounded, and cut off when they idle.

A stream keeps a thread while it waits for its client, so streams are bounded, and one that is idle
for as long as a session may be is cancelled. One caller has at most as many as are left for all
others, so that a newcomer finds room. Conversations, streams whose messages are calls of their own,
have a bound of their own, as many as there may be sessions, of which a token has a share.
"""

import threading
import time
from collections.abc import Callable, Collection

from nnpa.zdnn.v1 import status_pb2 as wire

from nnpa_server.errors import CallRefused, too_many_calls
from nnpa_server.rpc.call import Call, CallContext, interrupt
from nnpa_server.rpc.callers import caller_name, is_one_caller

# Streams that watch what others run, and last until they are cut off.
_OBSERVING = frozenset(("ObserveNetwork", "RecordTrace"))


class Streams:
    """Streams under the lock of the interceptor; a thread looks for idle ones."""

    def __init__(
        self, lock: threading.RLock, max_streams: int, max_conversations: int, idle_timeout: float
    ) -> None:
        self._lock = lock
        self._max_streams = max_streams
        self._max_conversations = max_conversations
        self._idle_timeout = idle_timeout
        self._open: set[Call] = set()
        self._stopped = threading.Event()
        threading.Thread(target=self._reap, name="streams", daemon=True).start()

    def add(self, call: Call) -> None:
        """Add a stream, or refuse one more than there may be, or than its caller may have."""
        limit = self._max_conversations if call.converses else self._max_streams
        streams = [stream for stream in self._open if stream.converses is call.converses]
        if len(streams) >= limit:
            raise too_many_calls("max_conversations" if call.converses else "max_streams", limit)
        if not call.converses:
            self._require_share(call, streams)
        self._open.add(call)

    def _require_share(self, call: Call, streams: Collection[Call]) -> None:
        """Refuse one more stream than the caller may have beside those of others."""
        caller = caller_name(call.token, call.context)
        if not is_one_caller(caller):
            return
        own = sum(caller_name(each.token, each.context) == caller for each in streams)
        if own >= self._max_streams - len(streams):
            raise _beyond_share(own, self._max_streams)

    def discard(self, call: Call) -> None:
        """Forget a stream that ended."""
        self._open.discard(call)

    def count_idle(self) -> int:
        """Count the streams that have nothing under way."""
        return sum(
            stream.method in _OBSERVING or (stream.waiting and stream.converses)
            for stream in self._open
        )

    def hang_up(self) -> bool:
        """End conversations that wait for their next message; return whether there were some."""
        return self._cut_off(lambda call: call.converses and call.waiting, interrupt)

    def close(self) -> None:
        """Stop looking for idle streams."""
        self._stopped.set()

    def _cut_off(
        self, is_chosen: Callable[[Call], bool], end: Callable[[CallContext], object]
    ) -> bool:
        """End streams before their clients do; a message that comes to one now is not looked at."""
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


def _beyond_share(own: int, most: int) -> CallRefused:
    """Return the error for a stream beyond the share of a caller that has its own ones."""
    text = f"{own} of {most} streams are this caller's, which leaves others as many"
    return CallRefused(
        wire.ERROR_REASON_CALL_QUOTA_EXCEEDED,
        f"{text}: end one, or retry with a pause",
        field="max_streams",
        value=own + 1,
        limit=own,
    )
