# SPDX-License-Identifier: Apache-2.0
"""Have kernels compiled for workers, which compile nothing themselves."""

import threading
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path

from nnpa_emulator.kernels.jit import COMPILE_WORK, MIN_CALL_WORK

from nnpa_server.tuning.background import BackgroundCompiler
from nnpa_server.tuning.warmup import lacking_steps

# Steps of the warm-up whose kernels any network may need, whatever its functions.
_OF_NETWORKS = ("transform FP32", "reshape", "host operators", "table")
_BESIDE = {"conv2d": "conv2d between elements"}


class WorkerKernels:
    """Orders kernels for functions that workers ran often; `renew` restarts workers with them."""

    def __init__(
        self, compiler: BackgroundCompiler, place: Path, renew: Callable[[], None]
    ) -> None:
        self._compiler, self._place, self._renew = compiler, place, renew
        self._lock = threading.Lock()
        self._work = Counter[str]()

    def note(self, functions: Collection[str], size: int) -> None:
        """Count a run of these functions over `size` bytes; order their kernels once that pays."""
        work = max(size, MIN_CALL_WORK)
        with self._lock:
            due = [name for name in functions
                   if self._work[name] < COMPILE_WORK <= self._work[name] + work]  # fmt: skip
            self._work.update(dict.fromkeys(functions, work))
        if due:
            beside = [_BESIDE[name] for name in due if name in _BESIDE]
            steps = lacking_steps(self._place, {*due, *beside, *_OF_NETWORKS})
            if steps:
                self._compiler.compile_steps(steps, self._renew)
