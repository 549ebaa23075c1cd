# SPDX-License-Identifier: Apache-2.0
"""Real server processes for tests: started, spoken to, ended."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from nnpa_server.config import SHORTCUTS

PLAIN = frozenset(SHORTCUTS) if os.environ.get("NNPA_TEST_PLAIN") else frozenset[str]()
"""The shortcuts that servers of these tests go without: all in the plain stage."""
PLAIN_FLAGS = ("--plain",) if PLAIN else ()
LOG_FLAGS = ("--access-log",)
READY = "nnpa-server listening on "
PATIENCE = 60.0
_OBJECT = re.compile(r"nnpa-([0-9]+)-")
NO_ENV: Mapping[str, str] = {}


def wait_until(holds: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Wait until a condition holds; fail when the time is over."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)


def orphans() -> set[str]:
    """Return the names of clients' objects of shared memory whose clients have ended."""
    named = ((name, _OBJECT.search(name)) for name in os.listdir("/dev/shm"))  # noqa: PTH208
    return {name for name, of in named if of and not Path(f"/proc/{of[1]}").exists()}


class ServerProcess:
    """`python -m nnpa_server` with flags; `addresses` come from its ready lines."""

    def __init__(
        self,
        *flags: str,
        log: Path,
        listeners: int = 1,
        env: Mapping[str, str] = NO_ENV,
        log_flags: Sequence[str] = LOG_FLAGS,
        max_files: int = 0,
    ) -> None:
        self.log = log
        limit = ("sh", "-c", 'ulimit -n "$0" && exec "$@"', str(max_files)) if max_files else ()
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                [*limit, sys.executable, "-m", "nnpa_server", *PLAIN_FLAGS, *log_flags, *flags],
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **env},
            )
        assert self.process.stdout is not None
        self.stdout = self.process.stdout
        lines = [self.stdout.readline().decode() for _ in range(listeners)]
        assert all(line.startswith(READY) for line in lines), (lines, self.log_text())
        self.addresses = [line.split()[-1] for line in lines]
        self.address = self.addresses[0]

    def log_text(self) -> str:
        """Return what the server has logged so far."""
        return self.log.read_text(errors="replace")

    def stop(self) -> int:
        """Ask the server to end, and return its exit code."""
        self.process.terminate()
        return self.wait()

    def wait(self) -> int:
        """Wait for the server's end, and return its exit code."""
        code = self.process.wait(PATIENCE)
        self.stdout.close()
        return code


@contextmanager
def serving(
    tmp_path: Path,
    *flags: str,
    listeners: int = 1,
    env: Mapping[str, str] = NO_ENV,
    log_flags: Sequence[str] = LOG_FLAGS,
    max_files: int = 0,
) -> Generator[ServerProcess]:
    """Run a server process; it is killed if the test did not end it.

    With `max_files` it may have that number of file descriptors.
    """
    server = ServerProcess(
        *flags,
        log=tmp_path / "server.log",
        listeners=listeners,
        env=env,
        log_flags=log_flags,
        max_files=max_files,
    )
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.wait()
