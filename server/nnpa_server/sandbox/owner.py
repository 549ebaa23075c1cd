# SPDX-License-Identifier: Apache-2.0
"""The worker of one owner: leased for a job, ended when idle, replaced when it has ended."""

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
    """Runs the jobs of one owner in turn, in a worker process of its own.

    The pool ends the worker when it was idle for `idle_seconds`, or when other owners wait for one.
    The owners of a `group` have at most half of the pool's workers.
    """

    def __init__(self, pool: Pool, idle_seconds: float = IDLE_SECONDS, group: str = "") -> None:
        self._pool, self._idle_seconds, self.group = pool, idle_seconds, group
        self._turn, self._lock = threading.RLock(), threading.Lock()
        self._worker: WorkerProcess | None = None
        self._size = 0  # bytes that its jobs may take
        self._idle_since = math.inf

    def run(self, job: Message, limits: JobLimits) -> Message:
        """Return the answer to a job; raise as `WorkerProcess.run` and `Pool.lease` do.

        Raise `PoolClosed` if the end of the pool cut off the job.
        """
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

    @property
    def idle_since(self) -> float:
        """When the last job ended, in monotonic seconds; infinity while one runs."""
        return self._idle_since

    def end_idle(self, now: float = math.inf) -> None:
        """End the worker if no job runs, nor ran within the idle time before `now`."""
        if not self._turn.acquire(blocking=False):
            return
        try:
            if self._idle_since < math.inf and now - self._idle_since >= self._idle_seconds:
                self.close()
        finally:
            self._turn.release()
