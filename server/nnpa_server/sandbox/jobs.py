# SPDX-License-Identifier: Apache-2.0
"""The protocol of workers, and a worker in this process; `Owner` is a worker in another one."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from threading import Lock, RLock
from typing import Protocol

from nnpa_server.sandbox.frames import Message
from nnpa_server.sandbox.process import JobLimits
from nnpa_server.sandbox.worker import Handler

_LOOK_SECONDS = 0.02  # between looks whether somebody waits for a turn


class Worker(Protocol):
    """Runs the jobs of one owner in turn; methods may be called from any thread."""

    def run(self, job: Message, limits: JobLimits) -> Message:
        """Return the answer to a job; raise `WorkerFailed`, `PoolClosed`, or from the limits."""
        ...

    def turn(self, check: Callable[[], None]) -> AbstractContextManager[None]:
        """Hold the worker for several jobs; `check` is called while another job runs."""
        ...

    def close(self) -> None:
        """Drop the state that jobs left; a job that runs in another process fails."""
        ...

    def end_idle(self) -> None:
        """Close the worker unless a job runs."""
        ...

    def retire(self) -> None:
        """Close the worker as soon as no job runs; may be called from a finalizer."""
        ...


class LocalWorker:
    """Runs jobs in this process, without limits; `start` returns the handler of jobs."""

    def __init__(self, start: Callable[[], Handler]) -> None:
        self._start = start
        self._handler: Handler | None = None
        self._turn = RLock()

    def run(self, job: Message, limits: JobLimits) -> Message:
        """Return the answer to a job; its arrays are not copied, its exceptions pass."""
        with self.turn(limits.check):
            handler = self._handler = self._handler or self._start()
            return handler(job)

    def turn(self, check: Callable[[], None]) -> AbstractContextManager[None]:
        """Hold the worker for several jobs; `check` is called while another job runs."""
        return taking_turn(self._turn, check)

    def close(self) -> None:
        """Drop the state that jobs left; a job that runs continues."""
        self._handler = None

    end_idle = retire = close


@contextmanager
def taking_turn(lock: "Lock | RLock", check: Callable[[], None]) -> Generator[None]:
    """Hold a lock; call `check`, which may raise, every few milliseconds until it is free."""
    while not lock.acquire(timeout=_LOOK_SECONDS):
        check()
    try:
        yield
    finally:
        lock.release()
