# SPDX-License-Identifier: Apache-2.0
"""The interceptor of every call: tokens, bounds, errors, the request id, the access log, counts.

Health and reflection need no token: probes have none.

The request id is the caller's `x-request-id` if that is valid, else a new one. The log shows it,
and calls that bring one or fail return it in their trailing metadata. (Measured: metadata in every
answer would cost a small inference a tenth of its time.) A session's name is its credential, so the
log shows a hash of it. A conversation is a stream whose messages are calls of their own: each has
its line in the log.
"""

import logging
import random
import re
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial

import grpc
from nnpa.zdnn.v1 import status_pb2 as wire

from nnpa_server.config import MAX_UNDER_WAY, Limits
from nnpa_server.errors import CallCancelled, CallRefused, from_exception
from nnpa_server.rpc.admission import MessageWaits
from nnpa_server.rpc.budget import Account, UnderWay
from nnpa_server.rpc.call import CONVERSATIONS, REQUEST_ID, SESSION, Call, trailing_metadata
from nnpa_server.rpc.callers import name_of
from nnpa_server.rpc.methods import (
    Behaviour,
    Conversation,
    Handler,
    Parse,
    Raw,
    Serialize,
    ServerInterceptor,
    StreamBehaviour,
    kind_of,
    raw_handler,
)
from nnpa_server.rpc.public_calls import PublicCalls
from nnpa_server.rpc.reading import Drain, MessageReader
from nnpa_server.rpc.reports import Reports
from nnpa_server.rpc.streams import Streams
from nnpa_server.sessions.cancellation import CallContext
from nnpa_server.sessions.metrics import Metrics
from nnpa_server.sessions.spans import Spans
from nnpa_server.sessions.store import session_tag
from nnpa_server.sessions.tokens import Tokens, set_caller

_failures = logging.getLogger("nnpa.failure")
_OURS = ("/nnpa.", "/inference.")
_ids = random.Random()  # seeded by the system once: asking it each time lets other threads in first
_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_STAYS_OPEN = "experimental_non_blocking"  # gRPC's name: no thread waits for the end of a call
_NOTHING = nullcontext()
_WAITS = 1.0, 30.0  # seconds: the least and the most that a message may take


class Interceptor(ServerInterceptor):
    """Wraps every method with the guards, observers and error handling of calls.

    At most `max_streams` streams and `max_conversations` conversations are open at a time; a stream
    may idle for `idle_timeout` seconds. Calls that succeed within `slow` seconds have no line in
    the log. `spans` begins spans of calls, and of messages of conversations.

    Guards: `waits` bounds calls whose message has not come, `under_way` the bytes of messages and
    answers, `public` calls that need no token. `let_in` is called with the peer of each call that
    is let in.
    """

    def __init__(
        self,
        max_streams: int,
        max_conversations: int,
        idle_timeout: float,
        tokens: Tokens | None = None,
        metrics: Metrics | None = None,
        max_message: int = Limits().max_message,
        slow: float = 0.0,
        waits: MessageWaits | None = None,
        under_way: UnderWay | None = None,
        public: PublicCalls | None = None,
        let_in: Callable[[str], object] = str,
        spans: Spans | None = None,
    ) -> None:
        self.reports = Reports(tokens is not None, metrics, slow, spans)
        self._spans = spans
        self._tokens = tokens
        self._metrics = metrics
        self._waits = MessageWaits(max_streams, *_WAITS) if waits is None else waits
        self._under_way = (
            UnderWay(MAX_UNDER_WAY, max_message, _WAITS[1]) if under_way is None else under_way
        )
        self._public = PublicCalls(_WAITS[1]) if public is None else public
        self._let_in = let_in
        self._handlers: dict[str, Handler] = {}
        self._lock = threading.RLock()
        self._drain = Drain(self._lock)
        self._ended = self._drain.ended
        self._reader = MessageReader(self._drain, self._waits, max_message, tokens, metrics, spans)
        self._running = 0
        self._answering = 0  # calls that ended while draining, whose answers are not yet sent
        self._last_left = float("-inf")
        self._streams = Streams(self._lock, max_streams, max_conversations, idle_timeout)

    def refuse_calls(self) -> None:
        """Refuse new calls, and new lists on streams, from now on: the server is draining."""
        with self._lock:
            self._drain.is_on = True

    def wait_for_calls(self, timeout: float) -> bool:
        """Wait for the running calls; return True if all of them ended within `timeout` seconds.

        A call has ended when its answer is on its way. A conversation that waits for its next
        message does not count as running.
        """
        with self._lock:
            return self._ended.wait_for(lambda: self._busy() + self._answering == 0, timeout)

    def hang_up(self, timeout: float = 0.2) -> None:
        """End the conversations that wait for their next message.

        Try again for those that are about to wait, until `timeout` seconds have passed.
        """
        until = time.monotonic() + timeout
        while self._streams.hang_up() and time.monotonic() < until:
            with self._lock:
                self._ended.wait(timeout / 10)

    def last_busy(self) -> float:
        """Return when a call last ran or was refused by the drain, in monotonic seconds.

        Return the present time if a call runs.
        """
        with self._lock:
            return time.monotonic() if self._busy() else self._last_left

    def _busy(self) -> int:
        return self._running - self._streams.count_idle() - len(self._waits)

    def close(self) -> None:
        """Stop looking for idle streams, and write the last lines of the access log."""
        self._streams.close()
        self._waits.close()
        self._under_way.close()
        self._public.close()
        self.reports.log.close()

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Handler | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Return the method's handler, wrapped."""
        method = handler_call_details.method
        if not method.startswith(_OURS):
            return self._public.intercept_service(continuation, handler_call_details)
        wrapped = self._handlers.get(method)
        if wrapped is None:
            handler = continuation(handler_call_details)
            if handler is None:
                return None
            wrapped = self._handlers[method] = self._around(method, handler)
        return wrapped

    def _around(self, method: str, handler: Handler) -> Handler:
        """Return the wrapped handler of a method; it takes even a single message as a stream."""
        reads, writes = handler.request_streaming, handler.response_streaming
        behaviour = getattr(handler, kind_of(reads, writes))
        parse, serialize = handler.request_deserializer, handler.response_serializer
        assert parse is not None
        assert serialize is not None
        stays_open = getattr(behaviour, _STAYS_OPEN, False)
        make = self._answering_stream if writes and not stays_open else self._answering_once
        answer = make(behaviour, parse, serialize, method, reads)
        vars(answer)[_STAYS_OPEN] = stays_open
        return raw_handler(answer, writes)

    def around_conversations(
        self, conversations: Mapping[str, Conversation]
    ) -> dict[str, StreamBehaviour]:
        """Return wrapped conversations by method; each answer is a sequence of byte pieces."""
        return {
            method: self._answering_stream(*conversation, method, True, converses=True)
            for method, conversation in conversations.items()
        }

    def _answering_once(
        self, behaviour: Behaviour, parse: Parse, serialize: Serialize, method: str, reads: bool
    ) -> Callable[..., object]:
        """Return a behaviour that answers a call with one message.

        A call that stays open passes a function to its behaviour, which ends the call with it at
        any later time.
        """
        requests = self._reader.requests if reads else self._reader.request
        name = method.rpartition("/")[2]

        def answer(
            messages: Iterator[Raw], context: CallContext, *send: Callable[[None], object]
        ) -> object:
            call = Call(name, context, reads, path=method, stays_open=bool(send))
            try:
                account = self._enter(call)
                ends = [partial(_end, call, each) for each in send]
                response = behaviour(requests(call, messages, parse), context, *ends)
                if call.stays_open:
                    account.stay_open()
                    return None
                call.operations = len(getattr(response, "results", ()))
                raw = serialize(response)
                if self._metrics is not None:
                    self._metrics.moved("sent", len(raw))
                account.send(len(raw))
                return raw
            except BaseException as error:
                self._fail(call, error)
                raise
            finally:
                self._leave(call)

        return answer

    def _answering_stream(
        self,
        behaviour: StreamBehaviour,
        parse: Parse,
        serialize: Callable[..., bytes | Sequence[Raw]],
        method: str,
        reads: bool,
        converses: bool = False,
    ) -> StreamBehaviour:
        """Return a behaviour that answers a call with a stream of messages."""
        requests = self._reader.requests if reads else self._reader.request
        name = method.rpartition("/")[2]
        converses = converses or name in CONVERSATIONS

        def answer(messages: Iterator[Raw], context: CallContext) -> Generator[object]:
            call = Call(name, context, True, converses=converses, path=method)
            try:
                account = self._enter(call)
                responses = behaviour(requests(call, messages, parse), context)
                try:
                    for response in responses:
                        call.operations += len(getattr(response, "results", ()))
                        raw = serialize(response)
                        del response
                        size = len(raw) if isinstance(raw, bytes) else sum(map(len, raw))
                        if self._metrics is not None:
                            self._metrics.moved("sent", size)
                        is_small = max(size, account.counted) <= account.small
                        with _NOTHING if is_small else account.sending(size):
                            if call.converses:  # each answer has its line
                                self._report(call)
                                call.operations, call.is_logged = 0, True
                            yield raw
                        del raw  # a stream that waits keeps no answer
                        call.touched = time.monotonic()
                finally:
                    responses.close()
            except BaseException as error:
                self._fail(call, error)
                raise
            finally:
                self._leave(call)

        return answer

    def _enter(self, call: Call) -> Account:
        """Let a call in or refuse it by its token, the drain or a bound; return its account."""
        metadata = call.context.invocation_metadata()
        if self._spans is not None:
            call.span = self._spans.begin(call.path, metadata)
        call.request_id = f"{_ids.getrandbits(64):016x}"
        for key, value in metadata:
            if key == REQUEST_ID and isinstance(value, str) and _SAFE_ID.fullmatch(value):
                call.request_id = value
                call.context.set_trailing_metadata(((REQUEST_ID, value),))
            elif key == SESSION and isinstance(value, str) and value.startswith("sessions/"):
                call.session = session_tag(value)
        peer = call.context.peer()
        call.caller = getattr(call.context, "process", peer)
        if self._tokens is not None:
            call.token = self._tokens.find(metadata)
            call.caller = name_of(call.token.name, peer)
            set_caller(call.token)
        self._let_in(peer)
        with self._lock:
            if self._drain.is_on:
                raise self._drain.refusal()
            if call.streaming:
                self._streams.add(call)
            self._running += 1
            call.entered = True
        call.account = self._under_way.account(call.caller, call.context)
        return call.account

    def _fail(self, call: Call, error: BaseException) -> None:
        """End a call with the gRPC error for an exception."""
        if isinstance(error, CallCancelled):
            call.status = error.code.name
            call.context.set_trailing_metadata(trailing_metadata(call))
            call.context.abort(error.code, str(error))
        elif isinstance(error, GeneratorExit):
            call.status = grpc.StatusCode.CANCELLED.name
        elif isinstance(error, Exception):
            refused = call.refused = from_exception(error)
            call.status = refused.name
            if refused.reason == wire.ERROR_REASON_INTERNAL:
                _failures.exception("correlation_id=%s", refused.metadata["correlation_id"])
            call.context.abort_with_status(refused.status(*trailing_metadata(call)))

    def _leave(self, call: Call) -> None:
        if call.entered or self._drain.is_on:
            self._last_left = time.monotonic()
        if call.entered:
            with self._lock:
                self._running -= 1
                if call.streaming:
                    self._streams.discard(call)
                if self._drain.is_on:
                    if not call.stays_open:
                        self._answering += call.context.add_callback(self._answered)
                    self._ended.notify_all()
        if not call.is_logged or call.status != grpc.StatusCode.OK.name:
            self._report(call)
        call.refused = None  # its traceback has the frame that has the call
        if call.account is None:
            call.account = self._public.account(call.context)
        call.account.close()

    def _report(self, call: Call) -> None:
        """Count a call or message that ended, and log it if it failed or was slow."""
        self.reports.counts[call.method, call.status] += 1
        seconds = 0.0 if call.is_logged else time.perf_counter() - call.started
        if seconds >= self.reports.slow or call.status != grpc.StatusCode.OK.name:
            self.reports.add(call, seconds)

    def _answered(self) -> None:
        with self._lock:
            self._answering -= 1
            self._ended.notify_all()


def _end(call: Call, send: Callable[[None], object], refusal: CallRefused | None) -> None:
    """End a call that stays open, with `refusal` or with status OK, unless it has ended."""
    if not call.context.is_active():
        return
    if refusal is not None:
        status = refusal.status(*trailing_metadata(call))
        call.context.set_trailing_metadata(tuple(status.trailing_metadata or ()))
        call.context.set_code(status.code)
        call.context.set_details(status.details)
    send(None)
