# SPDX-License-Identifier: Apache-2.0
"""The protocol of workers, and the worker that is no process of its own: see `Owner` for others."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from threading import Lock, RLock
from typing import Protocol

from nnpa_server.sandbox.frames import Message
from nnpa_server.sandbox.process import JobLimits
from nnpa_server.sandbox.worker import Handler

_LOOK_SECONDS = 0.02  # between looks whether somebody waits for a turn


class Worker(Protocol):
    """Does the jobs of one owner, one after the other; methods may be called by all threads."""

    def run(self, job: Message, limits: JobLimits) -> Message:
        """Return the answer to a job; raise `WorkerFailed`, `PoolClosed`, and what limits raise."""
        ...

    def turn(self, check: Callable[[], None]) -> AbstractContextManager[None]:
        """Keep others' jobs waiting; `check` is called while waiting for their end."""
        ...

    def close(self) -> None:
        """Forget what jobs left behind; one that runs in a process fails."""
        ...

    def end_idle(self) -> None:
        """Do as `close` does where no job runs."""
        ...

    def retire(self) -> None:
        """Do as `close` does as soon as no job runs; may be called while any object is freed."""
        ...


class LocalWorker:
    """Does jobs in this process, whose limits are its own; `start` makes what answers them."""

    def __init__(self, start: Callable[[], Handler]) -> None:
        self._start = start
        self._handler: Handler | None = None
        self._turn = RLock()

    def run(self, job: Message, limits: JobLimits) -> Message:
        """Return the answer to a job, with the arrays that it has; raise what it raises."""
        with self.turn(limits.check):
            handler = self._handler = self._handler or self._start()
            return handler(job)

    def turn(self, check: Callable[[], None]) -> AbstractContextManager[None]:
        """Keep others' jobs waiting; `check` is called while waiting for their end."""
        return taking_turn(self._turn, check)

    def close(self) -> None:
        """Forget what jobs left behind; one that runs goes on."""
        self._handler = None

    end_idle = retire = close


@contextmanager
def taking_turn(lock: "Lock | RLock", check: Callable[[], None]) -> Generator[None]:
    """Hold a lock; `check` is called while others do, and may raise."""
    while not lock.acquire(timeout=_LOOK_SECONDS):
        check()
    try:
        yield
    finally:
        lock.release()
