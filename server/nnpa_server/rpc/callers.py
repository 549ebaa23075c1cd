# SPDX-License-Identifier: Apache-2.0
"""Who calls: the name under which a caller has its share of what all callers share."""

from typing import Protocol

from nnpa_server.sessions.tokens import Token


class Connected(Protocol):
    """A call that came over a connection."""

    def peer(self) -> str:
        """Return where the client is."""
        ...


def caller_name(token: Token | None, context: Connected) -> str:
    """Return the name of a caller: its token's holder, without tokens its connection.

    A plain socket is a connection of its process. gRPC does not tell connections of a Unix socket
    apart: without tokens they are one caller.
    """
    if token is not None and token.name:
        return f"token {token.name}"
    return getattr(context, "process", "") or context.peer()


def is_one_caller(name: str) -> bool:
    """Return False for a name that stands for all connections of a Unix socket."""
    return not name.startswith("unix:")
