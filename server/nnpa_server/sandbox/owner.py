# SPDX-License-Identifier: Apache-2.0
"""An owner's worker: leased at its first job, ended when it is idle, replaced when it ended."""

import math
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from nnpa_server.sandbox.failures import WorkerFailed
from nnpa_server.sandbox.frames import Message
from nnpa_server.sandbox.jobs import taking_turn
from nnpa_server.sandbox.pool import Pool
from nnpa_server.sandbox.process import JobLimits, WorkerProcess

IDLE_SECONDS = 5.0


class Owner:
    """Runs the jobs of one owner, one after the other, in a worker that nobody else has.

    The pool ends the worker when no job ran in it for `idle_seconds`, or when others wait for one.
    Owners of a `group` have half of the pool's workers at most.
    """

    def __init__(self, pool: Pool, idle_seconds: float = IDLE_SECONDS, group: str = "") -> None:
        self._pool, self._idle_seconds, self.group = pool, idle_seconds, group
        self._turn, self._lock = threading.RLock(), threading.Lock()
        self._worker: WorkerProcess | None = None
        self._size = 0  # bytes that its jobs may take
        self._idle_since = math.inf

    def run(self, job: Message, limits: JobLimits) -> Message:
        """Return the answer to a job; raise as `WorkerProcess.run` and `Pool.lease` do.

        Raise `PoolClosed` for a job that the pool's end cut off.
        """
        with self.turn(limits.check):
            try:
                return self._lease(limits.check, self._pool.counted(limits.memory)).run(job, limits)
            except WorkerFailed:
                self._pool.require_open()
                raise

    @contextmanager
    def turn(self, check: Callable[[], None]) -> Generator[None]:
        """Keep others' jobs waiting; `check` is called while waiting for their end."""
        with taking_turn(self._turn, check):
            self._idle_since = math.inf
            try:
                yield
            finally:
                self._idle_since = time.monotonic()

    def close(self) -> None:
        """End the worker; a job that runs in it fails."""
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is not None:
            self._pool.give_back(worker, self)

    def retire(self) -> None:
        """End the worker as soon as it is idle; may be called while any object is freed."""
        self._idle_seconds = 0.0
        self._pool.retire(self)

    def _lease(self, check: Callable[[], None], size: int) -> WorkerProcess:
        """Return the worker, a new one where there is none or a job takes more than it may."""
        worker = self._worker
        if worker is not None and (size > self._size or not worker.is_alive):
            self.close()
            worker = None
        if worker is None:
            worker = self._pool.lease(check, self, size)
            with self._lock:
                self._worker, self._size = worker, size
        return worker

    @property
    def idle_since(self) -> float:
        """When the last job ended, in seconds of the monotonic clock; infinity while one runs."""
        return self._idle_since

    def end_idle(self, now: float = math.inf) -> None:
        """End the worker where no job runs, nor has run for a while before `now`."""
        if not self._turn.acquire(blocking=False):
            return
        try:
            if self._idle_since < math.inf and now - self._idle_since >= self._idle_seconds:
                self.close()
        finally:
            self._turn.release()
