# SPDX-License-Identifier: Apache-2.0
"""Independent pieces of work on a Ray cluster: runs under faults, traces, files of vectors.

Each worker has a private server on its own node. The node has the programs; traces, vectors and
answers travel by value.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from nnpa_tools.evaluation.cluster import RayCluster, Worker
from nnpa_tools.evaluation.rows import Rows
from nnpa_tools.evaluation.survival import MAX_DEATHS, Done, Survival

Progress = Callable[[int, int], None]
"""Is called with the number of pieces of work that are done, and of all pieces."""


class Work(Protocol):
    """Pieces of work by number, and the worker that does them on a node."""

    def __len__(self) -> int: ...

    def piece(self, number: int) -> Any:
        """Return the argument of a worker."""
        ...

    def begin(self) -> Worker[bytes]:
        """Return a worker on its node; raise `ClusterError`."""
        ...


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray cluster by its address; `jobs` pieces at a time, None: two for each CPU."""

    address: str
    jobs: int | None

    def answers(self, work: Work, progress: Progress | None = None) -> Iterator[bytes | str]:
        """Yield the answer to each piece in order, or the reason why it ended its workers.

        Raises ValueError for a cluster or node that cannot do the work, or a `TransportError`.
        """
        waiting, first = dict[int, bytes | str](), 0
        pieces = [Rows(number, number + 1) for number in range(len(work))]
        if not pieces:
            return

        def piece(rows: Rows) -> Any:
            return work.piece(rows.first)

        with RayCluster(self.address, self.jobs, work.begin, piece) as cluster:
            for done, outcome in enumerate(Survival(cluster, pieces).outcomes(), 1):
                why = f"it ended {MAX_DEATHS} workers, the last by "
                waiting[outcome.rows.first] = (
                    outcome.result if isinstance(outcome, Done) else why + outcome.why
                )
                if progress is not None:
                    progress(done, len(pieces))
                while first in waiting:
                    yield waiting.pop(first)
                    first += 1
