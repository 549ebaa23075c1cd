# SPDX-License-Identifier: Apache-2.0
"""Independent tasks on several threads, each with its own resource, such as a private server."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from typing import TypeVar

Worker = TypeVar("Worker")
Task = TypeVar("Task")
Answer = TypeVar("Answer")


def spread(
    jobs: int,
    start: Callable[[], AbstractContextManager[Worker]],
    work: Callable[[Worker, Task], Answer],
    tasks: Sequence[Task],
) -> Iterator[Answer]:
    """Yield `work` of each task, in the order of tasks, with at most `jobs` tasks at a time.

    Each thread enters `start` before its first task; all are left at the end. The error of a task
    is raised in its place, and tasks that have not begun by then are dropped.
    """
    own = threading.local()
    with ExitStack() as started, ThreadPoolExecutor(jobs) as pool:

        def do(task: Task) -> Answer:
            if not hasattr(own, "worker"):
                own.worker = started.enter_context(start())
            return work(own.worker, task)

        try:
            yield from pool.map(do, tasks)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
