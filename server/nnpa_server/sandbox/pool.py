# SPDX-License-Identifier: Apache-2.0
"""Pools of worker processes: each worker serves one owner and ends with it.

An owner leases a worker for a job, ends it when it is idle, and replaces it when it has ended.
"""

import logging
import math
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial

from nnpa_server.sandbox import confinement
from nnpa_server.sandbox.failures import WorkerFailed
from nnpa_server.sandbox.fork_server import ForkServer
from nnpa_server.sandbox.frames import Message
from nnpa_server.sandbox.jobs import taking_turn
from nnpa_server.sandbox.process import JobLimits, WorkerProcess, go_on

_log = logging.getLogger("nnpa.sandbox")
_START_SECONDS = 60.0
_IDLE_PERIOD = 0.25  # seconds between looks for idle workers
IDLE_SECONDS = 5.0
_LOOK_SECONDS = 0.02  # between looks whether somebody waits for a worker


class PoolClosed(RuntimeError):
    """The pool was closed."""


class Pool:
    """Forks workers of one program, each for one owner.

    At most `max_leased` workers are leased at a time, and their jobs together take at most
    `max_bytes`; a group has at most half of both. A single worker may take what its job may.
    `whole` refuses workers that lack a confinement; `niceness` lets other processes go first.

    The pool's thread starts the fork server, which the kernel ends with that thread. The pool ends
    it when no worker was leased for `idle_seconds`.
    """

    def __init__(
        self,
        program: str,
        environment: Mapping[str, str],
        *,
        whole: bool = False,
        max_leased: int = 16,
        max_bytes: int | None = None,
        idle_seconds: float = 300.0,
        niceness: int = 0,
    ) -> None:
        self._niceness = niceness
        self._program, self._environment = program, environment
        self._whole, self._idle_seconds = whole, idle_seconds
        self._max_leased, self._max_bytes = max_leased, max_bytes
        self._most_bytes = sys.maxsize if max_bytes is None else max_bytes
        self._orders: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._fork_server: Future[ForkServer] | None = None
        self._wanted_at = 0.0
        self._places = Counter[str]()  # taken, by group
        self._bytes = Counter[str]()  # that leased workers may take, by group
        self._leased: dict[WorkerProcess, tuple[str, int]] = {}
        self._owners: set[Owner] = set()
        self._closed = self._is_stale = False
        self._thread: threading.Thread | None = None

    def lease(
        self, check: Callable[[], None] = go_on, owner: "Owner | None" = None, size: int = 0
    ) -> WorkerProcess:
        """Return a new worker, whose jobs take at most `size` bytes; `give_back` ends it.

        While the pool is full, end the worker that is idle for longest, or wait and call `check`,
        which may raise. Raise `WorkerFailed`, `PoolClosed`, `NotConfined`.
        """
        group = "" if owner is None else owner.group
        while not self._take_place(group, size):
            self.require_open()
            check()
            self._end_longest_idle(group, size)
            time.sleep(_LOOK_SECONDS)
        try:
            worker = self._start(check)
            self._lend(worker, group, size, owner)
        except BaseException:
            with self._lock:
                self._free_place(group, size)
            raise
        return worker

    def counted(self, size: int) -> int:
        """Return the bytes of a job that the pool counts: 0 if it has no limit of bytes."""
        return 0 if self._max_bytes is None else size

    def _start(self, check: Callable[[], None]) -> WorkerProcess:
        """Fork a worker and wait until it is confined."""
        starting = self.warm_up()
        while not starting.done():
            self.require_open()
            check()
            with suppress(TimeoutError):
                starting.exception(_LOOK_SECONDS)
        worker = WorkerProcess(starting.result())
        lacking = worker.wait_ready(_START_SECONDS)
        if lacking and self._whole:
            worker.close()
            raise confinement.NotConfined(f"a worker is without {', '.join(lacking)}")
        return worker

    def warm_up(self) -> Future[ForkServer]:
        """Start the fork server unless one lives; return its future."""
        with self._lock:
            self.require_open()
            self._wanted_at = time.monotonic()
            running = self._fork_server
            if running is None or _has_ended(running):
                _close(running)
                running = self._fork_server = Future()
                self._orders.put(partial(self._start_fork_server, running))
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep, name="sandbox", daemon=True)
                self._thread.start()
            return running

    def _start_fork_server(self, starting: Future[ForkServer]) -> None:
        try:
            server = ForkServer(self._program, self._environment, self._niceness)
            server.wait_ready(_START_SECONDS, self.require_open)
        except Exception as error:
            starting.set_exception(error)
            if not self._closed:
                _log.warning("no worker can be started: %s", error)
        else:
            starting.set_result(server)

    def _lend(self, worker: WorkerProcess, group: str, size: int, owner: "Owner | None") -> None:
        with self._lock:
            if not self._closed:
                self._leased[worker] = group, size
                if owner is not None:
                    self._owners.add(owner)
                return
        worker.close()
        self.require_open()

    def _take_place(self, group: str, size: int) -> bool:
        with self._lock:
            places, reserved = self._places.total(), self._bytes.total()
            if places >= self._max_leased or (places and reserved + size > self._most_bytes):
                return False
            if self._is_full(group, size):
                return False
            self._places[group] += 1
            self._bytes[group] += size
            return True

    def _free_place(self, group: str, size: int) -> None:
        """Free a place of a group; the lock must be held."""
        self._places -= Counter((group,))
        self._bytes -= Counter({group: size})

    def _is_full(self, group: str, size: int) -> bool:
        """Return True if a group has no more places or bytes; the lock must be held."""
        places, reserved = self._places[group], self._bytes[group]
        if not group or not places:
            return False
        return places >= max(1, self._max_leased // 2) or reserved + size > self._most_bytes // 2

    def _end_longest_idle(self, group: str, size: int) -> None:
        """End the worker that is idle for longest, of the group if that has its share."""
        with self._lock:
            is_full = self._is_full(group, size)
            owners = [owner for owner in self._owners if not is_full or owner.group == group]
        if owners:
            min(owners, key=lambda owner: owner.idle_since).end_idle()

    def retire(self, owner: "Owner") -> None:
        """End the worker of an owner soon, if it is idle; may be called from a finalizer."""
        self._orders.put(owner.end_idle)

    def renew(self) -> None:
        """Replace the fork server as soon as its workers are idle."""
        self._is_stale = True

    def give_back(self, worker: WorkerProcess, owner: "Owner | None" = None) -> None:
        """End a worker, and free its place."""
        with self._lock:
            if owner is not None:
                self._owners.discard(owner)
            if worker in self._leased:
                self._free_place(*self._leased.pop(worker))
        worker.close()

    def close(self) -> None:
        """End all workers; jobs that run in them fail."""
        with self._lock:
            self._closed = True
            workers = [*self._leased]
            self._leased.clear()
        for worker in workers:
            worker.close()
        self._orders.put(None)
        if self._thread is not None:
            self._thread.join()
        _close(self._fork_server)

    def require_open(self) -> None:
        """Raise `PoolClosed` after `close`."""
        if self._closed:
            raise PoolClosed("the server ends")

    def _keep(self) -> None:
        """Run orders until the end; between them, end workers and fork servers that are idle."""
        while True:
            with self._lock:
                owners, is_idle = list(self._owners), self._fork_server is None
            try:
                order = self._orders.get(timeout=None if is_idle else _IDLE_PERIOD)
            except queue.Empty:
                self._end_restless_workers()
                for owner in owners:
                    owner.end_idle(*(() if self._is_stale else (time.monotonic(),)))
                self._end_idle_fork_server()
                continue
            if order is None:
                return
            order()

    def _end_restless_workers(self) -> None:
        """End workers that take time or memory between jobs; their owners get new ones."""
        with self._lock:
            workers = [*self._leased]
        for worker in workers:
            if excess := worker.end_restless():
                _log.warning("a worker was ended that took %s between jobs", excess)

    def _end_idle_fork_server(self) -> None:
        """End a fork server without workers that was idle for long, or at once if it is stale."""
        with self._lock:
            idle = time.monotonic() - self._wanted_at
            if self._places.total() or (idle < self._idle_seconds and not self._is_stale):
                return
            ended, self._fork_server, self._is_stale = self._fork_server, None, False
        _close(ended)


def _close(fork_server: Future[ForkServer] | None) -> None:
    """Close a fork server if it was started."""
    if fork_server is not None and fork_server.done() and fork_server.exception() is None:
        fork_server.result().close()


def _has_ended(fork_server: Future[ForkServer]) -> bool:
    """Return True if a fork server failed to start or has ended."""
    if not fork_server.done():
        return False
    return fork_server.exception() is not None or not fork_server.result().is_alive


class Owner:
    """Runs the jobs of one owner in turn, in a worker process of its own.

    The pool ends the worker when it was idle for `idle_seconds`, or when other owners wait for one.
    The owners of a `group` have at most half of the pool's workers.
    """

    def __init__(self, pool: Pool, idle_seconds: float = IDLE_SECONDS, group: str = "") -> None:
        self._pool, self._idle_seconds, self.group = pool, idle_seconds, group
        self._turn, self._lock = threading.RLock(), threading.Lock()
        self._worker: WorkerProcess | None = None
        self._size = 0  # bytes that its jobs may take
        self.idle_since = math.inf  # while a job runs

    def run(self, job: Message, limits: JobLimits) -> Message:
        """Return the answer to a job; raise as `WorkerProcess.run` and `lease`, or `PoolClosed`."""
        with self.turn(limits.check):
            try:
                return self._lease(limits.check, self._pool.counted(limits.memory)).run(job, limits)
            except WorkerFailed:
                self._pool.require_open()
                raise

    @contextmanager
    def turn(self, check: Callable[[], None]) -> Generator[None]:
        """Hold the worker for several jobs; `check` is called while another job runs."""
        with taking_turn(self._turn, check):
            self.idle_since = math.inf
            try:
                yield
            finally:
                self.idle_since = time.monotonic()

    def close(self) -> None:
        """End the worker; a job that runs in it fails."""
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is not None:
            self._pool.give_back(worker, self)

    def retire(self) -> None:
        """End the worker as soon as it is idle; may be called from a finalizer."""
        self._idle_seconds = 0.0
        self._pool.retire(self)

    def _lease(self, check: Callable[[], None], size: int) -> WorkerProcess:
        """Return the worker; lease a new one if it has ended or may not take `size` bytes."""
        worker = self._worker
        if worker is not None and (size > self._size or not worker.is_alive):
            self.close()
            worker = None
        if worker is None:
            worker = self._pool.lease(check, self, size)
            with self._lock:
                self._worker, self._size = worker, size
        return worker

    def end_idle(self, now: float = math.inf) -> None:
        """End the worker if no job runs, nor ran within the idle time before `now`."""
        if not self._turn.acquire(blocking=False):
            return
        try:
            if self.idle_since < math.inf and now - self.idle_since >= self._idle_seconds:
                self.close()
        finally:
            self._turn.release()
