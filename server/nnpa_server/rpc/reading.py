# SPDX-License-Identifier: Apache-2.0
"""Read and parse the messages of calls, within a time and within the bytes under way.

A call reserves the size of the largest message before it reads: a unary call until its message has
come, a stream until its last message. A plain socket knows the length of a message before it comes
and counts by itself; `counts_messages` of its context says so.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError
from nnpa.zdnn.v1 import status_pb2 as wire

from nnpa_server.errors import CallCancelled, CallRefused, MessageTooLong, no_message
from nnpa_server.rpc.admission import MessageWaits
from nnpa_server.rpc.call import Call
from nnpa_server.rpc.methods import Parse, Raw
from nnpa_server.sessions.cancellation import Cancellable, cancelled
from nnpa_server.sessions.metrics import Metrics
from nnpa_server.sessions.spans import Spans
from nnpa_server.sessions.store import session_tag
from nnpa_server.sessions.tokens import Tokens

M = TypeVar("M")
SessionGetter: TypeAlias = Callable[[object], str]
_SESSION_GETTERS: dict[type, SessionGetter] = {}  # by type of request


class Drain:
    """The drain of a server: `is_on` once it ends, `ended` notifies of calls that end.

    `lock` is the interceptor's, under which all calls are counted.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self.ended = threading.Condition(lock)
        self.is_on = False

    @staticmethod
    def refusal() -> CallRefused:
        """Return the error for a call to a server that is ending."""
        text = "the server is shutting down: retry against another one"
        return CallRefused(wire.ERROR_REASON_SERVER_DRAINING, text)


@dataclass(eq=False)
class MessageReader:
    """Reads the messages of calls; `waits` bounds the calls whose message has not come."""

    drain: Drain
    waits: MessageWaits
    max_message: int
    tokens: Tokens | None
    metrics: Metrics | None
    spans: Spans | None

    def request(self, call: Call, messages: Iterator[Raw], parse: Parse) -> object:
        """Wait for the message of a unary call, and return it parsed."""
        try:
            raw = self._await(call, messages)
        except StopIteration:
            raise no_message() from None
        except grpc.RpcError as error:
            error.__traceback__ = None  # gRPC keeps the error with the call: no cycle of frames
            raise CallCancelled(grpc.StatusCode.CANCELLED) from None
        if call.account is not None:
            call.account.receive(len(raw))
        return self._parse(call, raw, parse)

    def requests(self, call: Call, messages: Iterator[Raw], parse: Parse) -> Generator[object]:
        """Yield the parsed messages of a stream as they come."""
        if call.converses:
            _expect_conversation(call)
        else:
            messages = self._awaited(call, messages)
        while True:
            with self.drain.ended:
                call.waiting = True
                if self.drain.is_on:
                    self.drain.ended.notify_all()
            try:
                raw = next(messages, None)
            except grpc.RpcError as error:
                error.__traceback__ = None  # gRPC keeps the error with the call: no cycle of frames
                raise self._cut_off(call) from None
            except (CallCancelled, CallRefused):
                self._note(call)
                raise
            with self.drain.ended:
                call.waiting = False
                is_late = self.drain.is_on and call.converses and raw is not None
            if call.is_cut_off or is_late:  # of a cut gRPC tells by an error, or the end
                raise self._cut_off(call)
            if raw is None:
                break
            self._note(call)
            message = self._parse(call, raw, parse)
            del raw
            yield message
            del message  # a stream that waits keeps no message
        if call.account is not None:
            call.account.receive(0)

    def _note(self, call: Call) -> None:
        """Note that a message of a stream has come; refuse it if the token is no longer valid."""
        if call.converses:
            call.started, call.is_logged = time.perf_counter(), False
            if self.spans is not None:
                call.span = self.spans.begin(call.path, call.context.invocation_metadata())
        if self.tokens is not None and call.token is not None:
            self.tokens.require_current(call.token)
        call.touched = time.monotonic()

    def _await(self, call: Call, messages: Iterator[Raw]) -> Raw:
        """Return the raw first message of a call; raise StopIteration if there is none.

        Raise CallRefused if there is no room for it, or if the server drains meanwhile.
        """
        if call.account is not None:
            call.account.expect_message()
        with self.waits.waiting(call.context):
            raw = next(messages)
        if self.drain.is_on:
            raise self.drain.refusal()
        return raw

    def _awaited(self, call: Call, messages: Iterator[Raw]) -> Generator[Raw]:
        """Yield the raw messages of a stream; the first has the bounds of a unary call."""
        try:
            yield self._await(call, messages)
        except StopIteration:
            return
        yield from messages

    def _parse(self, call: Call, raw: Raw, parse: Parse) -> object:
        """Return a parsed message; the call's log line gets the session that it names."""
        if self.metrics is not None:
            self.metrics.moved("received", len(raw))
        message = parse_message(raw, parse, self.max_message)
        if call.session == "-":
            kind = type(message)
            get_session = _SESSION_GETTERS.get(kind)
            if get_session is None:
                get_session = _SESSION_GETTERS[kind] = _session_getter(message)
            if (name := get_session(message)).startswith("sessions/"):
                call.session = session_tag(name)
        return message

    def _cut_off(self, call: Call) -> CallCancelled | CallRefused:
        """Return the error that ends a stream which the server cut off."""
        if self.drain.is_on and call.converses:
            return self.drain.refusal()
        return CallCancelled(grpc.StatusCode.CANCELLED)


def next_message(messages: Iterator[M], context: Cancellable) -> M | None:
    """Return the next message, or None at the end; raise CallCancelled if the client is gone."""
    try:
        message = next(messages, None)
    except grpc.RpcError as error:
        raise cancelled(context) from error
    if message is None and not context.is_active():
        raise cancelled(context)
    return message


def parse_message(raw: Raw, parse: Parse, max_message: int) -> object:
    """Return a parsed message; refuse bytes that are too long or are no such message."""
    if len(raw) > max_message:
        raise MessageTooLong(len(raw), max_message)
    try:
        return parse(raw)
    except DecodeError:
        raise no_message() from None


def _expect_conversation(call: Call) -> None:
    """Reserve the size of the largest message for as long as a gRPC conversation lasts."""
    if call.account is None or getattr(call.context, "counts_messages", False):
        return
    try:
        call.account.expect_message(lasts=True)
    except CallRefused as refused:
        text = f"a conversation: {refused.message}, or make unary calls"
        facts = {**refused.metadata, "field": "max_conversations"}  # clients look for this one
        raise CallRefused(refused.reason, text, **facts) from None


def _session_getter(request: object) -> SessionGetter:
    """Return a function that gets a session's name from requests of this type."""
    session = getattr(request, "session", None)
    if session is not None:
        return attrgetter("session" if isinstance(session, str) else "session.name")
    if hasattr(request, "header"):
        return attrgetter("header.session")
    return attrgetter("name") if hasattr(request, "name") else lambda _request: ""
