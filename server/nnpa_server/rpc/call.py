# SPDX-License-Identifier: Apache-2.0
"""One call: its id, whose session it is about, and what the log tells of it."""

import random
import re
import time
from dataclasses import dataclass, field
from typing import Any

from nnpa_server.errors import CallRefused, MessageTooLong, no_message
from nnpa_server.sessions.store import session_tag
from nnpa_server.sessions.tokens import Token

_REQUEST_ID = "x-request-id"
_ids = random.Random()  # seeded by the system once: asking it each time lets other threads in first
_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
# Streams whose messages are calls of their own: one that waits for its next has none under way.
_CONVERSATIONS = frozenset(("ExecuteStream", "ModelStreamInfer"))
_SESSIONLESS: set[type] = set()  # types of requests that have no field for a session's name


@dataclass(slots=True, eq=False)
class Call:
    """One call: what is told about it, filled in while it runs.

    `touched` is when its client last sent or took a message, `waiting` whether it waits for the
    next one of a stream, both of use for streams only. In a conversation `started` is when its
    last message came, `told` whether all are answered and in the log. `entered` is whether it was
    let in, `refused` the error that it ended with, `is_cut_off` whether the server ended it.
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
    is_cut_off: bool = False

    @property
    def converses(self) -> bool:
        """Whether it is a stream whose messages are calls of their own."""
        return self.method in _CONVERSATIONS


class Garbage:
    """A request whose bytes are no message of its type."""


def begun(method: str, context: Any, streaming: bool) -> Call:
    """Return a call that has just come, and have its id go back if it brings one."""
    for key, value in context.invocation_metadata():
        if key == _REQUEST_ID and isinstance(value, str) and _SAFE_ID.fullmatch(value):
            context.set_trailing_metadata(((_REQUEST_ID, value),))
            return Call(method, context, streaming, value)
    return Call(method, context, streaming, f"{_ids.getrandbits(64):016x}")


def last_words(call: Call) -> tuple[tuple[str, str], ...]:
    """Return the trailing metadata of a call that fails: its id, and what it has already."""
    there: Any = call.context.trailing_metadata() or ()
    known = any(key == _REQUEST_ID for key, _ in there)
    return tuple(there) if known else ((_REQUEST_ID, call.request_id), *there)


def noted(call: Call, request: Any) -> Any:
    """Note whose session a request is about, and return it; refuse one that is none."""
    if type(request) in _SESSIONLESS:
        return request
    if isinstance(request, MessageTooLong):
        raise request
    if isinstance(request, Garbage):
        raise no_message()
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
