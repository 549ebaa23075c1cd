# SPDX-License-Identifier: Apache-2.0
"""What the networks of a session hold: counted in its quota, given back with it."""

import weakref
from collections.abc import Generator
from contextlib import contextmanager

from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator.interruption import set_check
from nnpa_emulator.machine import Guest, Memory, page_memory

from nnpa_server.config import MAX_RESPONSE
from nnpa_server.errors import CallRefused
from nnpa_server.rpc.budget import expect_answer
from nnpa_server.sessions.cancellation import CancellationCheck, Context
from nnpa_server.sessions.store import Session


class NetworkMemory:
    """Storage for sticks of a session's networks.

    While a call runs, sticks count as long as they live; afterwards only what was kept does.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._patience: CancellationCheck | None = None
        self._call = 0
        self._kept: dict[str, int] = {}

    def guest(self) -> Guest:
        """Return a guest like the session's, whose sticks are counted here."""
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
        """Hold the session for a call; `allocate` and operations raise once it is cancelled."""
        session = self._session
        with session.running(context.time_remaining()):
            self._patience = CancellationCheck(context, session)
            set_check(self._patience)
            try:
                yield
            finally:
                set_check(None)
                self._patience = None
                self._call += 1

    def allocate(self, size: int) -> Memory | None:
        """Return zero bytes for sticks, None when the host has none left.

        Raises CallRefused beyond the quota, `CallCancelled` once the call is cancelled.
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
        """Count sticks that are used again until the call ends; raise as `allocate` does."""
        self.check()
        self._session.reserve(size)
        self._session.pending_bytes += size

    def check(self) -> None:
        """Raise `CallCancelled`, or the session's error, where nobody waits for the call."""
        if self._patience is not None:
            self._patience()

    @contextmanager
    def answering(self, size: int) -> Generator[None]:
        """Count an answer larger than requests may be until it is made; raise CallRefused.

        The caller does not hold the session.
        """
        require_message(size)
        expect_answer(size)
        session = self._session
        with session.staged(size if size > session.limits.max_message else 0):
            yield

    def require(self, size: int) -> None:
        """Refuse `size` bytes that a call is to take for itself; raises CallRefused."""
        self._session.reserve(size)

    def room(self) -> int:
        """Return the bytes that the session may still take, and those that its networks keep."""
        session = self._session
        used = session.stored_bytes + session.staged_bytes + session.pending_bytes
        return session.limits.max_session_bytes - used + sum(self._kept.values())

    def _freed(self, size: int, call: int) -> None:
        """Count sticks no more that died before their call ended."""
        if call == self._call and self._patience is not None:
            self._session.pending_bytes -= size

    def keep(self, name: str, size: int) -> None:
        """Set the bytes that are counted under a name; 0 removes it.

        The caller holds the session. Raises CallRefused, and counts nothing, beyond the quota.
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
    """Refuse outputs that are too long for one message, bytes."""
    if size > MAX_RESPONSE:
        text = f"outputs have {size} bytes, at most {MAX_RESPONSE} travel in a message: "
        facts = {"field": "outputs", "value": size, "limit": MAX_RESPONSE}
        reason = wire.ERROR_REASON_MESSAGE_TOO_LARGE
        raise CallRefused(reason, f"{text}run fewer batches, or smaller ones", **facts)
