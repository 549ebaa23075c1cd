# SPDX-License-Identifier: Apache-2.0
"""Steps as rows of one table, and the walks over it: steps that need nothing of Python in between.

What a step of a walk does not do cleanly is left to the caller, who goes on behind it.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from nnpa_emulator import Ztensor, widened
from nnpa_emulator.interruption import go_on
from nnpa_emulator.table import MAX_WORK, Row, Table

from nnpa_network.program import ABSENT
from nnpa_network.running.plain import Run

PreparedStep: TypeAlias = Callable[[Run], bool]
"""Runs a step over the tensors it is bound to; False: nothing has been done."""
NOTHING = widened.writing()
"""Drops nothing."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A step as rows: the array that it reads, and what it writes, an array or a tensor.

    `forget` drops what is kept of the memory that it writes.
    """

    rows: Sequence[Row]
    reads: int = ABSENT
    writes: int = ABSENT
    output: Ztensor | None = None
    forget: Callable[[], None] = NOTHING

    def __call__(self, run: Run) -> bool:
        """Make the calls from Python; return whether all came out clean."""
        self.forget()
        for row in self.rows:
            go_on()
            if not row.run(run):
                return False
        if self.output is not None:
            self.output.is_transformed = True
        return True


@dataclass(frozen=True, slots=True)
class Walk:
    """Stages from `first` up to `end`, of which none or all are in the table.

    `forget` is as in `Rows`; `dead` are the values that no later stage needs.
    """

    first: int
    end: int
    table: Table | None
    forget: Callable[[], None]
    dead: Sequence[int]

    def run(self, run: Run, stage: int) -> int:
        """Run stages from one on; return the first that is left to the caller, or `end`."""
        if self.table is None:
            return stage
        self.forget()
        return self.table.run(stage, self.end, run)


def plan(prepared: Sequence[PreparedStep | None], dead: Sequence[Collection[int]]) -> list[Walk]:
    """Return the walks of a program, whose stages are bound or not.

    A walk has no more work than is done between two checks, and reads no array that it writes.
    """
    steps = [step if isinstance(step, Rows) else None for step in prepared]
    firsts, work, written = list[int](), 0, set[int]()
    for stage, step in enumerate(steps):
        cost = MAX_WORK if step is None else sum(row.work for row in step.rows)
        work += cost
        if not firsts or work > MAX_WORK or (step is not None and step.reads in written):
            firsts.append(stage)
            work, written = cost, set()
        if step is None:
            work += 1  # it is alone
        elif step.writes != ABSENT:
            written.add(step.writes)
    table, walks = Table([() if step is None else step.rows for step in steps]), list[Walk]()
    for first, end in pairwise((*firsts, len(steps))):
        some = [step for step in steps[first:end] if step is not None]
        forget = widened.writing(*(step.output.sticks for step in some if step.output is not None))
        ended = [number for numbers in dead[first:end] for number in numbers]
        walks.append(Walk(first, end, table if some else None, forget, ended))
    return walks
