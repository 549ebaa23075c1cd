# SPDX-License-Identifier: Apache-2.0
"""The division of rows into batches, and the fate of rows whose workers die."""

from collections import deque
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from nnpa_tools.evaluation.rows import Rows
from nnpa_tools.evaluation.survival import MAX_DEATHS, Death, Done, Lost, Survival


@given(st.integers(0, 99), st.integers(1, 500), st.integers(1, 64))
def test_batches_begin_at_multiples_of_their_size(first: int, count: int, size: int) -> None:
    """Batches cover every row once, in order; only the first may begin inside of one."""
    batches = list(Rows(first, first + count).batches(size))
    rows = [row for batch in batches for row in range(batch.first, batch.end)]
    assert rows == [*range(first, first + count)]
    assert all(batch.first % size == 0 for batch in batches[1:])
    assert all(batch.first // size == (batch.end - 1) // size for batch in batches)


@dataclass
class Mortal:
    """Workers that die of `killers`, and in attempts whose numbers are `accidents`."""

    killers: set[int]
    accidents: set[int] = field(default_factory=set[int])
    places: int = 3
    attempts: int = 0
    waiting: deque[Rows] = field(default_factory=deque[Rows])

    def submit(self, rows: Rows) -> None:
        """Queue rows."""
        assert len(self.waiting) < self.places
        self.waiting.append(rows)

    def next(self) -> tuple[Rows, list[int] | Death]:
        """Answer the rows that came last, so that answers are out of order."""
        rows = self.waiting.pop()
        self.attempts += 1
        numbers = [*range(rows.first, rows.end)]
        if self.attempts in self.accidents:
            return rows, Death("an accident")
        if killer := next((row for row in numbers if row in self.killers), None):
            return rows, Death(f"row {killer}")
        return rows, numbers


def outcome(workers: Mortal, rows: int, size: int) -> tuple[list[Rows], list[Lost]]:
    """Return the measured batches and the lost rows, each sorted."""
    outcomes = list(Survival(workers, list(Rows(0, rows).batches(size))).outcomes())
    done = [o.rows for o in outcomes if isinstance(o, Done)]
    lost = [o for o in outcomes if isinstance(o, Lost)]
    return sorted(done), sorted(lost, key=lambda loss: loss.rows)


@given(
    st.integers(1, 200),
    st.integers(1, 32),
    st.sets(st.integers(1, 199), max_size=4),
    st.sets(st.integers(1, 60), max_size=6),
)
def test_exactly_the_rows_that_kill_are_lost(
    rows: int, size: int, killers: set[int], accidents: set[int]
) -> None:
    """Exactly the killers are lost, and the measured batches depend on them alone."""
    workers = Mortal(killers, accidents if len(accidents) < MAX_DEATHS else set())
    done, lost = outcome(workers, rows, size)
    expected_done, expected_lost = outcome(Mortal(killers), rows, size)
    assert [(each.rows.first, each.why) for each in expected_lost] == [
        (row, f"row {row}") for row in sorted(killers) if row < rows
    ]
    assert done == expected_done
    assert [each.rows for each in lost] == [each.rows for each in expected_lost]
    covered = [row for part in done for row in range(part.first, part.end)]
    assert sorted([*covered, *(each.rows.first for each in lost)]) == [*range(rows)]


def test_accidents_lose_nothing() -> None:
    """A batch whose workers are killed from outside is measured whole, also after a search."""
    accidents = {1, 2}
    done, lost = outcome(Mortal(set(), accidents, places=1), 8, 8)
    assert (done, lost) == ([Rows(0, 8)], [])


def test_rows_that_only_kill_together_are_lost_together() -> None:
    """Rows that kill workers only together are given up as a group."""

    @dataclass
    class Heavy(Mortal):
        def next(self) -> tuple[Rows, list[int] | Death]:
            rows, answer = super().next()
            return rows, Death("no memory") if len(rows) > 4 else answer

    done, lost = outcome(Heavy(set()), 16, 8)
    assert done == []
    assert [loss.rows for loss in lost] == [Rows(0, 8), Rows(8, 16)]
