# SPDX-License-Identifier: Apache-2.0
"""The names of callers, and the share that each of them has of a pool."""

import threading

from nnpa.zdnn.v1 import status_pb2 as wire

from nnpa_server.errors import CallRefused
from nnpa_server.sessions.cancellation import CallContext


def connection_of(context: CallContext) -> str:
    """Return the name of a call's connection; a plain socket is a connection of its process.

    gRPC does not tell connections of a Unix socket apart: they have one name.
    """
    return getattr(context, "process", "") or context.peer()


def name_of(holder: str, connection: str) -> str:
    """Return the name of a caller: the holder of its token, if there is one, or its connection."""
    return f"token {holder}" if holder else connection


def fits(caller: str, own: int, left: int) -> bool:
    """Return True if a caller that has `own` places of a pool may take one of those `left`.

    The name "unix:" stands for all connections of a Unix socket, which may have the whole pool.
    """
    return left > 0 and (own < left or caller.startswith("unix:"))


class Shares:
    """A pool of `limit` places, in which no caller has more places than are free for all others.

    A single caller gets half of the places, two get a third each, and a newcomer finds room. In
    refusals, `field` names the pool, `places` its unit, and `remedy` what the caller can do.
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
        """Take a place; raise CallRefused if the caller may have no more."""
        if not self.try_take(caller):
            raise self._refusal(caller)

    def try_take(self, caller: str) -> bool:
        """Take a place and return True, or return False if the caller may have no more."""
        with self._lock:
            left, own = self.limit - self._total, self._taken.get(caller, 0)
            has_room = fits(caller, own, left)
            if has_room:
                self._total += 1
                self._taken[caller] = own + 1
            return has_room

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
            most, text = limit, f"{self._field} is {limit}, and {limit} {self._places} are taken"
        else:
            whose = f"{own} of {limit} {self._places} are this caller's"
            most, text = own, f"{self._field}: {whose}, which may have no more than are free"
        return CallRefused(
            self._reason, f"{text}: {self._remedy}", field=self._field, value=most + 1, limit=most
        )
