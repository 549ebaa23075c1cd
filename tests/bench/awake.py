# SPDX-License-Identifier: Apache-2.0
"""Cores that never halt while rows are measured: `poe bench --awake`.

Waking a virtual core that has halted can take longer than a whole call: bare echoes of 0.5 ms were
seen to take 1.2 ms. A process of the class that runs only where nothing else wants to (sched(7),
SCHED_IDLE) keeps each core awake, for both sides of every row.
"""

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager


@contextmanager
def awake() -> Generator[None]:
    """Keep all cores of this process awake."""
    with ExitStack() as kept:
        for core in os.sched_getaffinity(0):
            process = subprocess.Popen([sys.executable, "-m", "tests.bench.awake", str(core)])
            kept.callback(process.wait)
            kept.callback(process.kill)
        yield


def main() -> None:
    """Turn on one core until killed."""
    os.sched_setaffinity(0, {int(sys.argv[1])})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    while True:
        pass


if __name__ == "__main__":
    main()
