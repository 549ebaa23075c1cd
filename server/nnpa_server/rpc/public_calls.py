# SPDX-License-Identifier: Apache-2.0
"""Health and reflection: calls without tokens, which have threads and bounds of their own.

Whatever comes to them leaves the threads of all other calls alone.
"""

import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc

from nnpa_server.errors import CallCancelled, CallRefused, too_many_calls
from nnpa_server.rpc.admission import MessageWaits
from nnpa_server.rpc.call import CallContext, Garbage
from nnpa_server.rpc.messages import reading, require_message
from nnpa_server.rpc.methods import Handler, ServerInterceptor, kind_of, make_handler

MAX_THREADS = 16  # for calls that are answered at once
MAX_WATCHES = 32  # streams of Health.Watch, each of which keeps a thread
MAX_UNFINISHED = 4  # calls that may take their time, message included
MAX_MESSAGE = 16 << 10  # bytes
_MIN_WAIT = 0.2  # seconds that a call has, however many there are


class PublicCalls(ServerInterceptor):
    """Wraps methods that ask for no token."""

    def __init__(self, message_timeout: float, give_back: Callable[[], object] = int) -> None:
        self.pool = ThreadPoolExecutor(MAX_THREADS + MAX_WATCHES, thread_name_prefix="public")
        self._waits = MessageWaits(MAX_UNFINISHED, _MIN_WAIT, message_timeout, give_back)
        self._handlers: dict[str, Handler] = {}
        self._open: Counter[str] = Counter()
        self._lock = threading.Lock()

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Handler | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Return the method's handler, wrapped."""
        method = handler_call_details.method
        if method not in self._handlers:
            handler = continuation(handler_call_details)
            if handler is None:
                return None
            self._handlers[method] = self._around(method, handler)
        return self._handlers[method]

    def close(self) -> None:
        """Take no more calls."""
        self._waits.close()
        self.pool.shutdown(wait=False, cancel_futures=True)

    def _around(self, method: str, handler: Handler) -> Handler:
        reads, writes = handler.request_streaming, handler.response_streaming
        behaviour = getattr(handler, kind_of(reads, writes))
        parse, serialize = handler.request_deserializer, handler.response_serializer
        assert parse is not None
        assert serialize is not None

        def once(requests: Iterator[object], context: CallContext) -> object:
            with _refusing(context), self._waits.waiting(context):
                return behaviour(_only(requests), context)

        def watch(requests: Iterator[object], context: CallContext) -> Generator[object]:
            with _refusing(context), self._room(method):
                with self._waits.waiting(context):
                    request = _only(requests)
                yield from behaviour(request, context)

        def converse(requests: Iterator[object], context: CallContext) -> Generator[object]:
            with _refusing(context), self._waits.waiting(context):
                yield from behaviour(map(_message, requests), context)

        answer = converse if reads else watch if writes else once
        vars(answer)["experimental_thread_pool"] = self.pool  # where gRPC looks for it
        return make_handler(
            answer, reading(parse, MAX_MESSAGE), serialize, streams_in=True, streams_out=writes
        )

    @contextmanager
    def _room(self, method: str) -> Generator[None]:
        """Count a stream that stays open; refuse one more than there may be."""
        with self._lock:
            if self._open[method] >= MAX_WATCHES:
                raise too_many_calls("max_watches", MAX_WATCHES)
            self._open[method] += 1
        try:
            yield
        finally:
            with self._lock:
                self._open[method] -= 1


def _only(requests: Iterator[object]) -> object:
    """Return the message of a unary call."""
    return _message(next(requests, Garbage()))


def _message(request: object) -> object:
    """Return a message; refuse what is none."""
    require_message(request)
    return request


@contextmanager
def _refusing(context: CallContext) -> Generator[None]:
    """End the call with the status of an error, also of a method that a service leaves out."""
    try:
        yield
    except NotImplementedError:
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "this server does not implement the method")
    except CallRefused as refused:
        context.abort_with_status(refused.status())
    except CallCancelled as cancelled:
        context.abort(cancelled.code, str(cancelled))
