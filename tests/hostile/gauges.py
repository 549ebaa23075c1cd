# SPDX-License-Identifier: Apache-2.0
"""Resources of a server and its children: memory, processors, threads, descriptors, objects."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import psutil

MIB = 1 << 20
PERIOD = 0.2
MAX_MEMORY = 6 << 30
"""Bytes at which a server is killed, so that an attack does not take the machine."""
QUIET_SHARE = 0.1
LOOK_SECONDS = 0.05
T = TypeVar("T")


def family(pid: int) -> list[psutil.Process]:
    """Return a process and all its descendants; nothing when it is gone."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def _sum(pid: int, measure: Callable[[psutil.Process], int]) -> int:
    total = 0
    for process in family(pid):
        with suppress(psutil.Error, OSError):
            total += measure(process)
    return total


def _resident_bytes(process: psutil.Process, *kinds: str) -> int:
    """Return the proportional set size of some kinds of pages. Source: Linux, proc.rst."""
    lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines[1:])
    if not fields:  # a zombie
        return 0
    return sum(int(fields[kind].split()[0]) << 10 for kind in kinds)


def _shared_objects(process: psutil.Process) -> int:
    files = Path(f"/proc/{process.pid}/fd").iterdir()
    return sum(str(file.readlink()).startswith("/dev/shm/") for file in files)


def memory(pid: int, *kinds: str) -> int:
    """Return the resident bytes of a family, of some kinds or all; a shared page counts once.

    Kinds are fields of smaps_rollup, such as Pss_Anon.
    """
    return _sum(pid, lambda process: _resident_bytes(process, *(kinds or ("Pss",))))


def own_memory(pid: int) -> int:
    """Return the resident bytes of a process without its children, and without files' pages.

    Its share of files' pages depends on how many workers map the same libraries at the moment.
    """
    with suppress(psutil.Error, OSError):
        return _resident_bytes(psutil.Process(pid), "Pss_Anon", "Pss_Shmem")
    return 0


@dataclass(frozen=True)
class Gauges:
    """Resources of a family at one moment; `shared` counts the open objects of /dev/shm."""

    memory: int
    threads: int
    descriptors: int
    shared: int

    @classmethod
    def read(cls, pid: int) -> "Gauges":
        """Read all gauges."""
        return cls(
            memory(pid),
            _sum(pid, lambda process: process.num_threads()),
            _sum(pid, lambda process: process.num_fds()),
            _sum(pid, _shared_objects),
        )

    def to_json(self) -> dict[str, int]:
        """Return the gauges by name."""
        return asdict(self)


def runnable(pid: int, seconds: float) -> float:
    """Return how many threads of a family would run, on average, if they had a processor each."""
    counts: list[int] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        counts.append(_sum(pid, _runnable_threads))
        time.sleep(LOOK_SECONDS)
    return sum(counts) / max(1, len(counts))


def _runnable_threads(process: psutil.Process) -> int:
    count = 0
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        with suppress(OSError):
            count += (task / "stat").read_bytes().rpartition(b")")[2].split()[0] == b"R"
    return count


def wait_until_quiet(pid: int, timeout: float, share: float = QUIET_SHARE) -> bool:
    """Wait until a family's running threads are below a share of one; return whether they are."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if runnable(pid, 1.0) < share:
            return True
    return False


class MemorySampler:
    """Notes the most memory of a family while the context lasts, and kills it above a ceiling."""

    def __init__(self, pid: int, ceiling: int = MAX_MEMORY) -> None:
        self.pid, self.ceiling = pid, ceiling
        self.peak = 0
        self.was_killed = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "MemorySampler":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(PERIOD):
            self.peak = max(self.peak, now := memory(self.pid))
            if now > self.ceiling:
                self.was_killed = True
                for process in family(self.pid):
                    with suppress(psutil.Error):
                        process.kill()
                return
