# SPDX-License-Identifier: Apache-2.0
"""A server under attack: started from an executable of any build, reached on loopback, ended."""

import hashlib
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

OWN_SERVER = Path(sys.executable).with_name("nnpa-server")
"""The server of this tree's environment."""
READY = "nnpa-server listening on "
START_TIMEOUT = 120.0
POLL = 0.01
LIMITS = ("--max-sessions", "4", "--max-session-bytes", "256MiB", "--drain-timeout", "2s")
"""Small limits: what all sessions together may take is 1 GiB."""
SESSION_BYTES, SESSIONS = 256 << 20, 4
DRAIN_TIMEOUT = 2.0


class NotStartedError(Exception):
    """The server did not start; the text is the end of its log."""


class Server:
    """One server process with its children, on TCP and on a Unix socket.

    `tokens` are the names of those that it asks for, `descriptors` how many files it may open.
    Its log is a file, unless `stderr` is a descriptor.
    """

    def __init__(
        self,
        executable: Path,
        folder: Path,
        *flags: str,
        tokens: Sequence[str] = (),
        descriptors: int = 0,
        stderr: int | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.log = folder, folder / "server.log"
        self.tokens = {name: secrets.token_urlsafe(32) for name in tokens}
        self.socket = folder / "nnpa.sock"
        command = [str(executable), "--listen", "127.0.0.1:0", "--listen", f"unix:{self.socket}"]
        command += [*LIMITS, *self._token_flags(), *flags]
        if descriptors:
            command = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *command]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log if stderr is None else stderr,
                start_new_session=True,
            )
        self.pid = self.process.pid
        self.address = self._first_address()

    def _token_flags(self) -> list[str]:
        if not self.tokens:
            return []
        path = self.folder / "tokens.toml"
        tables = (
            f'[tokens.{name}]\nsha256 = "{hashlib.sha256(token.encode()).hexdigest()}"\n'
            for name, token in self.tokens.items()
        )
        path.write_text("\n".join(tables), encoding="utf-8")
        return ["--tokens", str(path)]

    def _first_address(self) -> str:
        """Return the TCP address of the first ready line, when all have come."""
        assert self.process.stdout is not None
        watchdog = threading.Timer(START_TIMEOUT, self.process.kill)
        watchdog.start()
        lines = [self.process.stdout.readline().decode() for _ in range(2)]
        watchdog.cancel()
        if not all(line.startswith(READY) for line in lines):
            self.kill()
            raise NotStartedError(self.log_text()[-2000:] or "nothing in the log")
        return lines[0].split()[-1]

    def log_text(self) -> str:
        """Return what the server has logged so far."""
        return self.log.read_text(errors="replace")

    def is_alive(self) -> bool:
        """Tell whether the process runs."""
        return self.process.poll() is None

    def end(self, timeout: float) -> float | None:
        """Send SIGTERM; return the seconds until the end, None if they are too many."""
        self.process.terminate()
        return self.wait(timeout)

    def wait(self, timeout: float) -> float | None:
        """Return the seconds until the process ends, None if they are too many."""
        begin = time.monotonic()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout)
            return time.monotonic() - begin
        return None

    def kill(self) -> None:
        """Kill the process and all that it started."""
        family: list[psutil.Process] = []
        with suppress(psutil.Error):
            family = psutil.Process(self.pid).children(recursive=True)
        self.process.kill()
        for child in family:
            with suppress(psutil.Error):
                child.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()


@cache
def help_text(executable: Path) -> str:
    """Return what `--help` prints: which flags a build has."""
    done = subprocess.run(
        [str(executable), "--help"],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ),
    )
    return done.stdout
