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
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from nnpa.zdnn.v1 import status_pb2 as wire

from nnpa_server.access_log import AccessLog
from nnpa_server.config import Limits
from nnpa_server.errors import (
    CallCancelled,
    CallRefused,
    MessageTooLong,
    from_exception,
    invalid,
    too_many_calls,
)
from nnpa_server.metrics import Metrics
from nnpa_server.store import session_tag
from nnpa_server.tokens import Token, Tokens, set_caller

Handler: TypeAlias = Any  # a grpc.RpcMethodHandler, whose kind decides which field is its code
if TYPE_CHECKING:
    _ServerInterceptor = grpc.ServerInterceptor[Any, Any]  # generic in the stubs only
else:
    _ServerInterceptor = grpc.ServerInterceptor
_failures = logging.getLogger("nnpa.failure")
_TOO_LONG = "MESSAGE_TOO_LONG"  # what metrics call a message above --max-message
_REQUEST_ID = "x-request-id"
_ids = random.Random()  # seeded by the system once: asking it each time lets other threads in first
_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_OURS = ("/nnpa.", "/inference.")
# Streams that watch what others run, and last until they are cut off.
_OBSERVING = frozenset(("ObserveNetwork", "RecordTrace"))
# Streams whose messages are calls of their own: one that waits for its next has none under way.
_CONVERSATIONS = frozenset(("ExecuteStream", "ModelStreamInfer"))
_SESSIONLESS: set[type] = set()  # types of requests that have no field for a session's name


@dataclass(slots=True, eq=False)
class Call:
    """One call: what is told about it, filled in while it runs.

    `touched` is when its client last sent or took a message, `waiting` whether it waits for the
    next one of a stream, both of use for streams only. In a conversation `started` is when its
    last message came, `told` whether all are answered and in the log. `entered` is whether it was
    let in, `refused` the error that it ended with.
    """

    method: str
    context: Any
    streaming: bool
    request_id: str
    token: Token | None = None
    started: float = field(default_factory=time.perf_counter)
    session: str = "-"
    operations: int = 0
    status: str = "OK"
    touched: float = field(default_factory=time.monotonic)
    waiting: bool = False
    told: bool = False
    entered: bool = False
    refused: CallRefused | None = None

    @property
    def converses(self) -> bool:
        """Whether it is a stream whose messages are calls of their own."""
        return self.method in _CONVERSATIONS


class Garbage:
    """A request whose bytes are no message of its type."""


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

    def drain(self, timeout: float) -> bool:
        """Refuse new calls and wait for the running ones; tell whether all of them ended.

        A call has ended when its answer is on its way. A stream of lists that waits for its next
        list has nothing under way and is not waited for.
        """
        with self._lock:
            self._draining = True
            return self._ended.wait_for(lambda: self._busy() + self._answering == 0, timeout)

    def hang_up(self) -> None:
        """Cut off conversations that wait for their next message, of which there will be none."""
        with self._lock:
            waiting = [one for one in self._streams if one.converses and one.waiting]
        for call in waiting:
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
            oldest = time.monotonic() - self._idle_timeout
            with self._lock:
                idle = [
                    one
                    for one in self._streams
                    if one.touched < oldest and (one.waiting or not one.converses)
                ]
            for call in idle:
                call.context.cancel()

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
            wrapped = self.around(method, handler)
        return wrapped

    def around(self, method: str, handler: Handler) -> Handler:
        """Return the handler of a method of ours, wrapped."""
        wrapped = self._handlers[method] = self._wrap(handler, method.rpartition("/")[2])
        return wrapped

    def _wrap(self, handler: Handler, method: str) -> Handler:
        reads, writes = handler.request_streaming, handler.response_streaming
        kind = f"{'stream' if reads else 'unary'}_{'stream' if writes else 'unary'}"
        told = self._requests if reads else _note
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

    def _counting_out(self, serialize: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
        metrics = self._metrics
        if metrics is None:
            return serialize

        def write(message: Any) -> bytes:
            raw = serialize(message)
            metrics.moved("sent", len(raw))
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
            call = _begun(method, context, streaming)
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
            call = _begun(method, context, streaming)
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
                if self._draining and call.converses and request is not end:
                    raise _draining()
            if request is end:
                return
            if call.converses:
                call.started, call.told = time.perf_counter(), False
            if self._tokens is not None and call.token is not None:
                self._tokens.require_current(call.token)
            call.touched = time.monotonic()
            yield _note(call, request)

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
            call.context.set_trailing_metadata(_last_words(call))
            call.context.abort(error.code, str(error))
        elif isinstance(error, GeneratorExit):
            call.status = grpc.StatusCode.CANCELLED.name
        elif isinstance(error, Exception):
            refused = call.refused = from_exception(error)
            call.status = refused.name
            if refused.reason == wire.ERROR_REASON_INTERNAL:
                _failures.exception("correlation_id=%s", refused.metadata["correlation_id"])
            call.context.abort_with_status(refused.status(*_last_words(call)))

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


def _begun(method: str, context: Any, streaming: bool) -> Call:
    """Return a call that has just come, and have its id go back if it brings one."""
    for key, value in context.invocation_metadata():
        if key == _REQUEST_ID and isinstance(value, str) and _SAFE_ID.fullmatch(value):
            context.set_trailing_metadata(((_REQUEST_ID, value),))
            return Call(method, context, streaming, value)
    return Call(method, context, streaming, f"{_ids.getrandbits(64):016x}")


def _last_words(call: Call) -> tuple[tuple[str, str], ...]:
    """Return the trailing metadata of a call that fails: its id, and what it has already."""
    there: Any = call.context.trailing_metadata() or ()
    known = any(key == _REQUEST_ID for key, _ in there)
    return tuple(there) if known else ((_REQUEST_ID, call.request_id), *there)


def _note(call: Call, request: Any) -> Any:
    """Note whose session a request is about, and return it; refuse one that is none."""
    if type(request) in _SESSIONLESS:
        return request
    if isinstance(request, MessageTooLong):
        raise request
    if isinstance(request, Garbage):
        raise invalid("request", "no message of its type", "protocol buffer wire format")
    if call.session == "-":
        name = _session_name(request)
        if name.startswith("sessions/"):
            call.session = session_tag(name)
    return request


def _session_name(request: Any) -> str:
    """Return the session that a request names, in the field where its type has it, or ""."""
    if not any(hasattr(request, name) for name in ("session", "header", "name")):
        _SESSIONLESS.add(type(request))
    about: Any = getattr(request, "session", None)
    if about is None:
        header = getattr(request, "header", None)
        about = getattr(request, "name", "") if header is None else header.session
    return about if isinstance(about, str) else str(about.name)
