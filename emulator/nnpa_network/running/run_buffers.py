# SPDX-License-Identifier: Apache-2.0
"""Shortcut run-buffers: the tensors of a run share one arena, which serves the next run too.

The system zeroes fresh pages one by one, which takes longer than the arithmetic. Offsets in the
arena are planned from last uses, so that it is about as large as what lives at once. A step that
runs the plain way gets zeros. A prepared step writes each element of its tensors, and leaves their
padding as it is: no function reads padding.

The process keeps at most `MAX_KEPT_BYTES` of arenas; the least recently used program loses its own
first. A guest that counts allocations is told when a kept arena is used again; where it refuses,
the run goes without.
"""

import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

from nnpa_emulator import FUNCTIONS, Guest, Ztensor
from nnpa_emulator.checks import require_transformed_desc
from nnpa_emulator.interruption import go_on
from nnpa_emulator.machine import Memory, page_memory
from nnpa_emulator.status import Refused
from nnpa_emulator.ztensor import getsize_ztensor

from nnpa_network.program import AcceleratorStep, Step, writes
from nnpa_network.running.layer_normalizations import VERBS
from nnpa_network.running.liveness import Lifetime, extent, plan
from nnpa_network.running.loading import LoadedProgram
from nnpa_network.running.plain import Run, RunProgram
from nnpa_network.running.rows import PreparedStep, Walk

MAX_KEPT_BYTES = 1 << 28
"""Bytes of all arenas that are kept."""


@dataclass(slots=True, eq=False)
class Buffers:
    """The tensors of a run, by their ids, those of the program `loaded` in `memory`.

    `prepared` are `stages` of the program `bound`, bound to these tensors, None for those that go
    the plain way, and `walks` go over them; they hold while the guest's state is `state`. See
    `prepared_steps`.
    """

    loaded: LoadedProgram | None = None
    memory: Memory | None = None
    tensors: dict[int, Ztensor] = field(default_factory=dict[int, Ztensor])
    bound: LoadedProgram | None = None
    stages: Sequence[tuple[int, ...]] = ()
    prepared: list[PreparedStep | None] = field(default_factory=list[PreparedStep | None])
    walks: list[Walk] | None = None
    state: object = None


@dataclass(slots=True)
class BufferedRun(Run):
    """A run over the tensors of an arena."""

    buffers: Buffers = field(default_factory=Buffers)

    def allocate(self, step: AcceleratorStep, number: int) -> Ztensor:
        """Return the tensor's place in the arena, cleared."""
        del step
        tensor = self.buffers.tensors[number]
        tensor.sticks.fill(0)
        tensor.is_transformed = False
        return tensor


def reuse_buffers(loaded: LoadedProgram, run_program: RunProgram) -> RunProgram:
    """Wrap a program's run: its tensors lie in an arena, of an earlier run if there is one.

    A run for which there is no arena goes without.
    """
    if any(_needs_fresh(loaded, step) for step in loaded.program.steps):
        return run_program
    lives = lifetimes(loaded)
    key = loaded.root, tuple(lives.items())
    arenas = _shared.get(key)
    if arenas is None:
        arenas = _shared[key] = Arenas(loaded.guest, lives)

    def run_in_arena(run: Run) -> None:
        buffers = arenas.take(loaded)
        if buffers is None:
            run_program(run)
            return
        values = run.arrays, run.tensors, run.violations, run.numeric, run.run_host_step
        run_program(BufferedRun(loaded, *values, buffers))
        arenas.put(buffers)

    return run_in_arena


def _needs_fresh(loaded: LoadedProgram, step: Step) -> bool:
    """Return whether a step reads cells that the plain path leaves zero.

    It does where it writes what it reads, and where it moves cells of one type as if they were of
    another, padding too.
    """
    if not isinstance(step, AcceleratorStep):
        return False
    if step.verb == "reshape_ztensor":
        tensors = (loaded.templates.get(step.arguments[name]) for name in ("src", "dest"))
        return len({tensor.transformed_desc.type for tensor in tensors if tensor}) > 1
    entry = FUNCTIONS[step.verb]
    inputs = {step.arguments[name] for name in entry.tensors if name not in entry.written}
    return not inputs.isdisjoint(writes(step))


def lifetimes(loaded: LoadedProgram) -> dict[int, Lifetime]:
    """Return when the tensors that steps write live, by their ids.

    A layer normalisation writes while it reads, so that its input lives until its last step. What
    grows from size to size has room for more.
    """
    growing = set[int]() if loaded.root is loaded else loaded.growing(loaded.root)
    ends = {first: first + len(VERBS) - 1 for first in loaded.normalizations}
    lives: dict[int, Lifetime] = {}
    for number, (born, last) in loaded.uses.items():
        if number in loaded.templates:
            size = getsize_ztensor(loaded.templates[number].transformed_desc)
            size = 1 << (size - 1).bit_length() if number in growing else size
            lives[number] = Lifetime(born, max(last, ends.get(last, 0)), size)
    return lives


class Arenas:
    """The arenas of programs that were derived from one, or of one: each serves one run at a time.

    `lives` are the lifetimes of the programs' tensors.
    """

    def __init__(self, guest: Guest, lives: Mapping[int, Lifetime]) -> None:
        self._guest = guest
        self._offsets = plan(lives)
        self.size = extent(lives, self._offsets)
        weakref.finalize(self, _kept.forget, id(self)).atexit = False

    def take(self, loaded: LoadedProgram) -> Buffers | None:
        """Return the tensors of an earlier run, or new ones; None where there is no arena."""
        buffers = _kept.take(id(self))
        if buffers is None:
            return self._make(loaded)
        try:
            self._guest.reserve(self.size)
        except Exception:  # tensors one by one may fit, and else tell why not
            return None
        if buffers.loaded is not None and buffers.loaded is not loaded:
            growing = loaded.growing(buffers.loaded) & loaded.templates.keys()
            if not self._place(buffers, loaded, growing):
                return None
        return buffers

    def put(self, buffers: Buffers) -> None:
        """Keep the tensors of a run that has ended well."""
        _kept.put(id(self), self.size, buffers)

    def _make(self, loaded: LoadedProgram) -> Buffers | None:
        memory = self._memory()
        buffers = Buffers(loaded, memory)
        placed = memory is not None and self._place(buffers, loaded, self._offsets)
        return buffers if placed else None

    def _place(self, buffers: Buffers, loaded: LoadedProgram, numbers: Iterable[int]) -> bool:
        """Place some of a program's tensors; return whether the machine takes them."""
        buffers.loaded = loaded
        assert buffers.memory is not None
        for number in numbers:
            go_on()
            template, offset = loaded.templates[number], self._offsets[number]
            desc = template.transformed_desc
            size = getsize_ztensor(desc)
            try:
                require_transformed_desc(desc, self._guest, "allochelper_ztensor_c1")
            except Refused:
                return False
            part = buffers.memory[offset : offset + size]
            buffers.tensors[number] = replace(template, buffer=part, buffer_size=size)
        return True

    def _memory(self) -> Memory | None:
        """Return an arena, None where tensors one by one are to tell why there is none."""
        allocate = self._guest.allocate
        if allocate is page_memory:
            return page_memory(self.size, zeroed=False)
        try:
            return allocate(self.size)
        except Exception:  # whose account it is decides what it raises, and will raise it again
            return None


class _Kept:
    """The arenas of all programs, the least recently used first."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # programs are freed at any moment
        self._programs: OrderedDict[int, tuple[int, list[Buffers]]] = OrderedDict()
        self.size = 0

    def take(self, program: int) -> Buffers | None:
        with self._lock:
            size, pool = self._programs.get(program, (0, ()))
            if not pool:
                return None
            self.size -= size
            return pool.pop()

    def put(self, program: int, size: int, buffers: Buffers) -> None:
        if size > MAX_KEPT_BYTES:
            return
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
_shared: WeakValueDictionary[object, Arenas] = WeakValueDictionary()


def kept_bytes() -> int:
    """Return the bytes of all arenas that are kept."""
    return _kept.size
