# SPDX-License-Identifier: Apache-2.0
"""Lists of operations one after the other over one stream, which costs less than a call each.

Measured with one addition of 32x64: 0.4 ms in place of 0.9 ms.
"""

import threading
import weakref
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, TypeAlias

from nnpa_client._apart import Answered, Listed

Lists: TypeAlias = SimpleQueue[Listed | None]
Stream: TypeAlias = Any  # a grpc.Call that is an iterator of Answered, too


class Conversation:
    """A stream that `begin` makes of the lists to send, made anew when it has ended.

    One list is under way at a time; what goes wrong with it ends the stream.
    """

    def __init__(self, begin: Callable[[Iterator[Listed]], Stream]) -> None:
        self._begin = begin
        self._turn = threading.Lock()
        self._is_open = False
        self._stream: Stream = None  # kept when it is closed: without it gRPC cancels
        self._lists: Lists = SimpleQueue()
        self._end: Callable[[], object] = int

    def ask(self, listed: Listed) -> Answered | None:
        """Return the answer of a list; None, and nothing has run, while another is under way.

        Raises grpc.RpcError as a call of its own does; ValueError when the channel is closed, or
        the stream ends without an answer.
        """
        if not self._turn.acquire(blocking=False):
            return None
        try:
            if not self._is_open or not self._stream.is_active():
                self._open()
            return self._answer(listed)
        finally:
            self._turn.release()

    def _open(self) -> None:
        self._end()
        self._lists = SimpleQueue()
        self._stream = self._begin(iter(self._lists.get, None))
        # The thread that sends the lists waits for the next one: it must not wait for ever.
        self._end = weakref.finalize(self, self._lists.put, None)
        self._is_open = True

    def _answer(self, listed: Listed) -> Answered:
        stream = self._stream
        self._lists.put(listed)
        try:
            answered: Answered = next(stream)
        except StopIteration:
            self.close()
            raise ValueError("the stream of lists ended without an answer") from None
        except BaseException:
            self.close()
            stream.cancel()
            raise
        return answered

    def close(self) -> None:
        """End the stream in order; the next list begins another."""
        self._is_open = False
        self._end()
