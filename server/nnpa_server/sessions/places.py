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
from nnpa_server.sessions.quota import Quota, SharedQuota

_RETRY_SECONDS = 1  # until a full server may be asked again


class Placed(Protocol):
    """The part of a session that concerns places."""

    trail: Trail
    lease: Lease | None


AnySession = TypeVar("AnySession", bound=Placed)


def _too_many(who: str, limit: int) -> CallRefused:
    return CallRefused(
        wire.ERROR_REASON_SESSION_QUOTA_EXCEEDED,
        f"max_sessions is {limit}, and {who} has {limit}: delete one, or retry later",
        field="max_sessions",
        limit=limit,
    )


class Places:
    """Bounds a server to `most` sessions; `quota` is the socket of a `QuotaCounter`, or ""."""

    def __init__(self, most: int, quota: str) -> None:
        self._most = most
        self._quota = SharedQuota(quota) if quota else Quota(most)
        self.give = self._quota.give
        self.close = self._quota.close

    def take(self, token: str, limit: int) -> None:
        """Take a place; raise CallRefused if the server or the token has none left."""
        full = self._quota.take(token, limit)
        if full == "server":
            refusal = _too_many("the server", self._most)
            refusal.details.append(RetryInfo(retry_delay={"seconds": _RETRY_SECONDS}))
            raise refusal
        if full == "token":
            raise _too_many(f"the token {token}", limit)

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
