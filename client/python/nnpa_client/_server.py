# SPDX-License-Identifier: Apache-2.0
"""A private server: a child process on a Unix socket that only this user can reach."""

import subprocess
import sys
import tempfile
from pathlib import Path

from nnpa_client.errors import TransportError

READY_SECONDS = 60.0
STOP_SECONDS = 10.0
_READY = "nnpa-server listening on "


class PrivateServer:
    """`nnpa-server` as a child; it ends when `stop` is called, and when this process dies."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="nnpa-")
        self._log = Path(self._directory.name) / "server.log"
        socket = Path(self._directory.name) / "nnpa.sock"
        command = [sys.executable, "-m", "nnpa_server", "--listen", f"unix:{socket}"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--exit-with-parent"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self.pid = self._process.pid
        self.target = self._ready_target()

    def _ready_target(self) -> str:
        """Wait for the ready line and return the address in it."""
        output = self._process.stdout
        line = output.readline().decode() if output is not None else ""
        if line.startswith(_READY):
            return line.removeprefix(_READY).strip()
        self._process.wait(STOP_SECONDS)
        tail = self._log.read_text(errors="replace").strip().splitlines()[-3:]
        code = self._process.returncode
        self.stop()
        raise TransportError(
            "UNAVAILABLE", f"the private server ended with code {code}: {' / '.join(tail)}."
        )

    def stop(self) -> None:
        """End the server and remove its socket."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._directory.cleanup()
