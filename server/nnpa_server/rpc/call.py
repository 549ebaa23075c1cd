# SPDX-License-Identifier: Apache-2.0
"""One call: its id, its session, and what the log says of it."""

import time
from dataclasses import dataclass, field

from nnpa_server.errors import CallRefused
from nnpa_server.rpc.budget import Account
from nnpa_server.sessions.cancellation import CallContext, Metadata
from nnpa_server.sessions.spans import SpanOfCall
from nnpa_server.sessions.tokens import Token

REQUEST_ID = "x-request-id"
SESSION = "nnpa-session"
"""Names the session of a call in metadata, where messages do not."""
# Streams whose messages are calls of their own: one that waits for its next has none under way.
CONVERSATIONS = frozenset(("ExecuteStream", "IssueStream", "ModelStreamInfer"))


@dataclass(slots=True, eq=False)
class Call:
    """One call: what is logged of it, filled in while it runs.

    `touched` is when its client last sent or took a message, `waiting` whether it waits for the
    next one of a stream, both of use for streams only. In a conversation `started` is when its
    last message came, `is_logged` whether all are answered and in the log. `entered` is whether it
    was let in, `refused` the error that it ended with, `is_cut_off` whether the server ended it,
    `converses` whether it is a conversation, `stays_open` whether it goes on without a thread when
    it was answered. `span` is that of the call, or of its last message, `path` the method's full
    name, `account` has its bytes once it was let in.
    """

    method: str
    context: CallContext
    streaming: bool
    request_id: str = ""
    token: Token | None = None
    caller: str = ""
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
    stays_open: bool = False
    path: str = ""
    span: SpanOfCall | None = None
    account: Account | None = None


def interrupt(context: CallContext) -> None:
    """Have a call that waits for its next message go on without one, still able to answer.

    gRPC's own threads can only be cancelled, and then send no status: they get a message that the
    client did not send. Those of other listeners go on when they are cancelled.
    """
    state = getattr(context, "_state", None)  # grpc._server._Context
    if state is None:
        context.cancel()
        return
    with state.condition:
        state.request = b""
        state.condition.notify_all()


def trailing_metadata(call: Call) -> Metadata:
    """Return the trailing metadata of a call that fails: its id, and what it has already."""
    pairs = call.context.trailing_metadata() or ()
    has_id = any(key == REQUEST_ID for key, _ in pairs)
    return tuple(pairs) if has_id else ((REQUEST_ID, call.request_id), *pairs)
