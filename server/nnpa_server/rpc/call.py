# SPDX-License-Identifier: Apache-2.0
"""The state of one call: its id, its session, and the facts for the log."""

import time
from dataclasses import dataclass, field

from nnpa_server.errors import CallRefused
from nnpa_server.rpc.budget import Account
from nnpa_server.sessions.cancellation import CallContext, Metadata
from nnpa_server.sessions.spans import SpanOfCall
from nnpa_server.sessions.tokens import Token

REQUEST_ID = "x-request-id"
SESSION = "nnpa-session"
"""The metadata key that names a call's session if its message does not."""
# Streams whose messages are calls of their own: one that waits for its next has none under way.
CONVERSATIONS = frozenset(("ExecuteStream", "IssueStream", "ModelStreamInfer"))


@dataclass(slots=True, eq=False)
class Call:
    """One call and the facts of its line in the log, which are filled in while it runs."""

    method: str
    context: CallContext
    streaming: bool  # the call is a stream, with a place among the streams
    request_id: str = ""
    token: Token | None = None
    caller: str = ""  # the holder of its token, or its connection, whose shares it takes
    started: float = field(default_factory=time.perf_counter)  # of a conversation: its last message
    session: str = "-"
    operations: int = 0
    status: str = "OK"
    touched: float = field(default_factory=time.monotonic)  # its client sent or took a message
    waiting: bool = False  # the stream waits for its next message
    is_logged: bool = False  # every message of the conversation so far was answered and logged
    entered: bool = False  # the call was let in
    refused: CallRefused | None = None  # the error that ended the call
    is_cut_off: bool = False  # the server ended the call
    converses: bool = False  # the call is a conversation, whose messages are calls of their own
    stays_open: bool = False  # the call goes on without a thread after its behaviour returned
    path: str = ""  # the full name of the method
    span: SpanOfCall | None = None  # of the call, or of the conversation's last message
    account: Account | None = None  # of the bytes of its message and answer, once it was let in


def interrupt(context: CallContext) -> None:
    """Make a call that waits for its next message go on without one, so that it can still answer.

    A call of gRPC that is cancelled sends no status, so it is given an empty message instead. A
    call of a plain socket answers after it was cancelled.
    """
    state = getattr(context, "_state", None)  # grpc._server._Context
    if state is None:
        context.cancel()
        return
    with state.condition:
        state.request = b""
        state.condition.notify_all()


def trailing_metadata(call: Call) -> Metadata:
    """Return the trailing metadata of a call that fails: its id, and the pairs set before."""
    pairs = call.context.trailing_metadata() or ()
    has_id = any(key == REQUEST_ID for key, _ in pairs)
    return tuple(pairs) if has_id else ((REQUEST_ID, call.request_id), *pairs)
