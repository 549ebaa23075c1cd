# SPDX-License-Identifier: Apache-2.0
"""Cancellation of calls: by the client, by a deadline, by the end of the session."""

import time
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import grpc

from nnpa_server.errors import CallCancelled
from nnpa_server.sessions.store import Session

Metadata: TypeAlias = tuple[tuple[str, str | bytes], ...]
"""Names with values that travel beside messages."""
CHECK_PERIOD = 0.002  # seconds between questions to gRPC, each of which takes a lock


class Cancellable(Protocol):
    """A call that may end before its answer."""

    def is_active(self) -> bool:
        """Return True while the call runs and its client is connected."""
        ...

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline, or None without a deadline."""
        ...


class Context(Cancellable, Protocol):
    """The part of grpc.ServicerContext that services use."""

    def peer(self) -> str:
        """Return the address of the client."""
        ...

    def trailing_metadata(self) -> Metadata | None:
        """Return the trailing metadata set so far, or None."""
        ...

    def set_trailing_metadata(self, trailing_metadata: Metadata) -> None:
        """Replace the trailing metadata."""
        ...


class CallContext(grpc.ServicerContext):
    """The context of a call, of which the interceptor and open calls use more than services do.

    It is a type only: gRPC's stubs leave `cancel` untyped.
    """

    def cancel(self) -> None:
        """Cut the call off."""


class PlainContext(Context, Protocol):
    """The part of a plain socket's context that services use."""

    def invocation_metadata(self) -> Metadata:
        """Return the metadata that the client sent."""
        ...

    def take_memory(self) -> int | None:
        """Return the descriptor that came with the call, or None; the caller closes it."""
        ...


@dataclass(slots=True)
class CancellationCheck:
    """A check to call between steps: it raises if the client or the session is gone."""

    context: Cancellable
    session: Session | None = None
    _next: float = 0.0

    def __call__(self) -> None:
        """Raise `CallCancelled`, or the error of a session that was deleted meanwhile."""
        if self.session is not None and self.session.closed:
            self.session.require_open()
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + CHECK_PERIOD
        if not self.context.is_active():
            raise cancelled(self.context)


def cancelled(context: Cancellable) -> CallCancelled:
    """Return the error of a call whose deadline has passed or whose client is gone."""
    remaining = context.time_remaining()
    is_late = remaining is not None and remaining <= 0
    code = grpc.StatusCode.DEADLINE_EXCEEDED if is_late else grpc.StatusCode.CANCELLED
    return CallCancelled(code)
