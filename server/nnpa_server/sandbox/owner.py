# SPDX-License-Identifier: Apache-2.0
"""An owner's worker: leased at its first job, ended when it is idle, replaced when it ended."""

import threading
from collections.abc import Callable

from nnpa_server.sandbox.frames import Message
from nnpa_server.sandbox.pool import Pool
from nnpa_server.sandbox.process import JobLimits, WorkerFailed, WorkerProcess

IDLE_SECONDS = 5.0


class Owner:
    """Runs the jobs of one owner, one after the other, in a worker that nobody else has."""

    def __init__(self, pool: Pool, idle_seconds: float = IDLE_SECONDS) -> None:
        self._pool, self._idle_seconds = pool, idle_seconds
        self._turn, self._lock = threading.Lock(), threading.Lock()
        self._worker: WorkerProcess | None = None
        self._timer: threading.Timer | None = None

    def run(
        self,
        job: Message,
        limits: JobLimits,
        *,
        reserve: Callable[[int], None],
        check: Callable[[], None],
    ) -> Message:
        """Return the answer to a job; raise as `WorkerProcess.run` and `Pool.lease` do.

        Raise `PoolClosed` for a job that the pool's end cut off.
        """
        while not self._turn.acquire(timeout=0.02):
            check()
        try:
            return self._lease(check).run(job, limits, reserve=reserve, check=check)
        except WorkerFailed:
            self._pool.require_open()
            raise
        finally:
            self._begin_idling()
            self._turn.release()

    def close(self) -> None:
        """End the worker; a job that runs in it fails."""
        with self._lock:
            worker, self._worker = self._worker, None
            if self._timer is not None:
                self._timer.cancel()
        if worker is not None:
            self._pool.give_back(worker)

    def _lease(self, check: Callable[[], None]) -> WorkerProcess:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            worker = self._worker
        if worker is not None and not worker.is_alive:
            self.close()
            worker = None
        if worker is None:
            worker = self._pool.lease(check)
            with self._lock:
                self._worker = worker
        return worker

    def _begin_idling(self) -> None:
        with self._lock:
            if self._worker is None:
                return
            self._timer = threading.Timer(self._idle_seconds, self._end_idle, (self._worker,))
            self._timer.daemon = True
            self._timer.start()

    def _end_idle(self, worker: WorkerProcess) -> None:
        """End a worker, unless a job came at the last moment."""
        if self._turn.acquire(blocking=False):
            try:
                if self._worker is worker:
                    self.close()
            finally:
                self._turn.release()
