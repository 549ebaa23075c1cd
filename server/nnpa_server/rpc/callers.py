# SPDX-License-Identifier: Apache-2.0
"""Who calls: the name of a caller, and the share that it has of what all callers share."""

import threading

from nnpa.zdnn.v1 import status_pb2 as wire

from nnpa_server.errors import CallRefused
from nnpa_server.sessions.cancellation import CallContext
from nnpa_server.sessions.tokens import Token


def caller_name(token: Token | None, context: CallContext) -> str:
    """Return the name of a caller: its token's holder, without tokens its connection.

    A plain socket is a connection of its process. gRPC does not tell connections of a Unix socket
    apart: without tokens they are one caller.
    """
    holder = "" if token is None else token.name
    return name_of(holder, getattr(context, "process", "") or context.peer())


def name_of(holder: str, connection: str) -> str:
    """Return the name of a caller: the holder of its token, if there is one, or its connection."""
    return f"token {holder}" if holder else connection


def _is_one_caller(name: str) -> bool:
    """Return False for a name that stands for all connections of a Unix socket."""
    return not name.startswith("unix:")


class Shares:
    """At most `limit` places of a pool; one caller has at most as many as are left for all others.

    One alone has half of them, two have a third each, and a newcomer finds room. `field` names the
    pool in refusals, `places` says what it has, `remedy` what a caller can do.
    """

    def __init__(
        self,
        field: str,
        limit: int,
        places: str = "calls",
        remedy: str = "end some, or retry with a pause",
        reason: int = wire.ERROR_REASON_CALL_QUOTA_EXCEEDED,
    ) -> None:
        self.limit = limit
        self._field, self._places, self._remedy, self._reason = field, places, remedy, reason
        self._taken: dict[str, int] = {}
        self._total = 0
        self._lock = threading.Lock()

    def take(self, caller: str) -> None:
        """Take a place; raise CallRefused where there is none for the caller."""
        if not self.try_take(caller):
            raise self._refusal(caller)

    def try_take(self, caller: str) -> bool:
        """Take a place; tell whether there was one for the caller."""
        with self._lock:
            left, own = self.limit - self._total, self._taken.get(caller, 0)
            fits = left > 0 and (own < left or not _is_one_caller(caller))
            if fits:
                self._total += 1
                self._taken[caller] = own + 1
            return fits

    def give(self, caller: str) -> None:
        """Give a place back."""
        with self._lock:
            self._total -= 1
            left = self._taken.pop(caller) - 1
            if left:
                self._taken[caller] = left

    def _refusal(self, caller: str) -> CallRefused:
        own, limit = self._taken.get(caller, 0), self.limit
        if self._total >= limit:
            most, text = limit, f"{self._field}, {limit} {self._places}, are taken"
        else:
            whose = f"{own} of {limit} {self._places} are this caller's"
            most, text = own, f"{self._field}: {whose}, which leaves others as many"
        return CallRefused(
            self._reason,
            f"{text}: {self._remedy}",
            field=self._field,
            value=most + 1,
            limit=most,
        )
