# SPDX-License-Identifier: Apache-2.0
"""Workers for owners: each serves one and ends with it; only those that saw no job wait warm."""

import heapq
import itertools
import logging
import math
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

from nnpa_server.sandbox import confinement
from nnpa_server.sandbox.process import WorkerProcess, go_on

_log = logging.getLogger("nnpa.sandbox")
_START_SECONDS = 60.0
_IDLE_PERIOD = 0.25  # seconds between looks for idle workers
_FIRST, _LAST = 0, 1 << 30  # ranks of orders; those of a group are its numbers
_LOOK_SECONDS = 0.02  # between looks whether somebody waits for a worker


class PoolClosed(RuntimeError):
    """A pool that has ended gives no workers."""


class Holder(Protocol):
    """Who has a worker, and may be idle."""

    @property
    def group(self) -> str:
        """Whose it is, as far as that is known; empty if it is not."""
        ...

    @property
    def idle_since(self) -> float:
        """When the last job ended, in seconds of the monotonic clock; infinity while one runs."""
        ...

    def end_idle(self, now: float = ...) -> None:
        """End the worker where no job runs, nor has run for a while before `now`."""
        ...


class Pool:
    """Starts workers for one program, and keeps `warm` of them ready.

    All are started by one thread, because the kernel ends a worker with the thread that started
    it. `whole` refuses workers that are not confined as far as is known how. At most `max_leased`
    have owners at a time, half of them owners of one group. Those that nobody wanted for
    `spare_seconds` end.
    """

    def __init__(
        self,
        program: str,
        environment: Mapping[str, str],
        *,
        whole: bool = False,
        warm: int = 1,
        max_leased: int = 16,
        spare_seconds: float = 300.0,
    ) -> None:
        self._program, self._environment = program, environment
        self._whole, self._warm, self._spare_seconds = whole, warm, spare_seconds
        self._max_leased = max_leased
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        self._sorted: list[tuple[int, int, _Order]] = []  # the thread's own
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._waiting: list[WorkerProcess] = []
        self._spare_since = math.inf
        self._starting: WorkerProcess | None = None
        self._places = Counter[str]()  # taken, by group
        self._leased: dict[WorkerProcess, str] = {}
        self._holders: set[Holder] = set()
        self._closed = False
        self._thread: threading.Thread | None = None

    def lease(
        self, check: Callable[[], None] = go_on, holder: Holder | None = None
    ) -> WorkerProcess:
        """Return a worker that saw no job, for one owner, who closes it by `give_back`.

        While all are leased, the one that is idle for longest ends; else it waits, and calls
        `check`, which may raise. Raise `WorkerFailed`, `PoolClosed`, `NotConfined`.
        """
        group = "" if holder is None else holder.group
        while not self._take_place(group):
            self.require_open()
            check()
            self._end_longest_idle(group)
            time.sleep(_LOOK_SECONDS)
        try:
            worker = self._take_spare() or self._order(self._places[group], check)
            self._lend(worker, group, holder)
        except BaseException:
            with self._lock:
                self._places -= Counter((group,))
            raise
        self.warm_up()
        return worker

    def _lend(self, worker: WorkerProcess, group: str, holder: Holder | None) -> None:
        with self._lock:
            if not self._closed:
                self._leased[worker] = group
                if holder is not None:
                    self._holders.add(holder)
                return
        worker.close()
        self.require_open()

    def _take_place(self, group: str) -> bool:
        with self._lock:
            if self._places.total() >= self._max_leased or self._is_full(group):
                return False
            self._places[group] += 1
            return True

    def _is_full(self, group: str) -> bool:
        """Tell whether a group has its share; the caller has the lock."""
        return bool(group) and self._places[group] >= max(1, self._max_leased // 2)

    def _end_longest_idle(self, group: str) -> None:
        """End the worker that is idle for longest: of the group, where that has its share."""
        with self._lock:
            is_full = self._is_full(group)
            holders = [holder for holder in self._holders if not is_full or holder.group == group]
        if holders:
            min(holders, key=lambda holder: holder.idle_since).end_idle()

    def retire(self, holder: Holder) -> None:
        """Look soon whether an owner's worker is idle; may be called while any object is freed."""
        self._orders.put(_Order(_FIRST, retired=holder))

    def _take_spare(self) -> WorkerProcess | None:
        """Return a worker that waited, None where there is none."""
        with self._lock:
            self.require_open()
            if not self._waiting:
                return None
            worker = self._waiting.pop()
            if worker.is_alive:
                return worker
        worker.close()
        return None

    @property
    def spares(self) -> tuple[int, ...]:
        """Process ids of workers that wait."""
        with self._lock:
            return tuple(worker.pid for worker in self._waiting)

    def warm_up(self) -> None:
        """Start workers in the background until so many wait."""
        self._begin()
        self._orders.put(_Order(_LAST, spare=True))

    def give_back(self, worker: WorkerProcess, holder: Holder | None = None) -> None:
        """End a worker: nobody else gets it."""
        with self._lock:
            if holder is not None:
                self._holders.discard(holder)
            if worker in self._leased:
                self._places -= Counter((self._leased.pop(worker),))
        worker.close()

    def close(self) -> None:
        """End all workers; jobs that run in them fail."""
        with self._lock:
            self._closed = True
            workers = [*self._waiting, *self._leased]
            if self._starting is not None:
                workers.append(self._starting)
            self._waiting.clear()
            self._leased.clear()
        self._orders.put(None)
        for worker in workers:
            worker.close()
        if self._thread is not None:
            self._thread.join()

    def require_open(self) -> None:
        """Raise `PoolClosed` after `close`."""
        if self._closed:
            raise PoolClosed("the server ends")

    def _begin(self) -> None:
        """Start the thread that starts workers, once."""
        with self._lock:
            self.require_open()
            if self._thread is None:
                self._thread = threading.Thread(target=self._fill, name="sandbox", daemon=True)
                self._thread.start()

    def _order(self, rank: int, check: Callable[[], None]) -> WorkerProcess:
        """Return a worker that the pool's thread starts; one that nobody waits for is a spare."""
        self._begin()
        order = _Order(rank)
        self._orders.put(order)
        try:
            while not order.done.wait(_LOOK_SECONDS):
                check()
        except BaseException:
            with self._lock:
                order.spare, worker = True, order.worker
            if worker is not None:
                worker.close()
            raise
        if order.worker is None:
            raise order.failure or PoolClosed("the server ends")
        return order.worker

    def _fill(self) -> None:
        """Start what is ordered, until the end."""
        while (order := self._next_order()) is not None:
            try:
                self._serve(order)
            except Exception as error:
                order.failure = error
                if order.spare and not self._closed:
                    _log.warning("no worker can be kept ready: %s", error)
            finally:
                order.done.set()
        with suppress(queue.Empty):
            while True:
                self._sort_in(self._orders.get(block=False))
        for *_, order in self._sorted:
            order.done.set()

    def _next_order(self) -> "_Order | None":
        """Return the next order; meanwhile end workers that are idle, or spare, for long.

        A group's first order comes before another group's second, spares come last.
        """
        while not self._closed:
            with self._lock:
                holders, is_idle = list(self._holders), not (self._holders or self._waiting)
            period = None if is_idle else _IDLE_PERIOD
            try:
                self._sort_in(self._orders.get(timeout=0.0 if self._sorted else period))
            except queue.Empty:
                if self._sorted:
                    return heapq.heappop(self._sorted)[-1]
                for holder in holders:
                    holder.end_idle(time.monotonic())
                self._end_old_spares()
        return None

    def _sort_in(self, order: "_Order | None") -> None:
        if order is not None:
            heapq.heappush(self._sorted, (order.rank, next(self._numbers), order))

    def _end_old_spares(self) -> None:
        with self._lock:
            if time.monotonic() - self._spare_since < self._spare_seconds:
                return
            spares, self._waiting = self._waiting, []
        for worker in spares:
            worker.close()

    def _serve(self, order: "_Order") -> None:
        if order.retired is not None:
            order.retired.end_idle()
            return
        if order.spare and len(self.spares) >= self._warm:
            return
        worker = None if order.spare else self._take_spare()
        if worker is None:
            worker = self._start()
        with self._lock:
            if not self._closed:
                if order.spare:
                    self._waiting.append(worker)
                    self._spare_since = time.monotonic()
                else:
                    order.worker = worker
                return
        worker.close()

    def _start(self) -> WorkerProcess:
        worker = WorkerProcess(self._program, self._environment)
        with self._lock:
            self._starting = worker
            is_closed = self._closed
        try:
            if is_closed:
                worker.close()
            lacking = worker.wait_ready(_START_SECONDS)
        finally:
            self._starting = None
        if lacking and self._whole:
            worker.close()
            raise confinement.NotConfined(f"a worker is without {', '.join(lacking)}")
        return worker


class _Order:
    """A worker to be started, for somebody who waits or to spare; or an owner's to be ended.

    Those of a lower `rank` come first.
    """

    def __init__(self, rank: int, *, spare: bool = False, retired: Holder | None = None) -> None:
        self.rank, self.spare, self.retired = rank, spare, retired
        self.done = threading.Event()
        self.worker: WorkerProcess | None = None
        self.failure: Exception | None = None
