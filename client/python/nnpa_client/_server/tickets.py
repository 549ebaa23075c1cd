# SPDX-License-Identifier: Apache-2.0
"""Tickets: the metadata by which a proxy routes a session's calls to its server.

Source: deploy/docs/wire.md, "Behind a proxy".
"""

from collections.abc import Iterable

from nnpa.zdnn.v1.accelerator_pb2 import CreateSessionRequest
from nnpa.zdnn.v1.trace_pb2 import RecordTraceRequest

HEADER = "nnpa-session-ticket"
_SESSIONS = "sessions/"


def named(request: object) -> str:
    """Return the name of the session or trace that a request names, "" for none."""
    message = getattr(request, "message", request)  # of a list with arrays beside it
    message = getattr(message, "header", message)  # of a stream's first message
    session = getattr(message, "session", None)
    if isinstance(session, str):
        return session
    if session is not None:
        return str(session.name or session.trace)
    return str(getattr(message, "name", "") or getattr(message, "trace", ""))


def is_session(name: str) -> bool:
    """Return True if a name is a session's."""
    return name.startswith(_SESSIONS)


class Tickets(dict[str, str]):
    """The tickets of a connection's sessions and traces, by name; empty without a proxy."""

    _last_session = ""

    def of(self, request: object) -> str:
        """Return the ticket of the session or trace that a request names, "" for none.

        A new session uses the ticket of the trace that it joins, a new trace the ticket of the
        last session.
        """
        name = named(request)
        if isinstance(request, RecordTraceRequest):
            name = self._last_session
        elif isinstance(request, CreateSessionRequest):
            name = request.session.trace
        return self.get(name, "")

    def keep(self, name: str, ticket: str) -> None:
        """Remember the ticket of a session or trace; "" forgets it."""
        if not ticket:
            self.pop(name, None)
            return
        self[name] = ticket
        if is_session(name):
            self._last_session = name


def ticket_in(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Return the ticket in the headers of an answer, "" for none."""
    return next((str(value) for name, value in metadata if name == HEADER), "")
