# SPDX-License-Identifier: Apache-2.0
"""Worker processes of this machine, in a pool in which one death fails one job (Pebble)."""

import pickle
import signal
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from multiprocessing import get_context
from typing import Self

from pebble import ProcessExpired, ProcessPool

from nnpa_tools.evaluation.measuring import Evaluation, Measured
from nnpa_tools.evaluation.rows import Rows
from nnpa_tools.evaluation.survival import Death
from nnpa_tools.evaluation.tuning import tune

_MAX_SECONDS = 3600.0  # of rows; then their worker is ended
_CONTEXT = get_context("forkserver")


class LocalPool:
    """Worker processes for an evaluation. They end with the `with` block."""

    def __init__(self, evaluation: Evaluation, workers: int) -> None:
        self._workers, self._evaluation = workers, pickle.dumps(evaluation)
        _CONTEXT.set_forkserver_preload(["nnpa_tools.evaluation.local"])
        self._pool = self._start()
        self._running: dict[Future[Measured], Rows] = {}

    def _start(self) -> ProcessPool:
        return ProcessPool(max_workers=self._workers, initializer=tune, context=_CONTEXT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._end()

    def _end(self) -> None:
        self._pool.stop()
        self._pool.join()

    @property
    def places(self) -> int:
        """Two for each worker, so that no worker waits for its next rows."""
        return 2 * self._workers

    def submit(self, rows: Rows) -> None:
        """Send rows to a worker."""
        if not self._pool.active:  # a death while nothing ran breaks it
            self._end()
            self._pool = self._start()
        arguments = self._evaluation, rows
        future = self._pool.schedule(measure, args=arguments, timeout=_MAX_SECONDS)
        self._running[future] = rows

    def next(self) -> tuple[Rows, Measured | Death]:
        """Wait for an answer; raise a worker's error: ValueError, `ModelRefused`."""
        done, _running = wait(self._running, return_when=FIRST_COMPLETED)
        future = min(done, key=self._running.__getitem__)
        rows = self._running.pop(future)
        try:
            return rows, future.result()
        except ProcessExpired as ended:
            return rows, Death(_ending(ended.exitcode))
        except TimeoutError:
            return rows, Death(f"more than {_MAX_SECONDS:,.0f} s")
        except MemoryError:
            return rows, Death("no memory")
        except BrokenProcessPool:
            return rows, Death("no worker was left")


def _ending(code: int | None) -> str:
    """Return how a process ended, from its exit code, negative for a signal."""
    if code is not None and code < 0:
        return signal.Signals(-code).name
    return f"exit code {code}"


def measure(evaluation: bytes, rows: Rows) -> Measured:
    """Measure rows in a worker, which keeps the model and the data of a pickled evaluation."""
    return _begun(evaluation)(rows)


@lru_cache(maxsize=1)
def _begun(evaluation: bytes) -> Callable[[Rows], Measured]:
    unpickled: Evaluation = pickle.loads(evaluation)
    return unpickled.begin()
