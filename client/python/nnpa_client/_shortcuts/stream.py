# SPDX-License-Identifier: Apache-2.0
"""Lists of operations one after the other over one stream, which costs less than a call each.

Measured with one addition of 32x64: 0.4 ms in place of 0.9 ms, on a plain socket 0.2 ms.
"""

import math
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias

from nnpa_client._shortcuts.out_of_band_arrays import Answered, Listed
from nnpa_client._shortcuts.plain_socket import Metadata, PlainStream

Lists: TypeAlias = SimpleQueue[Listed | None]


class Stream(Protocol):
    """One call of ExecuteStream that has begun."""

    def is_active(self) -> bool:
        """Tell whether it takes another list."""
        ...

    def ask(self, listed: Listed) -> Answered:
        """Return the answer of a list; raise grpc.RpcError, or ValueError without an answer."""
        ...

    def close(self) -> None:
        """End it in order, if no list is under way; may be repeated."""
        ...

    def cancel(self) -> None:
        """End it at once."""
        ...


class HttpStream:
    """A stream over HTTP/2, which `begin` makes of the lists to send."""

    def __init__(self, begin: Callable[[Iterator[Listed]], Any]) -> None:
        self._lists: Lists = SimpleQueue()
        self._call = begin(iter(self._lists.get, None))  # kept: without it gRPC cancels

    def is_active(self) -> bool:
        """Tell whether it takes another list."""
        active: bool = self._call.is_active()
        return active

    def ask(self, listed: Listed) -> Answered:
        """Return the answer of a list."""
        self._lists.put(listed)
        try:
            answered: Answered = next(self._call)
        except StopIteration:
            raise ValueError("the stream of lists ended without an answer") from None
        return answered

    def close(self) -> None:
        """End it: the thread that sends the lists must not wait for ever."""
        self._lists.put(None)

    def cancel(self) -> None:
        """End it at once."""
        self.close()
        self._call.cancel()


class Ways:
    """How streams begin: on the plain socket at `plain`, if there is one, else over HTTP/2."""

    def __init__(self, over_http: Callable[[Iterator[Listed]], Any], metadata: Metadata) -> None:
        self.plain = ""
        self._over_http = over_http
        self._metadata = metadata

    def begin(self) -> Stream:
        """Begin a stream."""
        if self.plain:
            try:
                return PlainStream(self.plain, self._metadata)
            except OSError:
                self.plain = ""
        return HttpStream(self._over_http)


class Conversation:
    """A stream that `begin` makes, and makes anew when it has ended.

    One list is under way at a time; what goes wrong with it ends the stream. One that has idled for
    more than `most_idle` seconds is left: the server may be ending it.
    """

    most_idle = math.inf

    def __init__(self, begin: Callable[[], Stream]) -> None:
        self._begin = begin
        self._turn = threading.Lock()
        self._stream: Stream | None = None
        self._ended: Stream | None = None  # kept when it is closed: without it gRPC cancels
        self._end: Callable[[], object] = int
        self._used = 0.0

    def ask(self, listed: Listed) -> Answered | None:
        """Return the answer of a list; None, and nothing has run, while another is under way.

        Raises grpc.RpcError as a call of its own does; ValueError when the channel is closed, or
        the stream ends without an answer.
        """
        if not self._turn.acquire(blocking=False):
            return None
        try:
            stream, idle = self._stream, time.monotonic() - self._used
            if stream is None or idle > self.most_idle or not stream.is_active():
                stream = self._open()
            try:
                answered = stream.ask(listed)
                self._used = time.monotonic()
                return answered
            except BaseException:
                self.close()
                stream.cancel()
                raise
        finally:
            self._turn.release()

    def _open(self) -> Stream:
        self.close()
        stream = self._stream = self._begin()
        self._end = weakref.finalize(self, stream.close)
        return stream

    def close(self) -> None:
        """End the stream in order; the next list begins another."""
        if self._stream is not None:
            self._stream, self._ended = None, self._stream
        self._end()
