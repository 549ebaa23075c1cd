# SPDX-License-Identifier: Apache-2.0
"""Independent work by several threads, each with a resource of its own."""

import threading
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from nnpa_tools.faults.workers import spread

JOBS, TASKS = 3, range(20)


class Bench:
    """Resources of workers, counted as begun, ended, and in use."""

    def __init__(self) -> None:
        self.begun = self.ended = 0
        self._meeting = threading.Barrier(JOBS)

    @contextmanager
    def start(self) -> Generator[list[int]]:
        """Yield a list of tasks to the thread that uses it."""
        self.begun += 1
        done: list[int] = []
        try:
            yield done
        finally:
            self.ended += 1

    def work(self, done: list[int], task: int) -> tuple[int, int]:
        """Meet the other workers at the first task; return the task squared, and the thread."""
        if not done:
            self._meeting.wait(30)
        done.append(task)
        return task * task, threading.get_ident()


def test_answers_come_in_order_from_all_workers() -> None:
    """Every task is done once, by JOBS threads at a time, and each resource that began ends."""
    bench = Bench()
    answers = list(spread(JOBS, bench.start, bench.work, TASKS))
    assert [square for square, _thread in answers] == [task * task for task in TASKS]
    assert len({thread for _square, thread in answers}) == JOBS
    assert (bench.begun, bench.ended) == (JOBS, JOBS)


def test_a_task_s_exception_comes_in_its_place() -> None:
    """Earlier answers come first, tasks that did not begin are dropped, and workers end."""
    bench, begun = Bench(), list[int]()
    broken = 5

    def work(_done: list[int], task: int) -> int:
        begun.append(task)
        if task == broken:
            raise ValueError(f"task {task}")
        return task

    answers = spread(1, bench.start, work, TASKS)
    assert [next(answers) for _ in range(broken)] == [*range(broken)]
    with pytest.raises(ValueError, match="task 5"):
        next(answers)
    assert bench.begun == bench.ended == 1
    assert begun[: broken + 1] == [*range(broken + 1)]
