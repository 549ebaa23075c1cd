# SPDX-License-Identifier: Apache-2.0
"""Calls whose message has not come: bounded in time, and in number while others want their place.

gRPC reads the message of a unary call before it runs anything of ours, and holds a thread all the
while. Served as a stream of one message, the call runs first: it shows its token before a byte of
its message is read, and can be cut off when the message does not come.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, ParamSpec, TypeAlias, TypeVar

from nnpa_server.rpc.budget import Budget
from nnpa_server.rpc.call import CONVERSATIONS
from nnpa_server.rpc.callers import Shares
from nnpa_server.sessions.cancellation import CallContext, Metadata

P = ParamSpec("P")
R = TypeVar("R")
_Work: TypeAlias = tuple[Future[Any], Callable[[], object]]
_CONVERSATIONS = frozenset(map(str.encode, CONVERSATIONS))
_PERIODS = 4  # looks at the calls that wait, in the least time that one may wait


class _AtOnce(ThreadPoolExecutor):
    """Runs calls in the thread that submits them."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run a call; it raises nothing."""
        done: Future[R] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class AdmittingPool(ThreadPoolExecutor):
    """Threads for calls, of which each caller has its share; the rest of its calls wait in a line.

    Of calls of gRPC as many wait as a budget allows. One too many is cut off at once: it costs no
    thread, and nothing that waits for its client. Conversations have threads `apart`. A caller is a
    connection, or what `caller_of` makes of a call's metadata and connection.
    """

    def __init__(
        self,
        threads: int,
        name: str,
        budget: Budget,
        call_bytes: int,
        caller_of: Callable[[Metadata, str], str] | None = None,
        apart: int = 0,
    ) -> None:
        super().__init__(threads + apart, thread_name_prefix=name)
        self._budget, self._call_bytes, self._caller_of = budget, call_bytes, caller_of
        self._shares = Shares("max_threads", threads)
        self._lines: dict[str, deque[_Work]] = {}  # by caller; whose turn it is comes first
        self._turn = threading.Lock()

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run a call in a thread when there is one; gRPC's event is among the arguments."""
        event: Any = next(each for each in args if hasattr(each, "call_details"))
        caller = event.call.peer().decode()
        if self._caller_of is not None:
            caller = self._caller_of(event.invocation_metadata, caller)
        if not self._budget.take(caller, self._call_bytes, waits=False):
            event.call.cancel()
            refused: Future[R] = Future()
            refused.cancel()
            return refused
        work = partial(fn, *args, **kwargs)
        if event.call_details.method.rpartition(b"/")[2] in _CONVERSATIONS:
            return super().submit(self._run, caller, work)
        with self._turn:
            if self._shares.try_take(caller):
                return super().submit(self._run_in_turn, caller, work)
            future: Future[R] = Future()
            self._lines.setdefault(caller, deque()).append((future, work))
            return future

    def _run(self, caller: str, work: Callable[[], R]) -> R:
        self._budget.give(caller, self._call_bytes)
        return work()

    def _run_in_turn(self, caller: str, work: Callable[[], R]) -> R:
        self._budget.give(caller, self._call_bytes)
        try:
            return work()
        finally:
            self._leave(caller)

    def _run_waiting(self, caller: str, future: Future[Any], work: Callable[[], object]) -> None:
        try:
            future.set_result(self._run_in_turn(caller, work))
        except BaseException as error:
            future.set_exception(error)
        finally:
            del future  # which has the error, which has this frame

    def _leave(self, caller: str) -> None:
        """Give a thread back, and start what waits and fits now: callers take turns."""
        with self._turn:
            self._shares.give(caller)
            for waiting in self._lines:
                if self._shares.try_take(waiting):
                    break
            else:
                return
            line = self._lines.pop(waiting)
            future, work = line.popleft()
            if line:
                self._lines[waiting] = line
            super().submit(self._run_waiting, waiting, future, work)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End, without the calls that wait in lines."""
        with self._turn:
            waiting = [future for line in self._lines.values() for future, _ in line]
            self._lines.clear()
        for future in waiting:
            future.cancel()
        super().shutdown(wait, cancel_futures=cancel_futures)


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
