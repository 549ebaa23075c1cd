# SPDX-License-Identifier: Apache-2.0
"""Parsers and serializers of messages, with their bounds and counts.

What is too long or no message is handed on, so that the caller gets a documented error.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple, TypeVar

from google.protobuf.message import DecodeError

from nnpa_server.errors import MessageTooLong, no_message
from nnpa_server.rpc.call import Garbage
from nnpa_server.sessions.metrics import Metrics

Raw = TypeVar("Raw", bytes, bytes | memoryview)


class Received(NamedTuple):
    """A message with the bytes that it had."""

    message: object
    size: int


def reading(
    parse: Callable[[Raw], object], max_message: int, metrics: Metrics | None = None
) -> Callable[[Raw], Received]:
    """Return a parser of messages of at most `max_message` bytes, which it counts."""

    def read(raw: Raw) -> Received:
        size = len(raw)
        if metrics is not None:
            metrics.moved("received", size)
        if size > max_message:
            return Received(MessageTooLong(size, max_message), size)
        try:
            return Received(parse(raw), size)
        except DecodeError:
            return Received(Garbage(), size)

    return read


def size_of(raw: bytes | Sequence[bytes | memoryview]) -> int:
    """Return the bytes of a serialized message, in one piece or in several."""
    return len(raw) if isinstance(raw, bytes) else sum(map(len, raw))


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
