# SPDX-License-Identifier: Apache-2.0
"""A worker in this process, like `Owner`, which has one in another process."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from threading import Lock, RLock

from nnpa_server.sandbox.frames import Message
from nnpa_server.sandbox.process import JobLimits
from nnpa_server.sandbox.worker import Handler

_LOOK_SECONDS = 0.02  # between looks whether somebody waits for a turn


class LocalWorker:
    """Runs jobs in this process without limits, for any thread; `start` returns their handler."""

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
