# SPDX-License-Identifier: Apache-2.0
"""Independent work by several threads, each with what it works with: a private server, say."""

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
    """Yield `work` of each task, in the order of tasks, by at most `jobs` at a time.

    Each thread enters `start` before its first task; all are left at the end. What a task raises is
    raised in its place; what has not begun by then is not done.
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
