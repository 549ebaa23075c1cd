# SPDX-License-Identifier: Apache-2.0
"""Leases: what ends a session soon after its client, however that ends.

A lease is held by calls that stay open. It is broken once the last of them has ended, or when none
has begun within the grace of its session's creation.
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
"""Ends a call that holds a lease: with an error, or well."""
_MAX_REMEMBERED = 4096  # sessions whose leases broke


class Lease:
    """The lease of one session, under the lock of its store.

    `since` is when it was created, or when nobody held it any more.
    """

    def __init__(self) -> None:
        self.holds: dict[object, End] = {}
        self.since = time.monotonic()
        self._was_held = False

    @property
    def is_broken(self) -> bool:
        """Whether it was held, and is no more."""
        return self._was_held and not self.holds

    def hold(self, end: End) -> object:
        """Add a call that holds it; return the key that `release` takes."""
        key = object()
        self.holds[key] = end
        self._was_held = True
        return key

    def release(self, key: object) -> None:
        """Note that a call has ended."""
        del self.holds[key]
        self.since = time.monotonic()

    def is_over(self, last_used: float, grace: float) -> bool:
        """Tell whether nobody has held it, nor used its session, for the grace."""
        return not self.holds and max(self.since, last_used) < time.monotonic() - grace

    def end(self, refusal: CallRefused | None) -> None:
        """End the calls that hold it, outside the lock."""
        for end in tuple(self.holds.values()):
            end(refusal)


class BrokenLeases:
    """The last sessions that ended because their leases broke: who comes back is told."""

    def __init__(self) -> None:
        self._ended: OrderedDict[bytes, float] = OrderedDict()

    def add(self, name: str, token: str) -> None:
        """Remember a session, and the name of the token whose it was."""
        self._ended[_digest(name, token)] = time.monotonic()
        if len(self._ended) > _MAX_REMEMBERED:
            self._ended.popitem(last=False)

    def refusal(self, name: str, token: str) -> CallRefused | None:
        """Return what tells a caller that the lease of its session broke; None for any other."""
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
