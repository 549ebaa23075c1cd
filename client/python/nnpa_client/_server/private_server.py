# SPDX-License-Identifier: Apache-2.0
"""A private server: a child process, by default on a Unix socket that only this user can reach."""

import os
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from nnpa_client.errors import TransportError

STOP_SECONDS = 10.0
_READY = "nnpa-server listening on "
_REASON = "nnpa-server: "  # in front of the line that says why it did not start
_ANOTHER_SERVER = "Or use a server that runs already: connect('host:port')."


class Place(NamedTuple):
    """A server's address, and the file of its log if this process can read it."""

    target: str
    log: Path | None


class PrivateServer:
    """`nnpa-server` as a child process, until `stop`, the end of this object or of this process.

    `listen` and `flags` are arguments of the command; without `listen` the server has a Unix
    socket. `target` is its address, `log` the file of its log, removed when it ends. Needs Linux.
    """

    def __init__(self, listen: str | None = None, flags: Sequence[str] = ()) -> None:
        _require_linux()
        directory = tempfile.TemporaryDirectory(prefix="nnpa-")
        self.log = Path(directory.name) / "server.log"
        address = listen or f"unix:{Path(directory.name) / 'nnpa.sock'}"
        command = [sys.executable, "-m", "nnpa_server", "--listen", address, *flags]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--exit-with-parent"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._end = weakref.finalize(self, _end, self._process, directory, os.getpid())
        self.pid = self._process.pid
        self.target = self._ready_target()

    def _ready_target(self) -> str:
        """Wait until the server listens, and return the address that it prints."""
        output = self._process.stdout
        line = output.readline().decode() if output is not None else ""
        if line.startswith(_READY):
            return line.removeprefix(_READY).strip()
        self._process.wait(STOP_SECONDS)
        tail = self.log.read_text(errors="replace").strip().splitlines()[-3:] or ["it said nothing"]
        code = self._process.returncode
        self.stop()
        if tail[-1].startswith(_REASON):
            text = f"no private server could be started: {tail[-1].removeprefix(_REASON)}"
        else:
            text = f"the private server ended with code {code}: {' / '.join(tail)}"
        raise TransportError("UNAVAILABLE", text, advice=_ANOTHER_SERVER)

    def stop(self) -> None:
        """End the server and remove its socket. May be repeated."""
        self._end()


@contextmanager
def server_at(target: str | None, flags: Sequence[str] = ()) -> Generator[str]:
    """Yield the address of a server; without a target, of a private one for the block."""
    if target is not None:
        yield target
        return
    server = PrivateServer(flags=flags)
    try:
        yield server.target
    finally:
        server.stop()


def _require_linux() -> None:
    if sys.platform != "linux":
        text = f"no private server could be started: it needs Linux, this is {sys.platform}."
        raise TransportError("UNAVAILABLE", text, advice=_ANOTHER_SERVER)


def _end(
    process: subprocess.Popen[bytes], directory: tempfile.TemporaryDirectory[str], owner: int
) -> None:
    """End a server that this process started; a forked copy of this process leaves it alone."""
    if os.getpid() != owner:
        return
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    directory.cleanup()
