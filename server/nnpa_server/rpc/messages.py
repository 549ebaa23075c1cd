# SPDX-License-Identifier: Apache-2.0
"""Parsers and serializers of messages, with their bounds and counts.

What is too long or no message is handed on, so that the caller gets a documented error.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TypeVar

from google.protobuf.message import DecodeError

from nnpa_server.errors import MessageTooLong, no_message
from nnpa_server.rpc.call import Garbage
from nnpa_server.sessions.metrics import Metrics

Raw = TypeVar("Raw", bytes, bytes | memoryview)
Wire = TypeVar("Wire", bytes, Sequence[bytes | memoryview])


def reading(
    parse: Callable[[Raw], object], max_message: int, metrics: Metrics | None = None
) -> Callable[[Raw], object]:
    """Return a parser of messages of at most `max_message` bytes, which it counts."""

    def read(raw: Raw) -> object:
        if metrics is not None:
            metrics.moved("received", len(raw))
        if len(raw) > max_message:
            return MessageTooLong(len(raw), max_message)
        try:
            return parse(raw)
        except DecodeError:
            return Garbage()

    return read


def counting(serialize: Callable[..., Wire], metrics: Metrics | None) -> Callable[..., Wire]:
    """Return a serializer that counts the bytes it returns, in one piece or in several."""
    if metrics is None:
        return serialize

    def write(message: object) -> Wire:
        raw = serialize(message)
        metrics.moved("sent", len(raw) if isinstance(raw, bytes) else sum(map(len, raw)))
        return raw

    return write


def require_message(request: object) -> None:
    """Refuse what a parser handed on as no message."""
    if isinstance(request, MessageTooLong):
        raise request
    if isinstance(request, Garbage):
        raise no_message()


def session_getter(request: object) -> Callable[[object], str]:
    """Return what gets a session's name from requests of this type; refuse what is no request."""
    require_message(request)
    session = getattr(request, "session", None)
    if session is not None:
        return attrgetter("session" if isinstance(session, str) else "session.name")
    if hasattr(request, "header"):
        return attrgetter("header.session")
    return attrgetter("name") if hasattr(request, "name") else _no_session


def _no_session(_request: object) -> str:
    return ""
