# SPDX-License-Identifier: Apache-2.0
"""Leases, which end a session soon after its client, however the client ends.

Calls that stay open hold a lease. The lease breaks when the last of them ends, or if none begins
within the grace after the session's creation.
Source: nnpa/zdnn/v1/accelerator.proto, Session.lease.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeAlias

from nnpa.zdnn.v1 import status_pb2 as wire

from nnpa_server.errors import CallRefused

End: TypeAlias = Callable[[CallRefused | None], object]
"""A function that ends a call which holds a lease, with an error or with status OK."""
_MAX_REMEMBERED = 4096  # sessions whose leases broke


class Lease:
    """The lease of one session, used under the lock of its store.

    `since` is when it was created, or when the last call stopped holding it.
    """

    def __init__(self) -> None:
        self.holds: dict[object, End] = {}
        self.since = time.monotonic()
        self._was_held = False

    @property
    def is_broken(self) -> bool:
        """Whether a call held it, and none does now."""
        return self._was_held and not self.holds

    def hold(self, end: End) -> object:
        """Add a call that holds it; return the key for `release`."""
        key = object()
        self.holds[key] = end
        self._was_held = True
        return key

    def release(self, key: object) -> None:
        """Note that a call has ended."""
        del self.holds[key]
        self.since = time.monotonic()

    def is_over(self, last_used: float, grace: float) -> bool:
        """Return True if no call held it, or used its session, for `grace` seconds."""
        return not self.holds and max(self.since, last_used) < time.monotonic() - grace

    def end(self, refusal: CallRefused | None) -> None:
        """End the calls that hold it; the lock must not be held."""
        for end in tuple(self.holds.values()):
            end(refusal)


class BrokenLeases:
    """Remembers sessions whose leases broke, to tell clients that come back."""

    def __init__(self) -> None:
        self._ended: OrderedDict[bytes, float] = OrderedDict()

    def add(self, name: str, token: str) -> None:
        """Remember a session, with the name of its token."""
        self._ended[_digest(name, token)] = time.monotonic()
        if len(self._ended) > _MAX_REMEMBERED:
            self._ended.popitem(last=False)

    def refusal(self, name: str, token: str) -> CallRefused | None:
        """Return the refusal for a session of the caller whose lease broke; None for any other."""
        ended = self._ended.get(_digest(name, token))
        if ended is None:
            return None
        seconds = time.monotonic() - ended
        return CallRefused(
            wire.ERROR_REASON_SESSION_NOT_FOUND,
            f"the session ended {seconds:.0f} s ago because its lease broke: its HoldSession call "
            "ended, and none came in time; create a session and start over",
            session=name[:64],
            field="lease",
        )


def _digest(name: str, token: str) -> bytes:
    return hashlib.sha256(f"{token} {name}".encode()).digest()
