# SPDX-License-Identifier: Apache-2.0
"""Around every call: errors, the access log, the request id, counts, and who may come in.

Where the server asks for tokens, health and reflection stay open: probes have none.

The request id is the caller's `x-request-id` if it is one, else a new one; it stands in the log,
and goes back in the trailing metadata of calls that bring one or fail. (Measured: metadata that
nobody asked for would cost a small inference a tenth of its time.) A session's name is its key, so
logs show a hash of it.

A stream keeps a thread while it waits for its client, so streams are bounded, and one that is idle
for as long as a session may be is cancelled. Conversations, streams whose messages are calls of
their own, have a bound of their own; each of their messages has its line in the log.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from nnpa.zdnn.v1 import status_pb2 as wire

from nnpa_server.config import Limits
from nnpa_server.errors import (
    CallCancelled,
    CallRefused,
    MessageTooLong,
    from_exception,
    too_many_calls,
)
from nnpa_server.rpc.access_log import AccessLog
from nnpa_server.rpc.call import Call, Garbage, begun, last_words, noted
from nnpa_server.sessions.metrics import Metrics
from nnpa_server.sessions.tokens import Tokens, set_caller

Handler: TypeAlias = Any  # a grpc.RpcMethodHandler, whose kind decides which field is its code
if TYPE_CHECKING:
    _ServerInterceptor = grpc.ServerInterceptor[Any, Any]  # generic in the stubs only
else:
    _ServerInterceptor = grpc.ServerInterceptor
_failures = logging.getLogger("nnpa.failure")
_TOO_LONG = "MESSAGE_TOO_LONG"  # what metrics call a message above --max-message
_OURS = ("/nnpa.", "/inference.")
# Streams that watch what others run, and last until they are cut off.
_OBSERVING = frozenset(("ObserveNetwork", "RecordTrace"))


class Interceptor(_ServerInterceptor):
    """The one interceptor, for at most `max_streams` streams that may idle `idle_timeout` s.

    Conversations are none of these; there are at most `max_conversations`.
    """

    def __init__(
        self,
        max_streams: int,
        max_conversations: int,
        idle_timeout: float,
        tokens: Tokens | None = None,
        metrics: Metrics | None = None,
        max_message: int = Limits().max_message,
    ) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._access = AccessLog()
        self._tokens = tokens
        self._metrics = metrics
        self._max_message = max_message
        self._max_streams = max_streams
        self._max_conversations = max_conversations
        self._idle_timeout = idle_timeout
        self._handlers: dict[str, Handler] = {}
        self._lock = threading.RLock()
        self._ended = threading.Condition(self._lock)
        self._running = 0
        self._answering = 0  # calls that ended while draining, whose answers are not yet sent
        self._last_left = float("-inf")
        self._streams: set[Call] = set()
        self._draining = False
        self._stopped = threading.Event()
        threading.Thread(target=self._reap, name="streams", daemon=True).start()

    def refuse_calls(self) -> None:
        """Refuse new calls, and new lists on streams, from now on: the server is draining."""
        with self._lock:
            self._draining = True

    def wait_for_calls(self, timeout: float) -> bool:
        """Wait for the running calls; tell whether all of them ended.

        A call has ended when its answer is on its way. A stream of lists that waits for its next
        list has nothing under way and is not waited for.
        """
        with self._lock:
            return self._ended.wait_for(lambda: self._busy() + self._answering == 0, timeout)

    def hang_up(self) -> None:
        """Cut off conversations that wait for their next message, of which there will be none."""
        self._cut_off(lambda one: one.converses and one.waiting)

    def _cut_off(self, chosen: Callable[[Call], bool]) -> None:
        """End streams before their clients do; a message that comes to one now is not looked at."""
        with self._lock:
            ended = [one for one in self._streams if chosen(one)]
            for call in ended:
                call.is_cut_off = True
        for call in ended:
            call.context.cancel()

    def last_busy(self) -> float:
        """Return when a call last ran, in seconds of the monotonic clock: now, if one does."""
        with self._lock:
            return time.monotonic() if self._busy() else self._last_left

    def _busy(self) -> int:
        return self._running - sum(
            one.method in _OBSERVING or (one.waiting and one.converses) for one in self._streams
        )

    def close(self) -> None:
        """Stop looking for idle streams, and write the last lines of the access log."""
        self._stopped.set()
        self._access.close()

    def _reap(self) -> None:
        while not self._stopped.wait(min(5.0, self._idle_timeout / 4)):
            self._cut_off(self._is_idle)

    def _is_idle(self, call: Call) -> bool:
        idled = time.monotonic() - call.touched > self._idle_timeout
        return idled and (call.waiting or not call.converses)

    def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: Any
    ) -> Any:
        """Return the method's handler, wrapped; health and reflection pass as they are."""
        method: str = handler_call_details.method
        wrapped = self._handlers.get(method)
        if wrapped is None:
            handler = continuation(handler_call_details)
            if handler is None or not method.startswith(_OURS):
                return handler
            wrapped = self._handlers[method] = self.around(method, handler)
        return wrapped

    def around(self, method: str, handler: Handler) -> Handler:
        """Return the handler of a method of ours, wrapped."""
        method = method.rpartition("/")[2]
        reads, writes = handler.request_streaming, handler.response_streaming
        kind = f"{'stream' if reads else 'unary'}_{'stream' if writes else 'unary'}"
        told = self._requests if reads else noted
        answer = self._answering_stream if writes else self._answering_once
        make: Any = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(
            answer(getattr(handler, kind), method, reads or writes, told),
            request_deserializer=self._counting_in(self._tolerant(handler.request_deserializer)),
            response_serializer=self._counting_out(handler.response_serializer),
        )

    def _tolerant(self, parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        """Return a parser that hands garbage on, so that the caller gets a documented error."""

        def read(raw: bytes) -> Any:
            if len(raw) > self._max_message:
                return MessageTooLong(len(raw), self._max_message)
            try:
                return parse(raw)
            except DecodeError:
                return Garbage()

        return read

    def _counting_in(self, parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
        metrics = self._metrics
        if metrics is None:
            return parse

        def read(raw: bytes) -> Any:
            metrics.moved("received", len(raw))
            return parse(raw)

        return read

    def _counting_out(self, serialize: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a serializer that counts the bytes it returns, in one piece or in several."""
        metrics = self._metrics
        if metrics is None:
            return serialize

        def write(message: Any) -> Any:
            raw = serialize(message)
            metrics.moved("sent", len(raw) if isinstance(raw, bytes) else sum(map(len, raw)))
            return raw

        return write

    def _answering_once(
        self,
        behaviour: Callable[..., Any],
        method: str,
        streaming: bool,
        told: Callable[[Call, Any], Any],
    ) -> Callable[..., Any]:
        def answer(request: Any, context: Any) -> Any:
            call = begun(method, context, streaming)
            try:
                self._let_in(call)
                response = behaviour(told(call, request), context)
                call.operations = len(getattr(response, "results", ()))
                return response
            except BaseException as error:
                self._fail(call, error)
                raise
            finally:
                self._leave(call)

        return answer

    def _answering_stream(
        self,
        behaviour: Callable[..., Any],
        method: str,
        streaming: bool,
        told: Callable[[Call, Any], Any],
    ) -> Callable[..., Any]:
        def answer(request: Any, context: Any) -> Generator[Any]:
            call = begun(method, context, streaming)
            try:
                self._let_in(call)
                responses = behaviour(told(call, request), context)
                try:
                    for response in responses:
                        self._count(call, len(getattr(response, "results", ())))
                        yield response
                        call.touched = time.monotonic()
                finally:
                    responses.close()
            except BaseException as error:
                self._fail(call, error)
                raise
            finally:
                self._leave(call)

        return answer

    def _count(self, call: Call, operations: int) -> None:
        """Count what a message of a stream holds; one of a conversation is told at once."""
        if call.converses:
            call.operations = operations
            self._report(call)
            call.operations, call.told = 0, True
        else:
            call.operations += operations

    def _requests(self, call: Call, requests: Iterator[Any]) -> Generator[Any]:
        """Pass the messages of a stream on."""
        end = object()
        while True:
            with self._lock:
                call.waiting = True
                if self._draining:
                    self._ended.notify_all()
            try:
                request = next(requests, end)
            except grpc.RpcError as error:
                raise CallCancelled(grpc.StatusCode.CANCELLED) from error
            with self._lock:
                call.waiting = False
                if call.is_cut_off:  # of which gRPC tells by an error, or the end of the messages
                    raise CallCancelled(grpc.StatusCode.CANCELLED)
                if self._draining and call.converses and request is not end:
                    raise _draining()
            if request is end:
                return
            if call.converses:
                call.started, call.told = time.perf_counter(), False
            if self._tokens is not None and call.token is not None:
                self._tokens.require_current(call.token)
            call.touched = time.monotonic()
            yield noted(call, request)

    def _let_in(self, call: Call) -> None:
        if self._tokens is not None:
            call.token = self._tokens.find(call.context.invocation_metadata())
            set_caller(call.token)
        with self._lock:
            if self._draining:
                raise _draining()
            if call.streaming:
                self._require_room(call.converses)
                self._streams.add(call)
            self._running += 1
            call.entered = True

    def _require_room(self, converses: bool) -> None:
        limit = self._max_conversations if converses else self._max_streams
        if sum(one.converses is converses for one in self._streams) >= limit:
            raise too_many_calls("max_conversations" if converses else "max_streams", limit)

    def _fail(self, call: Call, error: BaseException) -> None:
        """End a call with the gRPC error for what it raised."""
        if isinstance(error, CallCancelled):
            call.status = error.code.name
            call.context.set_trailing_metadata(last_words(call))
            call.context.abort(error.code, str(error))
        elif isinstance(error, GeneratorExit):
            call.status = grpc.StatusCode.CANCELLED.name
        elif isinstance(error, Exception):
            refused = call.refused = from_exception(error)
            call.status = refused.name
            if refused.reason == wire.ERROR_REASON_INTERNAL:
                _failures.exception("correlation_id=%s", refused.metadata["correlation_id"])
            call.context.abort_with_status(refused.status(*last_words(call)))

    def _leave(self, call: Call) -> None:
        if call.entered:
            with self._lock:
                self._running -= 1
                self._last_left = time.monotonic()
                if call.streaming:
                    self._streams.discard(call)
                if self._draining:
                    self._answering += call.context.add_callback(self._answered)
                    self._ended.notify_all()
        if not call.told or call.status != grpc.StatusCode.OK.name:
            self._report(call)
        call.refused = None  # its traceback has the frame that has the call

    def _answered(self) -> None:
        with self._lock:
            self._answering -= 1
            self._ended.notify_all()

    def _report(self, call: Call) -> None:
        seconds = 0.0 if call.told else time.perf_counter() - call.started
        refused = call.refused
        self.counts[call.method, call.status] += 1
        if self._metrics is not None:
            self._metrics.call(call.method, seconds)
            if refused is not None:
                self._metrics.refused(refused.name)
            elif call.status == grpc.StatusCode.RESOURCE_EXHAUSTED.name:
                self._metrics.refused(_TOO_LONG)
        facts: dict[str, object] = {
            "method": call.method,
            "session": call.session,
            "operations": call.operations,
            "status": call.status,
            "ms": round(seconds * 1e3, 3),
            "id": call.request_id,
        }
        if self._tokens is not None:
            facts["token"] = "-" if call.token is None else call.token.name
        if refused is not None:
            facts["why"] = refused.message
        self._access.note(facts)


def _draining() -> CallRefused:
    text = "the server is shutting down: retry against another one"
    return CallRefused(wire.ERROR_REASON_SERVER_DRAINING, text)
