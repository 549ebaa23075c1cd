# SPDX-License-Identifier: Apache-2.0
"""One call: its id, its session, and what the log says of it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Protocol

import grpc

from nnpa_server.errors import CallRefused, MessageTooLong, no_message
from nnpa_server.sessions.cancellation import Context, Metadata
from nnpa_server.sessions.tokens import Token

REQUEST_ID = "x-request-id"
# Streams whose messages are calls of their own: one that waits for its next has none under way.
CONVERSATIONS = frozenset(("ExecuteStream", "ModelStreamInfer"))


class CallContext(Context, Protocol):
    """What is used around calls of a grpc.ServicerContext."""

    def invocation_metadata(self) -> Metadata:
        """Return what the client sent first."""
        ...

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Have something called when the call ends; tell whether it has not ended yet."""
        ...

    def cancel(self) -> object:
        """Cut the call off."""
        ...

    def abort(self, code: grpc.StatusCode, details: str) -> object:
        """End the call with an error."""
        ...

    def abort_with_status(self, status: grpc.Status) -> object:
        """End the call with an error and its details."""
        ...


@dataclass(slots=True, eq=False)
class Call:
    """One call: what is logged of it, filled in while it runs.

    `touched` is when its client last sent or took a message, `waiting` whether it waits for the
    next one of a stream, both of use for streams only. In a conversation `started` is when its
    last message came, `is_logged` whether all are answered and in the log. `entered` is whether it
    was let in, `refused` the error that it ended with, `is_cut_off` whether the server ended it,
    `converses` whether it is a conversation.
    """

    method: str
    context: CallContext
    streaming: bool
    request_id: str = ""
    token: Token | None = None
    started: float = field(default_factory=time.perf_counter)
    session: str = "-"
    operations: int = 0
    status: str = "OK"
    touched: float = field(default_factory=time.monotonic)
    waiting: bool = False
    is_logged: bool = False
    entered: bool = False
    refused: CallRefused | None = None
    is_cut_off: bool = False
    converses: bool = False


class Garbage:
    """A request whose bytes are no message of its type."""


def trailing_metadata(call: Call) -> Metadata:
    """Return the trailing metadata of a call that fails: its id, and what it has already."""
    pairs = call.context.trailing_metadata() or ()
    has_id = any(key == REQUEST_ID for key, _ in pairs)
    return tuple(pairs) if has_id else ((REQUEST_ID, call.request_id), *pairs)


def session_getter(request: object) -> Callable[[object], str]:
    """Return what gets a session's name from requests of this type; refuse what is no request."""
    if isinstance(request, MessageTooLong):
        raise request
    if isinstance(request, Garbage):
        raise no_message()
    session = getattr(request, "session", None)
    if session is not None:
        return attrgetter("session" if isinstance(session, str) else "session.name")
    if hasattr(request, "header"):
        return attrgetter("header.session")
    return attrgetter("name") if hasattr(request, "name") else _no_session


def _no_session(_request: object) -> str:
    return ""
