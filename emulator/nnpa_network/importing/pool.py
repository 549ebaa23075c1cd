# SPDX-License-Identifier: Apache-2.0
"""The programs of a model's last sizes, and lines that lead from them to further sizes."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from nnpa_emulator import Guest, Ztensor

from nnpa_network.importing.lines import POINTS, Line
from nnpa_network.importing.shapes import Concrete
from nnpa_network.lowering.options import ImportOptions
from nnpa_network.program import Array, Program
from nnpa_network.running.executor import ProgramRunner

Runner = TypeVar("Runner", bound=ProgramRunner)

_MAX_LINES = 4
_STEP_BYTES = 4096  # measured: a step with its values, as program and as prepared call


@dataclass(frozen=True, slots=True)
class _Entry(Generic[Runner]):
    """A runner and the bytes that it has beside what it shares with the one before it.

    `is_lowered` is False where its program was derived.
    """

    concrete: Concrete
    runner: Runner
    nbytes: int
    is_lowered: bool


@dataclass(slots=True)
class Pool(Generic[Runner]):
    """Runners by the shapes of their inputs, bounded by number and bytes. Callers lock.

    `dropped` is how many were dropped for others whose programs would be lowered anew.
    """

    guest: Guest
    options: ImportOptions
    dropped: int = 0
    _entries: "OrderedDict[Concrete, _Entry[Runner]]" = field(default_factory=OrderedDict)
    _lowered: "deque[_Entry[Runner]]" = field(default_factory=lambda: deque(maxlen=POINTS))
    _lines: "deque[tuple[Line, tuple[_Entry[Runner], ...]]]" = field(
        default_factory=lambda: deque(maxlen=_MAX_LINES)
    )

    def find(self, concrete: Concrete) -> Runner | None:
        """Return the runner for inputs of these shapes, None if there is none."""
        if concrete not in self._entries:
            return None
        self._entries.move_to_end(concrete)
        return self._entries[concrete].runner

    def derive(self, concrete: Concrete) -> tuple[Program, tuple[Runner, ...]] | None:
        """Return the program for these shapes and the runners it is made from, None to lower."""
        for line, entries in reversed(self._lines):
            if (program := line.program(concrete)) is not None:
                return program, tuple(entry.runner for entry in entries)
        return None

    def keep(self, concrete: Concrete, runner: Runner, *, lowered: bool) -> bool:
        """Keep a runner; tell whether others, the least recently used, were dropped for it."""
        entry = _Entry(concrete, runner, self._own_bytes(runner.program), lowered)
        self._entries[concrete] = entry
        if lowered and "further-sizes" in self.options.shortcuts:
            self._lowered.append(entry)
            self._draw()
        count = len(self._entries)
        while len(self._entries) > self.options.max_programs or (
            len(self._entries) > 1 and self.nbytes > self.options.max_program_bytes
        ):
            _, old = self._entries.popitem(last=False)
            self.dropped += old.is_lowered
        return len(self._entries) < count

    @property
    def nbytes(self) -> int:
        """Bytes of all programs, without constants that several of them have."""
        return sum({id(entry): entry.nbytes for entry in self._all()}.values())

    def programs(self) -> Iterator[Program]:
        """Yield the programs that are kept, those of lines too."""
        return (entry.runner.program for entry in self._all())

    def _all(self) -> "Iterator[_Entry[Runner]]":
        yield from self._entries.values()
        yield from self._lowered
        for _, entries in self._lines:
            yield from entries

    def _own_bytes(self, program: Program) -> int:
        newest = next(reversed(self._entries.values()), None)
        shared = program if newest is None else newest.runner.program
        known = {id(constant) for constant in shared.constants.values()}
        own = [_bytes(each) for each in program.constants.values() if id(each) not in known]
        return _STEP_BYTES * len(program.steps) + sum(own)

    def _draw(self) -> None:
        """Add the line through the last lowered programs, if there is one."""
        if len(self._lowered) < POINTS:
            return
        points = [(entry.concrete, entry.runner.program) for entry in self._lowered]
        try:
            line = Line(points, self.guest, self.options.max_bytes)
        except (ValueError, TypeError, LookupError):  # or parts that do not fit together
            return
        self._lines.append((line, tuple(self._lowered)))


def _bytes(constant: Array | Ztensor) -> int:
    return (constant.sticks if isinstance(constant, Ztensor) else constant).nbytes
