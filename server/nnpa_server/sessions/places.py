# SPDX-License-Identifier: Apache-2.0
"""Places for sessions: the bounds of a server and of each token.

A session whose lease is broken has given up its place. It stays until another session needs room.
"""

from collections.abc import Collection
from typing import Protocol, TypeVar

from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped] # ships none
from nnpa.zdnn.v1 import status_pb2 as wire

from nnpa_server.errors import CallRefused
from nnpa_server.sessions.audit import Trail
from nnpa_server.sessions.leases import Lease
from nnpa_server.sessions.quota import SharedQuota

_RETRY_SECONDS = 1  # until a full server may be asked again


class Placed(Protocol):
    """The part of a session that concerns places."""

    trail: Trail
    lease: Lease | None

    @property
    def has_place(self) -> bool:
        """Whether the session counts."""
        ...


AnySession = TypeVar("AnySession", bound=Placed)


def _too_many(who: str, limit: int) -> CallRefused:
    return CallRefused(
        wire.ERROR_REASON_SESSION_QUOTA_EXCEEDED,
        f"max_sessions is {limit}, and {who} has {limit}: delete one, or retry later",
        field="max_sessions",
        limit=limit,
    )


def _full(limit: int) -> CallRefused:
    """Return the refusal of a full server, with the time after which to retry."""
    refusal = _too_many("the server", limit)
    refusal.details.append(RetryInfo(retry_delay={"seconds": _RETRY_SECONDS}))
    return refusal


class Places:
    """Bounds a server to `most` sessions; `quota` is the socket of a `QuotaCounter`, or ""."""

    def __init__(self, most: int, quota: str) -> None:
        self._most = most
        self._quota = SharedQuota(quota) if quota else None

    def take(self, token: str, limit: int, sessions: Collection[Placed]) -> None:
        """Take a place beside `sessions`; raise CallRefused if server or token has none left."""
        if self._quota is not None:
            full = self._quota.take(token, limit)
        else:
            placed = [session for session in sessions if session.has_place]
            mine = sum(session.trail.token == token for session in placed)
            is_full = len(placed) >= self._most
            full = "server" if is_full else "token" if token and mine >= limit else ""
        if full == "server":
            raise _full(self._most)
        if full == "token":
            raise _too_many(f"the token {token}", limit)

    def give(self, token: str) -> None:
        """Return the place of a session."""
        if self._quota is not None:
            self._quota.give(token)

    def too_many(
        self, token: str, limit: int, sessions: Collection[AnySession]
    ) -> AnySession | None:
        """Return the session to end if one more is too many: its lease broke first; else None."""
        if len(sessions) < self._most:
            sessions = [session for session in sessions if session.trail.token == token]
            if not token or len(sessions) < limit:
                return None
        broken = [
            (session.lease.since, session)
            for session in sessions
            if session.lease is not None and session.lease.is_broken
        ]  # none, where some have their places in other processes
        return min(broken, key=lambda pair: pair[0], default=(0.0, None))[1]

    def close(self) -> None:
        """Return all places."""
        if self._quota is not None:
            self._quota.close()
