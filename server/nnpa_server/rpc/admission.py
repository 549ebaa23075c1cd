# SPDX-License-Identifier: Apache-2.0
"""Calls whose message has not come: bounded in time, and in number while others want their place.

gRPC reads the message of a unary call before it runs anything of ours, and holds a thread all the
while. Served as a stream of one message, the call runs first: it shows its token before a byte of
its message is read, and can be cut off when the message does not come.
"""

import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from nnpa_server.rpc.budget import Budget
from nnpa_server.rpc.call import CallContext

P = ParamSpec("P")
R = TypeVar("R")
_PERIODS = 4  # looks at the calls that wait, in the least time that one may wait


class _AtOnce(ThreadPoolExecutor):
    """Runs calls in the thread that submits them."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run a call; it raises nothing."""
        done: Future[R] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class AdmittingPool(ThreadPoolExecutor):
    """Threads for calls of gRPC, of which each caller has as many waiting as a budget allows.

    One too many is cut off at once: it costs no thread, and nothing that waits for its client.
    """

    def __init__(self, threads: int, name: str, budget: Budget, call_bytes: int) -> None:
        super().__init__(threads, thread_name_prefix=name)
        self._budget, self._call_bytes = budget, call_bytes

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run a call in a thread when there is one; gRPC's event is among the arguments."""
        events: list[Any] = [each for each in args if hasattr(each, "call_details")]
        if not events:
            return super().submit(fn, *args, **kwargs)
        call = events[0].call  # of grpc._server
        caller = call.peer().decode()
        if not self._budget.take(caller, self._call_bytes, waits=False):
            call.cancel()
            refused: Future[R] = Future()
            refused.cancel()
            return refused

        def run() -> R:
            self._budget.give(caller, self._call_bytes)
            return fn(*args, **kwargs)

        return super().submit(run)


AT_ONCE = _AtOnce(1)
"""Threads for calls that are refused: none, so that they cost others little and wait for nobody."""


class MessageWaits:
    """Calls that wait for their message; a thread cuts off those that wait too long.

    A call may wait for `timeout` seconds, or for `min_wait` while more than `limit` wait, or while
    `wanted` calls find no room for a message: the oldest are cut off first. `give_back` is called
    after calls ended whose message never came: it returns to the system what gRPC held of it.
    """

    def __init__(
        self,
        limit: int,
        min_wait: float,
        timeout: float,
        give_back: Callable[[], object] = int,
        wanted: Callable[[], int] = int,
    ) -> None:
        self._wanted = wanted
        self._limit, self._min_wait, self._timeout = limit, min(min_wait, timeout), timeout
        self._give_back = give_back
        self._since: dict[CallContext, float] = {}  # the oldest first
        self._is_unfinished = False
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="message-waits", daemon=True).start()

    def __len__(self) -> int:
        return len(self._since)

    @contextmanager
    def waiting(self, context: CallContext) -> Generator[None]:
        """Count a call while its message is awaited."""
        self._since[context] = time.monotonic()
        try:
            yield
        except BaseException:
            self._is_unfinished = True
            raise
        finally:
            del self._since[context]

    def close(self) -> None:
        """Look no more."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._min_wait / _PERIODS):
            self.cut_off_late()
            if self._is_unfinished and not self._since:
                self._is_unfinished = False
                self._give_back()

    def cut_off_late(self) -> None:
        """Cut off the calls that have waited too long."""
        now, waiting = time.monotonic(), self._since.copy()
        excess = max(len(waiting) - self._limit, self._wanted())
        for index, (context, since) in enumerate(waiting.items()):
            if now - since > (self._min_wait if index < excess else self._timeout):
                context.cancel()
