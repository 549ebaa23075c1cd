# SPDX-License-Identifier: Apache-2.0
"""Count the memory of a session's networks in the quota of the session."""

import weakref
from collections.abc import Generator
from contextlib import contextmanager

from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator import interruption
from nnpa_emulator.machine import Guest, Memory, page_memory

from nnpa_server.config import MAX_RESPONSE
from nnpa_server.errors import CallRefused
from nnpa_server.rpc.budget import expect_answer
from nnpa_server.sessions.cancellation import CancellationCheck, Context
from nnpa_server.sessions.store import Session


class NetworkMemory:
    """Provides storage for the sticks of a session's networks.

    While a call runs, all sticks that live are counted; after it, only the bytes that `keep` set.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._patience: CancellationCheck | None = None
        self._call = 0
        self._kept: dict[str, int] = {}

    def guest(self) -> Guest:
        """Return a guest with the session's machine and options, whose sticks are counted here."""
        mine = self._session.guest
        guest = Guest(
            mine.machine,
            mine.library,
            numerics=mine.numerics,
            jitter_seed=mine.jitter_seed,
            accumulate=mine.accumulate,
            allocate=self.allocate,
            reserve=self.reserve,
        )
        guest.cached = mine.cached
        return guest

    @contextmanager
    def running(self, context: Context) -> Generator[None]:
        """Hold the session for a call; `allocate` and operations raise if the call is cancelled."""
        session = self._session
        with session.running(context.time_remaining()):
            self._patience = CancellationCheck(context, session)
            interruption.thread.check = self._patience
            try:
                yield
            finally:
                interruption.thread.check = None
                self._patience = None
                self._call += 1

    def allocate(self, size: int) -> Memory | None:
        """Return zeroed memory for sticks, or None if the host has none left.

        Raise CallRefused beyond the quota, and `CallCancelled` if the call is cancelled.
        """
        self.check()
        session = self._session
        session.reserve(size)
        memory = page_memory(size)
        if memory is not None:
            session.pending_bytes += size
            weakref.finalize(memory, self._freed, size, self._call).atexit = False
        return memory

    def reserve(self, size: int) -> None:
        """Count reused sticks until the call ends; raise as `allocate` does."""
        self.check()
        self._session.reserve(size)
        self._session.pending_bytes += size

    def check(self) -> None:
        """Raise `CallCancelled`, or the session's error, if nobody waits for the call any more."""
        if self._patience is not None:
            self._patience()

    @contextmanager
    def answering(self, size: int) -> Generator[None]:
        """Count an answer of `size` bytes in the session while it is made; raise CallRefused.

        Answers within the limit of messages count in the server's budget alone. The session must
        not be held.
        """
        require_message(size)
        expect_answer(size)
        session = self._session
        with session.staged(size if size > session.limits.max_message else 0):
            yield

    def require(self, size: int) -> None:
        """Raise CallRefused if the session may not take `size` more bytes; count nothing."""
        self._session.reserve(size)

    def room(self) -> int:
        """Return the bytes that the session may still take, plus the bytes of its networks."""
        session = self._session
        used = session.stored_bytes + session.staged_bytes + session.pending_bytes
        return session.limits.max_session_bytes - used + sum(self._kept.values())

    def _freed(self, size: int, call: int) -> None:
        """Stop counting sticks that were freed before their call ended."""
        if call == self._call and self._patience is not None:
            self._session.pending_bytes -= size

    def keep(self, name: str, size: int) -> None:
        """Set the bytes that are counted under a name; 0 removes the name.

        The session must be held. Raise CallRefused, and change nothing, beyond the quota.
        """
        session, before = self._session, self._kept.get(name, 0)
        if size > before:
            session.reserve(max(0, size - before - session.pending_bytes))
        session.stored_bytes += size - before
        if size:
            self._kept[name] = size
        else:
            self._kept.pop(name, None)

    def kept(self, name: str) -> int:
        """Return the bytes that are counted under a name."""
        return self._kept.get(name, 0)


def require_message(size: int) -> None:
    """Raise CallRefused for outputs of more bytes than one message takes."""
    if size > MAX_RESPONSE:
        text = f"outputs have {size} bytes, must have at most {MAX_RESPONSE}: "
        facts = {"field": "outputs", "value": size, "limit": MAX_RESPONSE}
        reason = wire.ERROR_REASON_MESSAGE_TOO_LARGE
        raise CallRefused(reason, f"{text}run fewer batches, or smaller ones", **facts)
