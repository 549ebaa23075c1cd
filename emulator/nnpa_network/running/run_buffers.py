# SPDX-License-Identifier: Apache-2.0
"""Shortcut run-buffers: the tensors of a finished run serve the next run of the same program.

The system zeroes the pages of fresh sticks one by one, which for thin tensors takes longer than the
arithmetic. A program writes the same cells of a tensor in every run, so a tensor of an earlier run
is as good as a fresh one. The process keeps at most `MAX_KEPT_BYTES`; the least recently used
program loses its buffers first.
"""

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from nnpa_emulator import Ztensor
from nnpa_emulator.machine import page_memory
from nnpa_emulator.ztensor import getsize_ztensor

from nnpa_network.program import AcceleratorStep
from nnpa_network.running.loading import LoadedProgram
from nnpa_network.running.plain import Run, RunProgram

MAX_KEPT_BYTES = 1 << 28
"""Bytes of all buffers that are kept."""
MAX_RUN_BYTES = 1 << 26
"""Bytes of a run that is worth keeping: a larger run frees each tensor after its last use."""

PreparedStep: TypeAlias = Callable[[Run], bool]
"""Runs a step over the tensors it is bound to; False: nothing has been done."""


@dataclass(slots=True, eq=False)
class Buffers:
    """The tensors that one run made, by their ids.

    `prepared` are steps bound to these tensors, None for those that go the plain way; they hold
    while the guest's generation is `generation`. See `prepared_steps`.
    """

    tensors: dict[int, Ztensor] = field(default_factory=dict[int, Ztensor])
    prepared: list[PreparedStep | None] = field(default_factory=list[PreparedStep | None])
    generation: int = 0


@dataclass(slots=True)
class BufferedRun(Run):
    """A run that writes the tensors of an earlier one, and keeps its own for a later one."""

    buffers: Buffers = field(default_factory=Buffers)

    def allocate(self, step: AcceleratorStep, number: int) -> Ztensor:
        """Return the tensor of an earlier run, or a new one."""
        tensor = self.buffers.tensors.get(number)
        if tensor is None:
            tensor = self.buffers.tensors[number] = Run.allocate(self, step, number)
        tensor.is_transformed = False
        return tensor


def reuse_buffers(loaded: LoadedProgram, run_program: RunProgram) -> RunProgram:
    """Wrap what runs a program: buffers come from an earlier run, and serve a later one.

    Nothing is kept where the guest counts allocations, or a run is too large.
    """
    size = sum(getsize_ztensor(tensor.transformed_desc) for tensor in loaded.templates.values())
    if loaded.guest.allocate is not page_memory or size > MAX_RUN_BYTES:
        return run_program
    pool = BufferPool(size)

    def run_over_buffers(run: Run) -> None:
        buffers = pool.take()
        values = run.arrays, run.tensors, run.violations, run.numeric
        run_program(BufferedRun(loaded, *values, buffers))
        pool.put(buffers)

    return run_over_buffers


class BufferPool:
    """The buffers of one program's runs, each of `size` bytes."""

    def __init__(self, size: int) -> None:
        self._size = size
        weakref.finalize(self, _kept.forget, id(self)).atexit = False

    def take(self) -> Buffers:
        """Return the buffers of an earlier run, or empty ones."""
        return _kept.take(id(self))

    def put(self, buffers: Buffers) -> None:
        """Keep the buffers of a run that has ended well."""
        _kept.put(id(self), self._size, buffers)


class _Kept:
    """The buffers of all programs, the least recently used first."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # programs are freed at any moment
        self._programs: OrderedDict[int, tuple[int, list[Buffers]]] = OrderedDict()
        self.size = 0

    def take(self, program: int) -> Buffers:
        with self._lock:
            size, pool = self._programs.get(program, (0, ()))
            if not pool:
                return Buffers()
            self.size -= size
            return pool.pop()

    def put(self, program: int, size: int, buffers: Buffers) -> None:
        with self._lock:
            self._programs.setdefault(program, (size, []))[1].append(buffers)
            self._programs.move_to_end(program)
            self.size += size
            while self.size > MAX_KEPT_BYTES:
                self.forget(next(iter(self._programs)))

    def forget(self, program: int) -> None:
        with self._lock:
            size, pool = self._programs.pop(program, (0, []))
            self.size -= size * len(pool)


_kept = _Kept()


def kept_bytes() -> int:
    """Return the bytes of all buffers that are kept."""
    return _kept.size
