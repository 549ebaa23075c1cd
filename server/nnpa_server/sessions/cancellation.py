# SPDX-License-Identifier: Apache-2.0
"""Cancellation of calls: by the client, by a deadline, by the end of the session."""

import time
from collections.abc import Callable
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
        """Tell whether the call still runs."""
        ...

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline, None without one."""
        ...


class Context(Cancellable, Protocol):
    """What services use of a grpc.ServicerContext."""

    def peer(self) -> str:
        """Return where the client is."""
        ...

    def trailing_metadata(self) -> Metadata | None:
        """Return the pairs that follow the answer so far, None for none."""
        ...

    def set_trailing_metadata(self, trailing_metadata: Metadata) -> None:
        """Have other pairs follow the answer."""
        ...


class CallContext(Context, Protocol):
    """What is used around calls, and of calls that stay open, of a grpc.ServicerContext."""

    def invocation_metadata(self) -> Metadata:
        """Return what the client sent first."""
        ...

    def send_initial_metadata(self, initial_metadata: Metadata) -> None:
        """Send the headers of the answer."""
        ...

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Have something called when the call ends; tell whether it has not ended yet."""
        ...

    def cancel(self) -> object:
        """Cut the call off."""
        ...

    def set_code(self, code: grpc.StatusCode) -> None:
        """Say how the call will end."""
        ...

    def set_details(self, details: str) -> None:
        """Say why."""
        ...

    def abort(self, code: grpc.StatusCode, details: str) -> object:
        """End the call with an error."""
        ...

    def abort_with_status(self, status: grpc.Status) -> object:
        """End the call with an error and its details."""
        ...


class PlainContext(CallContext, Protocol):
    """What services use of a call on a plain socket."""

    def take_memory(self) -> int | None:
        """Return the descriptor that came with the call, once."""
        ...


@dataclass(slots=True)
class CancellationCheck:
    """Called between steps: raises when the client or the session is gone."""

    context: Cancellable
    session: Session | None = None
    _next: float = 0.0

    def __call__(self) -> None:
        """Raise `CallCancelled`, or the session's error when it was deleted meanwhile."""
        if self.session is not None and self.session.closed:
            self.session.require_open()
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + CHECK_PERIOD
        if not self.context.is_active():
            raise cancelled(self.context)


def cancelled(context: Cancellable) -> CallCancelled:
    """Return why a call is cancelled: its deadline passed, or its client went away."""
    remaining = context.time_remaining()
    is_late = remaining is not None and remaining <= 0
    code = grpc.StatusCode.DEADLINE_EXCEEDED if is_late else grpc.StatusCode.CANCELLED
    return CallCancelled(code)
