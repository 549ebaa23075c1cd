# SPDX-License-Identifier: Apache-2.0
"""Sessions and their tensors: what strangers share a server through.

    Store     every session of the server; a thread ends those that nobody used for a while
    Session   a guest with its tensors by id, its quota, and the lock that orders its operations
    Contents  sticks that a session keeps by name, so that they travel once

Memory is counted before it is allocated. A session's bytes are those of its tensors' buffers
(`stored_bytes`), of transfers under way (`staged_bytes`), of what the running operation has
allocated so far (`pending_bytes`), and of its cache, which gives way to all of these.
"""

import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import grpc
import numpy as np
from nnpa.zdnn.v1 import accelerator_pb2, operation_pb2
from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator.machine import Guest, Memory, page_memory
from nnpa_emulator.ztensor import Ztensor

from nnpa_server.config import Limits
from nnpa_server.errors import CallCancelled, CallRefused, too_many_calls
from nnpa_server.shared import SharedMemory

_NAME_BYTES = 24  # 192 random bits: who knows a name has the session
_PREFIX = "sessions/"


def session_tag(name: str) -> str:
    """Return what logs call a session: a hash, since the name itself is its key."""
    return hashlib.sha256(name.encode()).hexdigest()[:8]


def _not_found(name: str) -> CallRefused:
    return CallRefused(
        wire.ERROR_REASON_SESSION_NOT_FOUND,
        "the session does not exist, was deleted, or expired: create one and start over",
        session=name[:64],
    )


class Contents:
    """A session's content cache: sticks by name; what was used longest ago goes first.

    A key is a name, and 0 or the type by which the bytes were swapped on arrival. Nothing writes to
    what is held here, so that operations read it where it is. `held` is bytes.
    """

    def __init__(self, limit: int) -> None:
        self.held = 0
        self._limit = limit
        self._by_key: OrderedDict[tuple[bytes, int], Memory] = OrderedDict()

    def put(self, key: tuple[bytes, int], memory: Memory) -> None:
        """Hold `memory`, which nobody writes to from here on, unless it is too large."""
        self._drop(key)
        if memory.nbytes <= self._limit:
            self._by_key[key] = memory
            self.held += memory.nbytes
            self.shrink(self._limit)

    def get(self, key: tuple[bytes, int]) -> Memory | None:
        """Return what is held under a key, for reading only."""
        memory = self._by_key.get(key)
        if memory is not None:
            self._by_key.move_to_end(key)
        return memory

    def shrink(self, most: int) -> None:
        """Forget until at most `most` bytes are held."""
        while self._by_key and self.held > most:
            self._drop(next(iter(self._by_key)))

    def clear(self) -> None:
        """Forget everything."""
        self._by_key.clear()
        self.held = 0

    def _drop(self, key: tuple[bytes, int]) -> None:
        memory = self._by_key.pop(key, None)
        if memory is not None:
            self.held -= memory.nbytes


class Holding(Protocol):
    """What a session may hold beside tensors; `close` is called when the session ends."""

    def close(self) -> None:
        """Let go of everything."""
        ...


class Session:
    """A guest and its tensors. All but `name` and `options` is touched under `lock` only.

    `told` are results without news, by arm and output id, with the tensor's state that they tell.
    """

    def __init__(
        self, name: str, guest: Guest, options: accelerator_pb2.Session, limits: Limits
    ) -> None:
        self.name = name
        self.guest = guest
        self.options = options
        self.limits = limits
        self.tensors: dict[int, Ztensor] = {}
        self.lock = threading.Lock()
        self.created = time.time()
        self.last_used = time.monotonic()
        self.calls = 0
        self.closed = False
        self.stored_bytes = 0
        self.staged_bytes = 0
        self.pending_bytes = 0
        self.contents = Contents(limits.max_session_cache)
        self.shared: SharedMemory | None = None
        self.told: dict[
            tuple[str, int], tuple[tuple[object, ...], operation_pb2.OperationResult]
        ] = {}
        self.holdings: dict[str, Holding] = {}
        self._held: dict[int, int] = {}
        guest.allocate = self.allocate

    def reserve(self, size: int) -> None:
        """Refuse `size` more bytes if the session may not have them; allocates nothing.

        The cache makes room first.
        """
        used = self.stored_bytes + self.staged_bytes + self.pending_bytes
        limit = self.limits.max_session_bytes
        if used + size + self.contents.held > limit:
            self.contents.shrink(max(0, limit - used - size))
        if used + size > limit:
            raise CallRefused(
                wire.ERROR_REASON_TENSOR_QUOTA_EXCEEDED,
                f"the session holds {used} bytes, {size} more exceed max_bytes, {limit}",
                field="max_bytes",
                value=used + size,
                limit=limit,
            )

    def allocate(self, size: int) -> Memory | None:
        """Return zero bytes for the running operation, or None when the host has none left."""
        self.reserve(size)
        memory = page_memory(size)
        if memory is not None:
            self.pending_bytes += size
        return memory

    def require_room(self) -> None:
        """Refuse one more tensor if the session has as many as it may."""
        limit = self.limits.max_session_tensors
        if len(self.tensors) >= limit:
            raise CallRefused(
                wire.ERROR_REASON_TENSOR_QUOTA_EXCEEDED,
                f"the session has {len(self.tensors)} tensors, max_tensors is {limit}",
                field="max_tensors",
                value=len(self.tensors) + 1,
                limit=limit,
            )

    def settle(self, tensor_id: int) -> None:
        """Count what a tensor holds now, after it was created, refilled or forgotten."""
        tensor = self.tensors.get(tensor_id)
        if tensor is None or tensor.buffer is None:
            self.stored_bytes -= self._held.pop(tensor_id, 0)
            return
        held = tensor.buffer.nbytes
        self.stored_bytes += held - self._held.get(tensor_id, 0)
        self._held[tensor_id] = held

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
        """Count `size` bytes of a transfer no more."""
        with self.lock:
            self.staged_bytes -= size

    @contextmanager
    def running(self, timeout: float | None) -> Generator[None]:
        """Hold the session for one call's operations; a deleted one is not found.

        `timeout` is how many seconds the caller still waits, None for ever; past it
        `CallCancelled`.
        """
        if not self.lock.acquire(blocking=False):
            wait = threading.TIMEOUT_MAX if timeout is None else timeout
            if not self.lock.acquire(timeout=max(0.0, min(wait, threading.TIMEOUT_MAX))):
                raise CallCancelled(grpc.StatusCode.DEADLINE_EXCEEDED)
        try:
            self.require_open()
            yield
        finally:
            self.pending_bytes = 0
            self.lock.release()
            if self.closed:
                self.clear()

    def require_open(self) -> None:
        """Refuse to go on in a session that was deleted or has expired."""
        if self.closed:
            raise _not_found(self.name)

    def clear(self) -> None:
        """Free everything, now or when the running operation ends."""
        self.closed = True
        if self.lock.acquire(blocking=False):
            try:
                self.tensors.clear()
                self.told.clear()
                self._held.clear()
                for one in list(self.holdings.values()):
                    one.close()
                self.holdings.clear()
                self.contents.clear()
                self.stored_bytes = 0
                if self.shared is not None:
                    self.shared.close()
            finally:
                self.lock.release()


@dataclass(frozen=True, slots=True)
class Counts:
    """What a store holds; all zero when every session is gone and no transfer is under way."""

    sessions: int = 0
    tensors: int = 0
    stored_bytes: int = 0
    staged_bytes: int = 0
    cached_bytes: int = 0


class Store:
    """The sessions of a server, by name.

    `give_back` returns free memory to the system; it is called now and then after sessions ended.
    """

    def __init__(
        self,
        limits: Limits,
        max_session_calls: int = 16,
        give_back: Callable[[], object] = int,
    ) -> None:
        self.limits = limits
        self._give_back = give_back
        self._freed = False
        self._max_session_calls = max_session_calls
        self._sessions: dict[str, Session] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        period = min(5.0, limits.idle_timeout / 4)
        self._reaper = threading.Thread(
            target=self._reap, args=(period,), name="reaper", daemon=True
        )
        self._reaper.start()

    def create(self, guest: Guest, options: accelerator_pb2.Session) -> Session:
        """Add a session under a name that cannot be guessed."""
        name = _PREFIX + secrets.token_urlsafe(_NAME_BYTES)
        session = Session(name, guest, options, self.limits)
        with self._lock:
            if len(self._sessions) >= self.limits.max_sessions:
                raise CallRefused(
                    wire.ERROR_REASON_SESSION_QUOTA_EXCEEDED,
                    f"the server holds max_sessions, {self.limits.max_sessions}: retry later",
                    field="max_sessions",
                    limit=self.limits.max_sessions,
                )
            self._sessions[name] = session
        return session

    @contextmanager
    def using(self, name: str) -> Generator[Session]:
        """Find a session for one call; while the call lasts the session does not expire."""
        with self._lock:
            session = self._sessions.get(name)
            if session is None:
                raise _not_found(name)
            if session.calls >= self._max_session_calls:
                raise too_many_calls("max_session_calls", self._max_session_calls)
            session.calls += 1
        try:
            yield session
        finally:
            with self._lock:
                session.calls -= 1
                session.last_used = time.monotonic()

    def delete(self, name: str) -> None:
        """Forget a session and free its tensors; a running operation ends first."""
        with self._lock:
            session = self._sessions.pop(name, None)
        if session is None:
            raise _not_found(name)
        session.clear()
        self._freed = True

    def names(self) -> tuple[str, ...]:
        """Return the names of all sessions."""
        with self._lock:
            return tuple(self._sessions)

    def counts(self) -> Counts:
        """Count what the store holds at this moment."""
        with self._lock:
            sessions = tuple(self._sessions.values())
        return Counts(
            len(sessions),
            sum(len(one.tensors) for one in sessions),
            sum(one.stored_bytes for one in sessions),
            sum(one.staged_bytes for one in sessions),
            sum(one.contents.held for one in sessions),
        )

    def close(self) -> None:
        """Stop the reaper and free every session."""
        self._stopped.set()
        with self._lock:
            sessions = tuple(self._sessions.values())
            self._sessions.clear()
        for session in sessions:
            session.clear()

    def expire(self) -> int:
        """End the sessions that nobody used for the idle timeout; return how many."""
        oldest = time.monotonic() - self.limits.idle_timeout
        with self._lock:
            idle = [
                one for one in self._sessions.values() if not one.calls and one.last_used < oldest
            ]
            for session in idle:
                del self._sessions[session.name]
        for session in idle:
            session.clear()
        self._freed = self._freed or bool(idle)
        return len(idle)

    def _reap(self, period: float) -> None:
        while not self._stopped.wait(period):
            self.expire()
            if self._freed:
                self._freed = False
                self._give_back()


def staging(size: int) -> Memory:
    """Return memory for a transfer, on a page boundary so that it can become a tensor's buffer."""
    memory = page_memory(size)
    if memory is None:
        raise CallRefused(
            wire.ERROR_REASON_TENSOR_QUOTA_EXCEEDED,
            f"the server has no {size} bytes left",
            field="max_bytes",
            value=size,
            limit="what the host has",
        )
    return np.asarray(memory, np.uint8)
