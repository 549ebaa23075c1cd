# SPDX-License-Identifier: Apache-2.0
"""Sessions and their tensors.

Memory is counted before it is allocated. A session counts the buffers of its tensors
(`stored_bytes`), transfers under way (`staged_bytes`), allocations of the running operation
(`pending_bytes`), and its cache, which shrinks when the others need room.
"""

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Protocol

import grpc
from nnpa.zdnn.v1 import accelerator_pb2
from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator.machine import Guest, Memory, page_memory
from nnpa_emulator.ztensor import Ztensor

from nnpa_server.config import Limits
from nnpa_server.errors import CallCancelled, CallRefused, beyond, invalid, too_many_calls
from nnpa_server.sessions import audit
from nnpa_server.sessions.audit import Trail
from nnpa_server.sessions.content_cache import Contents
from nnpa_server.sessions.leases import BrokenLeases, End, Lease
from nnpa_server.sessions.metrics import Metrics
from nnpa_server.sessions.places import Places
from nnpa_server.sessions.tokens import caller

_NAME_BYTES = 24  # 192 random bits: the name is the credential
_PREFIX = "sessions/"
_MIN_RETURNED = 1 << 30  # bytes that sessions freed until the system has them back


@lru_cache(maxsize=256)
def session_tag(name: str) -> str:
    """Return the name of a session for logs: a hash, since the name itself is a credential."""
    return hashlib.sha256(name.encode()).hexdigest()[:8]


def _not_found(name: str) -> CallRefused:
    return CallRefused(
        wire.ERROR_REASON_SESSION_NOT_FOUND,
        "the session does not exist, was deleted, or expired: create one and start over",
        session=name[:64],
    )


class Holding(Protocol):
    """An object that a session holds beside its tensors, and closes when it ends."""

    def close(self) -> None:
        """Release everything."""
        ...


class Session:
    """A guest and its tensors. All but `name` and `options` is used under `lock` only.

    `holdings` has the states of features by name; `fill_new` fills new memory in place of zeros.
    `has_waited` says that the running call waited for its turn: its client may be gone.
    """

    def __init__(
        self,
        name: str,
        guest: Guest,
        options: accelerator_pb2.Session,
        limits: Limits,
        trail: Trail,
        metrics: Metrics | None = None,
    ) -> None:
        self.name = name
        self.guest = guest
        self.options = options
        self.limits = limits
        self.trail = trail
        self.metrics = metrics
        self.tensors: dict[int, Ztensor] = {}
        self.lock = threading.Lock()
        self.created = time.time()
        self.last_used = time.monotonic()
        self.calls = 0
        self.closed = False
        self.has_waited = False
        self.lease = Lease() if options.lease else None  # under the store's lock
        self.stored_bytes = 0
        self.staged_bytes = 0
        self.pending_bytes = 0
        self.contents = Contents(limits.max_session_cache)
        self.fill_new: Callable[[Memory], object] | None = None
        self.holdings: dict[str, Holding] = {}
        self._held: dict[int, int] = {}
        guest.allocate = self.allocate

    def reserve(self, size: int) -> None:
        """Shrink the cache to make room for `size` bytes, uncounted; raise CallRefused for none."""
        used = self.stored_bytes + self.staged_bytes + self.pending_bytes
        limit = self.limits.max_session_bytes
        if used + size + self.contents.held > limit:
            self.contents.shrink(max(0, limit - used - size))
        if used + size > limit:
            text = f"the session holds {used} bytes, {size} more exceed max_bytes, {limit}"
            reason = wire.ERROR_REASON_TENSOR_QUOTA_EXCEEDED
            raise beyond(reason, text, "max_bytes", used + size, limit)

    def allocate(self, size: int) -> Memory | None:
        """Return new memory for the running operation, or None if the host has none left."""
        self.reserve(size)
        memory = page_memory(size)
        if memory is not None:
            self.pending_bytes += size
            if self.fill_new is not None:
                self.fill_new(memory)
        return memory

    def require_room(self) -> None:
        """Raise CallRefused if the session may not have one more tensor."""
        limit = self.limits.max_session_tensors
        if len(self.tensors) >= limit:
            text = f"the session has {len(self.tensors)} tensors, max_tensors is {limit}"
            reason = wire.ERROR_REASON_TENSOR_QUOTA_EXCEEDED
            raise beyond(reason, text, "max_tensors", len(self.tensors) + 1, limit)

    def settle(self, tensor_id: int) -> None:
        """Count the bytes of a tensor after it was created, changed or freed."""
        tensor = self.tensors.get(tensor_id)
        if tensor is None or tensor.buffer is None:
            self.stored_bytes -= self._held.pop(tensor_id, 0)
            return
        held = tensor.buffer.nbytes
        self.stored_bytes += held - self._held.get(tensor_id, 0)
        self._held[tensor_id] = held
        if self.stored_bytes > self.trail.most_bytes:
            self.trail.most_bytes = self.stored_bytes

    @contextmanager
    def staged(self, size: int) -> Generator[None]:
        """Count `size` bytes of a transfer until it ends, however it ends."""
        with self.lock:
            self.reserve(size)
            self.staged_bytes += size
        try:
            yield
        finally:
            self.unstage(size)

    def unstage(self, size: int) -> None:
        """Stop counting `size` bytes of a transfer."""
        with self.lock:
            self.staged_bytes -= size

    @contextmanager
    def running(self, timeout: float | None) -> Generator[None]:
        """Hold the session's lock for one call; raise CallRefused if the session was deleted.

        Raise `CallCancelled` if the lock is not free within `timeout` seconds; None waits forever.
        """
        has_waited = not self.lock.acquire(blocking=False)
        if has_waited:
            wait = threading.TIMEOUT_MAX if timeout is None else timeout
            if not self.lock.acquire(timeout=max(0.0, min(wait, threading.TIMEOUT_MAX))):
                raise CallCancelled(grpc.StatusCode.DEADLINE_EXCEEDED)
        self.has_waited = has_waited
        try:
            if self.closed:
                self.require_open()
            yield
        finally:
            self.pending_bytes = 0
            self.lock.release()
            if self.closed:
                self.clear()

    @property
    def has_place(self) -> bool:
        """Whether it counts in max_sessions: a session with a broken lease does not."""
        return self.lease is None or not self.lease.is_broken

    def require_open(self) -> None:
        """Raise CallRefused if the session was deleted or has expired."""
        if self.closed:
            raise _not_found(self.name)

    def clear(self) -> None:
        """Close the session, and free everything now or when the running call ends."""
        self.closed = True
        if self.lock.acquire(blocking=False):
            try:
                self.tensors.clear()
                self._held.clear()
                for holding in list(self.holdings.values()):
                    holding.close()
                self.holdings.clear()
                self.contents.clear()
                self.stored_bytes = 0
                self.guest.allocate = page_memory  # the guest keeps no session that has ended
            finally:
                self.lock.release()


@dataclass(frozen=True, slots=True)
class Counts:
    """The contents of a store in numbers; all are 0 without sessions and transfers."""

    sessions: int = 0
    tensors: int = 0
    stored_bytes: int = 0
    staged_bytes: int = 0
    cached_bytes: int = 0

    def __str__(self) -> str:
        """Return the counts in words."""
        stored = f"{self.stored_bytes} bytes stored, {self.staged_bytes} staged"
        held = f"{self.sessions} sessions, {self.tensors} tensors"
        return f"{held}, {stored}, {self.cached_bytes} cached"


class Store:
    """The sessions of a server, by name; a thread ends sessions that were idle for a while.

    `give_back` is called after sessions ended or freed much memory, to return it to the system.
    `quota` is the socket of a `QuotaCounter` that counts for several processes. `tidy` is called
    every few seconds.
    """

    def __init__(
        self,
        limits: Limits,
        max_session_calls: int = 16,
        give_back: Callable[[], object] = int,
        metrics: Metrics | None = None,
        quota: str = "",
        tidy: Callable[[], object] = int,
    ) -> None:
        self.limits = limits
        self._places = Places(limits.max_sessions, quota)
        self._metrics = metrics
        self._ended_hits = 0
        self._give_back = give_back
        self._tidy = tidy
        self._freed = False
        self._max_session_calls = max_session_calls
        self._sessions: dict[str, Session] = {}
        self._broken = BrokenLeases()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        period = min(5.0, limits.idle_timeout / 4, limits.lease_grace / 4)
        threading.Thread(target=self._reap, args=(period,), name="reaper", daemon=True).start()

    def create(
        self, guest: Guest, options: accelerator_pb2.Session, trail: Trail | None = None
    ) -> Session:
        """Add a session of the caller under a name that cannot be guessed."""
        name, token = _PREFIX + secrets.token_urlsafe(_NAME_BYTES), caller()
        limits = token.limits(self.limits)
        trail = trail or Trail(token.name)
        session = Session(name, guest, options, limits, trail, self._metrics)
        with self._lock:
            mine = token.name, limits.max_sessions
            self._places.take(*mine)
            given_up = self._places.too_many(*mine, self._sessions.values())
            if given_up is not None:
                self._forget(given_up)
            self._sessions[name] = session
        if given_up is not None:
            self._end(given_up, "lease")
            self.return_memory()
        audit.created(session_tag(name), session.trail)
        return session

    def _forget(self, session: Session) -> None:
        del self._sessions[session.name]
        if session.lease is not None and not session.lease.holds:
            self._broken.add(session.name, session.trail.token)

    def _find(self, name: str) -> Session:
        session = self._sessions.get(name)
        token = caller().name
        if session is None or session.trail.token != token:
            raise self._broken.refusal(name, token) or _not_found(name)
        return session

    def hold(self, name: str, end: End) -> Callable[[], None]:
        """Hold the lease of a session, whose end calls `end`; return the function to release it."""
        with self._lock:
            session = self._find(name)
            if session.lease is None:
                raise invalid("lease", "not set", "set when the session is created")
            if len(session.lease.holds) >= self._max_session_calls:
                raise too_many_calls("max_session_calls", self._max_session_calls)
            if not session.has_place:
                self._places.take(session.trail.token, session.limits.max_sessions)
            return partial(self._release, session, session.lease, session.lease.hold(end))

    def _release(self, session: Session, lease: Lease, key: object) -> None:
        """Release a call's hold of a lease; if that breaks the lease, give up the place."""
        with self._lock:
            if session.name not in self._sessions:
                return
            lease.release(key)
            if lease.is_broken:
                self._places.give(session.trail.token)

    def end_holds(self, refusal: CallRefused) -> None:
        """End the calls that hold leases; the sessions stay."""
        for session in self.sessions():
            if session.lease is not None:
                session.lease.end(refusal)

    @contextmanager
    def using(self, name: str, bounded: bool = True) -> Generator[Session]:
        """Find a session for one call, during which it does not expire.

        `bounded` refuses more calls of a session at a time than it may have; calls with a thread of
        their own need no such bound.
        """
        with self._lock:
            session = self._find(name)
            if bounded and session.calls >= self._max_session_calls:
                raise too_many_calls("max_session_calls", self._max_session_calls)
            session.calls += 1
            session.trail.calls += 1
        try:
            yield session
        finally:
            with self._lock:
                session.calls -= 1
                session.last_used = time.monotonic()

    def delete(self, name: str) -> None:
        """Remove a session and free its tensors, after its running call has ended."""
        with self._lock:
            session = self._find(name)
            del self._sessions[name]
        self._end(session, "deleted")
        self.return_memory()

    def return_memory(self) -> None:
        """Have free memory returned to the system soon, after much was freed."""
        self._freed = True

    def _end(self, session: Session, why: str) -> None:
        with self._lock:
            self._ended_hits += session.contents.hits
        try:
            session.clear()
            if session.lease is not None:
                session.lease.end(None if why == "deleted" else _not_found(session.name))
        finally:
            if session.has_place:
                self._places.give(session.trail.token)
        audit.ended(session_tag(session.name), session.trail, why)

    def sessions(self) -> tuple[Session, ...]:
        """Return all sessions, the oldest first."""
        with self._lock:
            return tuple(self._sessions.values())

    def counts(self) -> Counts:
        """Return the contents of the store in numbers."""
        sessions = self.sessions()
        return Counts(
            len(sessions),
            sum(len(session.tensors) for session in sessions),
            sum(session.stored_bytes for session in sessions),
            sum(session.staged_bytes for session in sessions),
            sum(session.contents.held for session in sessions),
        )

    def cache_hits(self) -> int:
        """Return the number of hits of all content caches, including ended sessions."""
        with self._lock:
            return self._ended_hits + sum(
                session.contents.hits for session in self._sessions.values()
            )

    def close(self) -> None:
        """Stop the reaper and free every session."""
        self._stopped.set()
        with self._lock:
            sessions = tuple(self._sessions.values())
            self._sessions.clear()
        for session in sessions:
            self._end(session, "shutdown")
        self._places.close()

    def expire(self) -> int:
        """End sessions that are idle or whose lease is broken; return their number."""
        with self._lock:
            expired = [
                (session, why)
                for session in self._sessions.values()
                if not session.calls and (why := self._expiry(session))
            ]
            for session, _why in expired:
                self._forget(session)
        for session, why in expired:
            self._end(session, why)
        self._freed = self._freed or bool(expired)
        return len(expired)

    def _expiry(self, session: Session) -> str:
        """Return the reason to end a session without calls: "idle", "lease", or "" for none."""
        if session.last_used < time.monotonic() - self.limits.idle_timeout:
            return "idle"
        lease, grace = session.lease, self.limits.lease_grace
        is_over = lease is not None and lease.is_over(session.last_used, grace)
        return "lease" if is_over else ""

    def _reap(self, period: float) -> None:
        most = 0
        while not self._stopped.wait(period):
            self.expire()
            self._tidy()
            counts = self.counts()
            held = counts.stored_bytes + counts.staged_bytes + counts.cached_bytes
            most = max(most, held)
            if self._freed or held < most - _MIN_RETURNED:
                self._freed, most = False, held
                self._give_back()
