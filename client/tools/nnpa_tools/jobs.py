# SPDX-License-Identifier: Apache-2.0
"""Independent pieces of work on a Ray cluster: runs under faults, traces, files of vectors.

Each worker has a private server on its own node. The node has the programs; traces, vectors and
answers travel by value.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from nnpa_tools.evaluation.cluster import RayCluster, Worker
from nnpa_tools.evaluation.rows import Rows
from nnpa_tools.evaluation.survival import MAX_DEATHS, Done, Lost, Survival

Progress = Callable[[int, int], None]
"""Is called with the number of pieces of work that are done, and of all pieces."""
Task = TypeVar("Task")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray cluster by its address; `jobs` pieces at a time, None: two for each CPU."""

    address: str
    jobs: int | None

    def answers(
        self,
        tasks: Sequence[Task],
        piece: Callable[[Task], Any],
        begin: Callable[[], Worker[bytes]],
        lost: list[str],
        title: Callable[[Task], str] = str,
        progress: Progress | None = None,
    ) -> Iterator[tuple[Task, bytes]]:
        """Yield each task in order with its answer.

        `begin` returns a worker on its node, whose argument for a task is the task's `piece`. The
        `title` of a task that ended its workers is added to `lost`, with the reason. Raises
        ValueError for a cluster or node that cannot do the work, or a `TransportError`.
        """
        waiting, first = dict[int, Done[bytes] | Lost](), 0
        pieces = [Rows(number, number + 1) for number in range(len(tasks))]
        if not pieces:
            return

        def piece_of(rows: Rows) -> Any:
            return piece(tasks[rows.first])

        with RayCluster(self.address, self.jobs, begin, piece_of) as cluster:
            for done, outcome in enumerate(Survival(cluster, pieces).outcomes(), 1):
                waiting[outcome.rows.first] = outcome
                if progress is not None:
                    progress(done, len(pieces))
                while first in waiting:
                    task, settled = tasks[first], waiting.pop(first)
                    first += 1
                    if isinstance(settled, Done):
                        yield task, settled.result
                    else:
                        why = f"it ended {MAX_DEATHS} workers, the last by {settled.why}"
                        lost.append(f"{title(task)}: {why}")
