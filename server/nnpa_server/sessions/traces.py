# SPDX-License-Identifier: Apache-2.0
"""Open traces: queues of records from the sessions that they record to the client that reads them.

A slow reader does not stop a session: its trace is cut.
"""

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Generator

from nnpa.zdnn.v1 import trace_pb2 as pb
from nnpa_wire.fields import varint

from nnpa_server.config import GIB, MIB
from nnpa_server.sessions.tokens import caller

MAX_TRACE_BYTES = 4 * GIB
_MAX_WAITING = 16 * MIB  # bytes of records that a reader has not taken
_ROOM_FOR_END = 64  # bytes, more than the last record has
_READER_TIMEOUT = 5.0  # seconds that a session, or the server's end, waits for a reader
_PERIOD, _HEARTBEAT = 0.05, 1.0  # seconds between looks for records, and between signs of life
_MAX_PIECE = MIB  # bytes of records that are sent at once, and in one message at most
_MAX_DIGESTS = 1 << 17  # of contents that a trace has; beyond, some come twice
_PREFIX, _NAME_BYTES = "traces/", 24  # 192 random bits, as of a session's name


class Trace:
    """An open trace, whose first record is `start`: sessions put records, its stream reads them.

    `started` is its beginning in nanoseconds of time.monotonic_ns.
    """

    def __init__(self, name: str, owner: str, start: pb.TraceStart, max_bytes: int) -> None:
        self.name, self.owner, self.contents = name, owner, start.contents
        self.started = time.monotonic_ns()
        self.is_open = True
        self._max_bytes = max_bytes - _ROOM_FOR_END
        self._total = self._waiting = self._calls = self._sessions = 0
        self._records: deque[bytes] = deque()
        self._held: set[bytes] = set()
        self._lock = threading.Condition()
        self._wake = threading.Event()
        start.start_time.GetCurrentTime()
        self.put(pb.TraceRecord(start=start).SerializeToString())

    def new_session(self) -> int:
        """Return the number for a new session of the trace."""
        with self._lock:
            self._sessions += 1
            return self._sessions

    def lacks(self, digest: bytes) -> bool:
        """Return True if the trace lacks contents; the caller must put them then."""
        with self._lock:
            if digest in self._held:
                return False
            if len(self._held) >= _MAX_DIGESTS:
                self._held.clear()
            self._held.add(digest)
            return True

    def put(self, *records: bytes, call: bool = False) -> None:
        """Queue all records or none; cut the trace if they find no room within a time."""
        framed = b"".join(part for record in records for part in (varint(len(record)), record))
        with self._lock:
            if not self.is_open:
                return
            if not self._has_room(len(framed)):
                self._close(pb.TRACE_END_REASON_TOO_SLOW)
            elif self._total + len(framed) > self._max_bytes:  # others may have put meanwhile
                self._close(pb.TRACE_END_REASON_TOO_LARGE)
            elif self.is_open:
                self._calls += call
                self._append(framed)

    def _has_room(self, size: int) -> bool:
        def fits() -> bool:
            return not (self.is_open and self._waiting) or self._waiting + size <= _MAX_WAITING

        return fits() or self._lock.wait_for(fits, _READER_TIMEOUT)

    def _append(self, framed: bytes) -> None:
        self._total += len(framed)
        self._waiting += len(framed)
        self._records.append(framed)
        if self._waiting >= _MAX_PIECE:
            self._wake.set()

    def _close(self, reason: pb.TraceEndReason.ValueType) -> None:
        if not self.is_open:
            return
        self.is_open = False
        record = pb.TraceRecord(end=pb.TraceEnd(reason=reason, calls=self._calls))
        self._append(varint(record.ByteSize()) + record.SerializeToString())
        self._wake.set()

    def end(self, reason: pb.TraceEndReason.ValueType = pb.TRACE_END_REASON_ENDED) -> None:
        """End the trace; records in the queue can still be read."""
        with self._lock:
            self._close(reason)
            self._lock.notify_all()

    def read(self, is_wanted: Callable[[], bool]) -> Generator[bytes]:
        """Yield bytes of records as they come, and b"" as a sign of life, until the end record."""
        sent = time.monotonic()
        while is_wanted():
            self._wake.wait(_PERIOD)
            with self._lock:
                records = b"".join(self._records)
                self._records.clear()
                self._waiting, ended = 0, not self.is_open
                self._wake.clear()
                self._lock.notify_all()
            for start in range(0, len(records), _MAX_PIECE):
                yield records[start : start + _MAX_PIECE]
            if ended:
                return
            now = time.monotonic()
            if not records and now - sent > _HEARTBEAT:
                yield b""
            if records or now - sent > _HEARTBEAT:
                sent = now


class Traces:
    """The open traces of a server, by names that cannot be guessed."""

    def __init__(self) -> None:
        self._traces: dict[str, Trace] = {}
        self._changed = threading.Condition()

    def open(self, start: pb.TraceStart, max_bytes: int) -> Trace:
        """Open a trace of the caller with at most `max_bytes`; 0 means the server's limit."""
        limit = min(max_bytes or MAX_TRACE_BYTES, MAX_TRACE_BYTES)
        name = _PREFIX + secrets.token_urlsafe(_NAME_BYTES)
        trace = self._traces[name] = Trace(name, caller().name, start, limit)
        return trace

    def find(self, name: str) -> Trace | None:
        """Return an open trace of the caller, or None."""
        trace = self._traces.get(name)
        is_own = trace is not None and trace.is_open and trace.owner == caller().name
        return trace if is_own else None

    def close(self) -> None:
        """End all traces at the server's end; wait a while for readers to take the rest."""
        for trace in tuple(self._traces.values()):
            trace.end(pb.TRACE_END_REASON_SHUTDOWN)
        with self._changed:
            self._changed.wait_for(lambda: not self._traces, _READER_TIMEOUT)

    def forget(self, trace: Trace) -> None:
        """End a trace without a reader, and remove it."""
        trace.end()
        with self._changed:
            self._traces.pop(trace.name, None)
            self._changed.notify_all()
