# SPDX-License-Identifier: Apache-2.0
"""Give calls their threads, and bound the calls that wait: for a thread, or for their message.

gRPC reads the message of a unary call before it runs our handler, and holds a thread meanwhile. A
method that is served as a stream of one message runs first: it checks the token before a byte of
the message is read, and can be cut off if the message does not come.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, ParamSpec, TypeAlias, TypeVar

from nnpa_server.rpc.budget import Budget
from nnpa_server.rpc.call import CONVERSATIONS
from nnpa_server.rpc.callers import fits
from nnpa_server.sessions.cancellation import CallContext, Metadata

P = ParamSpec("P")
R = TypeVar("R")
_Work: TypeAlias = Callable[[], Any]
_CONVERSATIONS = frozenset(map(str.encode, CONVERSATIONS))
_PERIODS = 4  # looks at the calls that wait, in the least time that one may wait


class AdmittingPool(ThreadPoolExecutor):
    """Threads for calls: each caller has its share, and its further calls wait in line for one.

    Callers are counted only while more than half of the threads are taken: with fewer, all are
    within their shares. Calls wait in line as long as `budget` has room for `call_bytes` of each;
    one too many is cut off at once. Conversations have threads `apart`.

    `name_caller` returns the name of a caller by its call's metadata and connection, or None if the
    call shows no valid token: such a call is refused in the thread that brings it, and takes none
    of the pool. Without `name_caller` a caller is a connection.
    """

    def __init__(
        self,
        threads: int,
        name: str,
        budget: Budget,
        call_bytes: int,
        name_caller: Callable[[Metadata, str], str | None] | None = None,
        apart: int = 0,
    ) -> None:
        super().__init__(threads + apart, thread_name_prefix=name)
        self._limit, self._budget, self._call_bytes = threads, budget, call_bytes
        self._name_caller = name_caller
        self._running: dict[_Work, str] = {}  # with the names of their callers
        self._lines: dict[str, deque[tuple[Future[Any], _Work]]] = {}  # the next caller first
        self._turn = threading.Lock()

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run a call in a thread when there is one; gRPC's event is among the arguments."""
        event: Any = next(each for each in args if hasattr(each, "call_details"))
        work = partial(fn, *args, **kwargs)
        peer: str = event.call.peer().decode()
        name = self._name_caller
        caller = peer if name is None else name(event.invocation_metadata, peer)
        if caller is None:
            refused: Future[R] = Future()
            refused.set_result(work())
            return refused
        if event.call_details.method.rpartition(b"/")[2] in _CONVERSATIONS:
            return self._run_apart(caller, event, work)
        with self._turn:
            if self._has_room(caller):
                self._running[work] = caller
                return super().submit(self._run, work)
            future: Future[R] = Future()
            if not self._budget.take(caller, self._call_bytes, waits=False):
                return _cut_off(event, future)
            self._lines.setdefault(caller, deque()).append((future, work))
            return future

    def _has_room(self, caller: str) -> bool:
        """Return True if a caller may have one more thread; whoever calls this has the lock."""
        left = self._limit - len(self._running)
        if len(self._running) < left:
            return True
        return fits(caller, sum(name == caller for name in self._running.values()), left)

    def _run(self, work: Callable[[], R]) -> R:
        try:
            return work()
        finally:
            self._leave(work)

    def _run_apart(self, caller: str, event: Any, work: Callable[[], R]) -> Future[R]:
        """Run a conversation, counted until it has a thread: its own bound refuses it then."""
        if not self._budget.take(caller, self._call_bytes, waits=False):
            return _cut_off(event, Future[R]())

        def run() -> R:
            self._budget.give(caller, self._call_bytes)
            return work()

        return super().submit(run)

    def _run_waiting(self, future: Future[Any], work: _Work) -> None:
        try:
            future.set_result(self._run(work))
        except BaseException as error:
            future.set_exception(error)
        finally:
            del future  # which has the error, which has this frame

    def _leave(self, work: _Work) -> None:
        """Give a thread back, and start a call that waits and fits now: callers take turns."""
        with self._turn:
            del self._running[work]
            if not self._lines:
                return
            held, left = Counter(self._running.values()), self._limit - len(self._running)
            fitting = (waiting for waiting in self._lines if fits(waiting, held[waiting], left))
            caller = next(fitting, None)
            if caller is None:
                return
            line = self._lines.pop(caller)
            future, work = line.popleft()
            if line:
                self._lines[caller] = line
            self._budget.give(caller, self._call_bytes)
            self._running[work] = caller
            super().submit(self._run_waiting, future, work)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End, without the calls that wait in lines."""
        with self._turn:
            waiting = [future for line in self._lines.values() for future, _ in line]
            self._lines.clear()
        for future in waiting:
            future.cancel()
        super().shutdown(wait, cancel_futures=cancel_futures)


def _cut_off(event: Any, future: Future[R]) -> Future[R]:
    """Cut off the call of an event for which there is no room; return its future, cancelled."""
    event.call.cancel()
    future.cancel()
    return future


class MessageWaits:
    """Cuts off calls that wait too long for their message.

    A call may wait for `timeout` seconds. If more than `limit` calls wait, or if `count_waiting`
    calls wait for room for their message, that number of the oldest may wait for `min_wait` seconds
    only. `give_back` is called after calls ended whose message never came: it returns free memory
    to the system.
    """

    def __init__(
        self,
        limit: int,
        min_wait: float,
        timeout: float,
        give_back: Callable[[], object] = int,
        count_waiting: Callable[[], int] = int,
    ) -> None:
        self._count_waiting = count_waiting
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
        """Bound the time of a call while it waits for its message."""
        self._since[context] = time.monotonic()
        try:
            yield
        except BaseException:
            self._is_unfinished = True
            raise
        finally:
            del self._since[context]

    def close(self) -> None:
        """Stop the thread that looks at waiting calls."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._min_wait / _PERIODS):
            if self._since:
                self.cut_off_late()
            if self._is_unfinished and not self._since:
                self._is_unfinished = False
                self._give_back()

    def cut_off_late(self) -> None:
        """Cut off the calls that have waited too long."""
        now, waiting = time.monotonic(), self._since.copy()
        excess = max(len(waiting) - self._limit, self._count_waiting())
        for index, (context, since) in enumerate(waiting.items()):
            if now - since > (self._min_wait if index < excess else self._timeout):
                context.cancel()
