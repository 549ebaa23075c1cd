# SPDX-License-Identifier: Apache-2.0
"""Work that survives the death of workers: rows are tried again, and rows that kill are isolated.

Rows whose worker died go to another worker. Rows that end two workers are halved until the row that
kills is alone; the ranges between such rows of its batch are then measured. So the measured rows
depend on the rows that kill, and on no other event.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from nnpa_tools.evaluation.rows import Rows

MAX_DEATHS = 2
"""The number of workers that may die of rows before the rows are halved or given up."""
Result = TypeVar("Result")
Given = TypeVar("Given", covariant=True)


@dataclass(frozen=True, slots=True)
class Death:
    """How a worker ended, as a clause."""

    why: str


@dataclass(frozen=True, slots=True)
class Done(Generic[Result]):
    """The result of a worker for rows."""

    rows: Rows
    result: Result


@dataclass(frozen=True, slots=True)
class Lost:
    """Rows that ended every worker that had them."""

    rows: Rows
    why: str


class Workers(Protocol[Given]):
    """Work on rows in any order; a worker's death concerns its own rows only."""

    @property
    def places(self) -> int:
        """The number of ranges that may be submitted before the next answer is taken."""
        ...

    def submit(self, rows: Rows) -> None:
        """Have a worker work on rows."""
        ...

    def next(self) -> tuple[Rows, Given | Death]:
        """Wait for an answer to rows that were submitted."""
        ...


@dataclass(slots=True)
class _Search:
    """A search for rows that kill, by halving; the results of halves are not used."""

    rows: Rows
    open: int = 0
    killers: dict[int, str] = field(default_factory=dict[int, str])


@dataclass(frozen=True, slots=True)
class _Attempt:
    """Rows for a worker, the deaths they caused, and the search they are a half of."""

    rows: Rows
    deaths: int = 0
    search: _Search | None = None
    searched: bool = False


class Survival(Generic[Result]):
    """Submits batches of rows to workers until each is done or lost."""

    def __init__(self, workers: Workers[Result], batches: Sequence[Rows]) -> None:
        self._workers = workers
        self._waiting = deque(map(_Attempt, batches))
        self._running: dict[Rows, _Attempt] = {}

    def outcomes(self) -> Iterator[Done[Result] | Lost]:
        """Yield the outcomes of rows as they become known."""
        while self._waiting or self._running:
            while self._waiting and len(self._running) < self._workers.places:
                attempt = self._waiting.popleft()
                self._running[attempt.rows] = attempt
                self._workers.submit(attempt.rows)
            rows, answer = self._workers.next()
            attempt = self._running.pop(rows)
            if isinstance(answer, Death):
                yield from self._after_death(attempt, answer.why)
            elif attempt.search is None:
                yield Done(rows, answer)
            else:
                yield from self._close(attempt.search)

    def _after_death(self, attempt: _Attempt, why: str) -> Iterator[Lost]:
        rows, search = attempt.rows, attempt.search
        if attempt.deaths + 1 < MAX_DEATHS:
            self._waiting.appendleft(replace(attempt, deaths=attempt.deaths + 1))
        elif search is not None:
            if len(rows) == 1:
                search.killers[rows.first] = why
                yield from self._close(search)
            else:
                search.open += 1  # two halves replace one
                self._halve(rows, search)
        elif attempt.searched or len(rows) == 1:
            yield Lost(rows, why)
        else:
            search = _Search(rows, open=2)
            self._halve(rows, search)

    def _halve(self, rows: Rows, search: _Search) -> None:
        self._waiting.extendleft(_Attempt(half, search=search) for half in rows.halves())

    def _close(self, search: _Search) -> Iterator[Lost]:
        """Count a half as searched; after the last, measure the ranges between killers."""
        search.open -= 1
        if search.open:
            return
        for row, why in search.killers.items():
            yield Lost(Rows(row, row + 1), why)
        rest = search.rows.without(list(search.killers))
        self._waiting.extendleft(_Attempt(rows, searched=True) for rows in rest)
