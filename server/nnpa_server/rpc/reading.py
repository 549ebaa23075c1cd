# SPDX-License-Identifier: Apache-2.0
"""How calls read their messages: in time, and within the bytes under way.

A call that reads has room for the largest message, a unary one until its message has come, a stream
until its last one. A plain socket tells how long a message is before it comes: it counts by itself,
and says so in `counts_messages` of its context.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterator
from itertools import islice

import grpc
from nnpa.zdnn.v1 import status_pb2 as wire

from nnpa_server.errors import CallCancelled, CallRefused, no_message
from nnpa_server.rpc.admission import MessageWaits
from nnpa_server.rpc.budget import Account
from nnpa_server.rpc.call import Call
from nnpa_server.rpc.messages import Received, session_getter
from nnpa_server.sessions.spans import Spans
from nnpa_server.sessions.store import session_tag
from nnpa_server.sessions.tokens import Tokens

_SESSION_GETTERS: dict[type, Callable[[object], str]] = {}  # by type of request


class Drain:
    """Whether the server ends; `ended` tells of calls that end, under the lock of all calls."""

    def __init__(self, lock: threading.RLock) -> None:
        self.ended = threading.Condition(lock)
        self.is_on = False

    @staticmethod
    def refusal() -> CallRefused:
        """Return the error for calls of a server that ends."""
        text = "the server is shutting down: retry against another one"
        return CallRefused(wire.ERROR_REASON_SERVER_DRAINING, text)


class MessageReader:
    """Reads the messages of calls; `waits` bounds those that wait for theirs."""

    def __init__(
        self, drain: Drain, waits: MessageWaits, tokens: Tokens | None, spans: Spans | None
    ) -> None:
        self._drain, self._waits, self._tokens, self._spans = drain, waits, tokens, spans

    def request(self, call: Call, requests: Iterator[Received]) -> object:
        """Return the one message of a call, when it has come."""
        account = _account(call)
        try:
            if account is not None:
                account.expect_message()
            with self._waits.waiting(call.context):
                received = next(requests)
        except StopIteration:
            raise no_message() from None
        except grpc.RpcError as error:
            error.__traceback__ = None  # gRPC keeps the error with the call: no cycle of frames
            raise CallCancelled(grpc.StatusCode.CANCELLED) from None
        if self._drain.is_on:  # which waits for no message
            raise self._drain.refusal()
        if account is not None:
            account.receive(received.size)
        return _named(call, received.message)

    def requests(self, call: Call, requests: Iterator[Received]) -> Generator[object]:
        """Pass the messages of a stream on."""
        end = Received(None, 0)
        if call.converses:
            _expect_conversation(call)
        else:
            requests = self._awaited(call, requests)
        while True:
            with self._drain.ended:
                call.waiting = True
                if self._drain.is_on:
                    self._drain.ended.notify_all()
            try:
                received = next(requests, end)
            except grpc.RpcError as error:
                error.__traceback__ = None  # gRPC keeps the error with the call: no cycle of frames
                raise self._cut_off(call) from None
            with self._drain.ended:
                call.waiting = False
                is_late = self._drain.is_on and call.converses and received is not end
            if call.is_cut_off or is_late:  # of a cut gRPC tells by an error, or the end
                raise self._cut_off(call)
            if received is end:
                break
            self._note(call)
            message = _named(call, received.message)
            del received
            yield message
            del message  # a stream that waits keeps no message
        if call.account is not None:
            call.account.receive(0)

    def _note(self, call: Call) -> None:
        """Note that a message of a stream has come, whose token must still be good."""
        if call.converses:
            call.started, call.is_logged = time.perf_counter(), False
            if self._spans is not None:
                call.span = self._spans.begin(call.path, call.context.invocation_metadata())
        if self._tokens is not None and call.token is not None:
            self._tokens.require_current(call.token)
        call.touched = time.monotonic()

    def _awaited(self, call: Call, requests: Iterator[Received]) -> Generator[Received]:
        """Yield the messages of a stream, the first of which is awaited as that of a call."""
        account = _account(call)
        if account is not None:
            account.expect_message()
        with self._waits.waiting(call.context):
            first = list(islice(requests, 1))
        if self._drain.is_on:
            raise self._drain.refusal()
        while first:
            yield first.pop()
        yield from requests

    def _cut_off(self, call: Call) -> CallCancelled | CallRefused:
        """Return why a stream has no more messages that count."""
        if self._drain.is_on and call.converses:
            return self._drain.refusal()
        return CallCancelled(grpc.StatusCode.CANCELLED)


def _account(call: Call) -> Account | None:
    """Return the account of a call; None if its messages are counted before they come here."""
    return None if getattr(call.context, "counts_messages", False) else call.account


def _expect_conversation(call: Call) -> None:
    """Have room for the largest message, for as long as the conversation lasts."""
    account = _account(call)
    if account is None:
        return
    try:
        account.expect_message(lasts=True)
    except CallRefused as refused:
        text = f"a conversation: {refused.message}, or make unary calls"
        facts = {**refused.metadata, "field": "max_conversations"}  # clients look for this one
        raise CallRefused(refused.reason, text, **facts) from None


def _named(call: Call, request: object) -> object:
    """Note whose session a request is about, and return it; refuse one that is none."""
    get_session = _SESSION_GETTERS.get(type(request))
    if get_session is None:
        get_session = _SESSION_GETTERS[type(request)] = session_getter(request)
    if call.session == "-" and (name := get_session(request)).startswith("sessions/"):
        call.session = session_tag(name)
    return request
