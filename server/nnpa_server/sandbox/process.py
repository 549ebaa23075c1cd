# SPDX-License-Identifier: Apache-2.0
"""The server's side of a worker process: fork it, limit it, send it jobs, kill it."""

import math
import mmap
import os
import resource
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from fcntl import F_ADD_SEALS, F_SEAL_SEAL, F_SEAL_SHRINK, fcntl

import numpy as np

from nnpa_server.sandbox import frames
from nnpa_server.sandbox.accounting import cpu_seconds, limited_bytes, private_bytes
from nnpa_server.sandbox.failures import Why, WorkerFailed
from nnpa_server.sandbox.fork_server import ForkServer
from nnpa_server.sandbox.frames import Array, Message

_PAGE = os.sysconf("SC_PAGE_SIZE")
_LOOK_SECONDS = 0.02  # between looks at deadline, caller and memory while a job runs
_LOOK_TIMEVAL = struct.pack("ll", 0, int(_LOOK_SECONDS * 1e6))  # source: socket(7), SO_RCVTIMEO
_UNCOUNTED_BYTES = 64 << 10  # of a text that comes back
_SLACK_BYTES = 64 << 20  # of the worker's own, such as its stack
_HIGHEST = 1 << 62
_KEPT_BYTES = 2 << 20  # of the arena, for the next job
_ARENA_VIEWS = 2  # of the worker, while its arena grows
_RESTLESS_SECONDS = 0.5  # of processor time between jobs, to free memory of the last one


def allow(_size: int) -> None:
    """Accept any growth of the arena: only the job's limit bounds it."""


def go_on() -> None:
    """Let the job run: nothing cancels it."""


@dataclass(frozen=True, slots=True)
class JobLimits:
    """The limits of a job. An exception of `reserve` or `check` ends the job and the worker."""

    memory: int = 1 << 30  # bytes, beyond the idle worker's
    seconds: float = 60.0
    cpu_seconds: int = 60
    reserve: Callable[[int], None] = allow  # called before the server takes bytes for the job
    check: Callable[[], None] = go_on  # called every few milliseconds


class WorkerProcess:
    """A newly forked process for one owner; jobs take turns.

    The kernel ends it with its fork server. Methods may be called from any thread.
    """

    def __init__(self, fork_server: ForkServer) -> None:
        self._lock = threading.RLock()
        self._arena_bytes = self._used = 0  # of the arena, and by the last job
        self._arena = os.memfd_create("nnpa-worker", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        fcntl(self._arena, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL)
        self._socket, theirs = socket.socketpair()
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._socket.setsockopt(socket.SOL_SOCKET, option, _LOOK_TIMEVAL)
        try:
            self._process = fork_server.fork(theirs.fileno(), self._arena)
        except BaseException:
            os.close(self._arena)
            self._socket.close()
            raise
        finally:
            theirs.close()
        self._limits = JobLimits()
        self._deadline = self._cpu_deadline = self._next_look = math.inf
        self._idle = 0, 0, 0  # before any job: bytes of data, of address space, in memory
        self._rest: tuple[float, int] | None = None  # at the first look after a job
        self.pid = self._process.pid

    def wait_ready(self, seconds: float) -> tuple[str, ...]:
        """Wait until the worker is confined; return the confinements that it lacks."""
        with self._lock:
            self._deadline, self._next_look = time.monotonic() + seconds, 0.0
            try:
                frame = self._receive(frames.Kind.READY)
            except BaseException:
                self.close()
                raise
            self._idle = *limited_bytes(self.pid), private_bytes(self.pid)
            return tuple(filter(None, frame.body.decode("ascii", "replace").split("\n")))

    def run(self, job: Message, limits: JobLimits) -> Message:
        """Return the answer to a job, with copies of its arrays; raise `WorkerFailed`.

        If `reserve` or `check` of the limits raises, kill the worker and pass the exception.
        """
        with self._lock:
            self._limits = limits
            self._rest = None
            try:
                self._restrict(limits)
                self._send_job(job)
                return self._await_answer()
            except WorkerFailed as failed:
                if failed.why != Why.RAISED:
                    self.close()
                raise
            except BaseException:
                self.close()
                raise
            finally:
                self._empty()

    @property
    def is_alive(self) -> bool:
        """Whether the process lives."""
        return self._process.poll() is None

    def end_restless(self) -> str:
        """End a process that takes time or memory between jobs; return which, or ""."""
        if not self._lock.acquire(blocking=False):  # a job runs
            return ""
        try:
            excess = self._excess() if self._arena >= 0 and self.is_alive else ""
            if excess:
                self.close()
            return excess
        except OSError:  # it has just ended
            return ""
        finally:
            self._lock.release()

    def _excess(self) -> str:
        """Return the resource that an idle process takes beyond the rest of its last job, or ""."""
        seconds, private = cpu_seconds(self.pid), private_bytes(self.pid)
        if self._rest is None:
            self._rest = seconds, private
        first_seconds, first_private = self._rest
        if seconds - first_seconds > _RESTLESS_SECONDS:
            return "processor time"
        most = min(self._most_private, first_private + _SLACK_BYTES)
        arena = os.fstat(self._arena).st_blocks * 512
        return "memory" if private > most or arena > 2 * _KEPT_BYTES else ""

    @property
    def _most_private(self) -> int:
        """The most bytes that the process may have in memory, beside files and the arena."""
        *_, private = self._idle
        return private + self._limits.memory + _SLACK_BYTES

    def close(self) -> None:
        """Kill and reap the process; a job that runs in it fails."""
        self._process.kill()
        with self._lock:  # a thread that waits for an answer releases descriptors first
            self._process.wait()
            if self._arena >= 0:
                self._socket.close()
                os.close(self._arena)
                self._arena = -1

    def _restrict(self, limits: JobLimits) -> None:
        """Set the limits of a job, here and in the kernel."""
        if not self.is_alive:  # its number may be another process's by now
            raise self._ended()
        data, *_ = self._idle
        now = time.monotonic()
        self._deadline, self._next_look = now + limits.seconds, now + _LOOK_SECONDS
        self._limits.check()
        try:
            self._cpu_deadline = cpu_seconds(self.pid) + limits.cpu_seconds
            seconds = math.ceil(self._cpu_deadline) + 1
            resource.prlimit(self.pid, resource.RLIMIT_DATA, _soft(data + limits.memory))
            resource.prlimit(self.pid, resource.RLIMIT_CPU, _soft(seconds))
            self._restrict_address_space()
        except OSError as error:
            raise self._ended() from error

    def _restrict_address_space(self) -> None:
        """Bound memory that RLIMIT_DATA does not count: stacks, read-only pages, page tables."""
        _, size, _ = self._idle
        if not size:
            return
        views = _ARENA_VIEWS * self._arena_bytes
        most = size + self._limits.memory + views + _SLACK_BYTES
        resource.prlimit(self.pid, resource.RLIMIT_AS, _soft(most))

    def _send_job(self, job: Message) -> None:
        arrays = list(map(frames.dense, job.arrays))
        slots, self._used = frames.plan_slots(arrays, 0)
        body = frames.encode_body(slots, job.text)
        self._grow(self._used)
        for slot, array in zip(slots, arrays, strict=True):
            _move(os.pwritev, self._arena, array.reshape(-1).view(np.uint8).data, slot.offset)
        self._send(frames.Frame(frames.Kind.JOB, body, self._arena_bytes))

    def _await_answer(self) -> Message:
        while True:
            frame = self._receive(frames.Kind.ANSWER, frames.Kind.ROOM)
            if frame.kind == frames.Kind.ANSWER:
                return self._decode(frame.body)
            if not self._arena_bytes < frame.size <= _HIGHEST or frame.body:
                raise WorkerFailed(Why.PROTOCOL, f"asked for an arena of {frame.size} bytes")
            self._grow(frame.size)
            self._send(frames.Frame(frames.Kind.GROWN, size=self._arena_bytes))

    def _grow(self, size: int) -> None:
        """Enlarge the arena to at least `size` bytes; raise `WorkerFailed` beyond the limit."""
        if size <= self._arena_bytes:
            return
        size = -(-size // _PAGE) * _PAGE
        if size > self._limits.memory:
            limit = f"at most {self._limits.memory}"
            raise WorkerFailed(Why.MEMORY, f"arrays take {size} bytes, {limit}")
        self._limits.reserve(size)
        try:
            os.ftruncate(self._arena, size)
        except OSError as error:
            raise WorkerFailed(Why.MEMORY, f"no storage for {size} bytes") from error
        self._arena_bytes = size
        try:
            self._restrict_address_space()
        except OSError as error:
            raise self._ended() from error

    def _empty(self) -> None:
        """Return the pages that a job used beyond the kept ones to the system."""
        if self._arena >= 0 and self._used > _KEPT_BYTES:
            with mmap.mmap(self._arena, self._arena_bytes) as view:
                view.madvise(mmap.MADV_REMOVE, _KEPT_BYTES)

    def _decode(self, body: bytes) -> Message:
        """Return an answer with copies of its arrays, which the worker cannot change any more."""
        try:
            slots, text = frames.decode_body(body, self._arena_bytes)
        except frames.Malformed as error:
            raise WorkerFailed(Why.PROTOCOL, str(error)) from error
        self._limits.reserve(sum(slot.nbytes for slot in slots))
        self._used = max(self._used, *(slot.offset + slot.nbytes for slot in slots), 0)
        return Message(text, tuple(_read(self._arena, slot) for slot in slots))

    def _send(self, frame: frames.Frame) -> None:
        rest = memoryview(frames.encode_header(frame) + frame.body)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:  # nothing was taken in time
                self._look()
            except OSError as error:
                raise self._ended() from error

    def _receive(self, *kinds: frames.Kind) -> frames.Frame:
        """Return the next frame, which must be of one of these kinds; raise `WorkerFailed`."""
        try:
            kind, length, size = frames.decode_header(self._receive_bytes(frames.HEADER.size))
        except frames.Malformed as error:
            raise WorkerFailed(Why.PROTOCOL, str(error)) from error
        if kind not in kinds and kind != frames.Kind.FAILED:
            raise WorkerFailed(Why.PROTOCOL, f"{kind.name} at the wrong time")
        if length > _UNCOUNTED_BYTES:
            self._limits.reserve(length)
        body = self._receive_bytes(length)
        if kind == frames.Kind.FAILED:
            why = Why.MEMORY if size == frames.OUT_OF_MEMORY else Why.RAISED
            raise WorkerFailed(why, body[:1000].decode("utf-8", "replace"))
        return frames.Frame(kind, body, size)

    def _receive_bytes(self, count: int) -> bytes:
        """Return `count` bytes; take memory for them only as they come."""
        parts: list[bytes] = []
        while count:
            self._look()
            try:
                part = self._socket.recv(min(count, 1 << 20))
            except BlockingIOError:  # nothing came in time
                continue
            except OSError as error:
                raise self._ended() from error
            if not part:
                raise self._ended()
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _look(self) -> None:
        """Check deadline, memory and caller every few milliseconds; raise if one has ended."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        self._limits.check()
        if now >= self._deadline:
            raise WorkerFailed(Why.TIME, "no answer in time")
        if not any(self._idle):
            return
        if private_bytes(self.pid) > self._most_private:
            raise WorkerFailed(Why.MEMORY, f"in memory beyond {self._most_private} bytes")
        try:
            if cpu_seconds(self.pid) >= self._cpu_deadline:
                raise WorkerFailed(Why.TIME, "no CPU time is left")
        except OSError as error:
            raise self._ended() from error

    def _ended(self) -> WorkerFailed:
        """Return the failure of a job whose process has ended, by its signal or exit code."""
        try:
            code = self._process.wait(1.0)
        except TimeoutError:
            return WorkerFailed(Why.PROTOCOL, "the connection ended, and not the process")
        if -code == signal.SIGXCPU:
            return WorkerFailed(Why.TIME, "no CPU time is left")
        return WorkerFailed(Why.ENDED, ending(code))


def ending(code: int) -> str:
    """Describe the end of a process by its exit code, which is negative for a signal."""
    if code >= 0:
        return f"ended with exit code {code}"
    names = {number.value: number.name for number in signal.Signals}
    return f"was ended by {names.get(-code, f'signal {-code}')}"


def _soft(limit: int) -> tuple[int, int]:
    return limit, resource.RLIM_INFINITY


def _move(
    move: Callable[[int, list[memoryview], int], int], arena: int, data: memoryview, place: int
) -> None:
    """Write or read all data at a place in the arena, by repeated calls of `move`."""
    while data:
        count = move(arena, [data], place)
        if not count:
            raise WorkerFailed(Why.PROTOCOL, "the arena ends within an array")
        data, place = data[count:], place + count


def _read(arena: int, slot: frames.Slot) -> Array:
    """Return a copy of an array in the arena."""
    contents = np.empty(slot.nbytes, np.uint8)
    _move(os.preadv, arena, contents.data, slot.offset)
    if slot.dtype == bool and np.any(contents > 1):
        raise WorkerFailed(Why.PROTOCOL, "truths that are neither 0 nor 1")
    return contents.view(slot.dtype).reshape(slot.shape)
