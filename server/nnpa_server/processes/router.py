# SPDX-License-Identifier: Apache-2.0
"""Run Envoy as the router: find its addresses, and end it with this process."""

import http.client
import json
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from nnpa_server.config import Config, join_address
from nnpa_server.processes import envoy
from nnpa_server.rpc.listening import CannotListen
from nnpa_server.sandbox.kernel import PR_SET_PDEATHSIG, control_process

_START_SECONDS = 30.0
_ASK_SECONDS = 5.0


class _Administration(http.client.HTTPConnection):
    """An HTTP connection over the Unix socket of Envoy's administration."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_ASK_SECONDS)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_ASK_SECONDS)
        self.sock.connect(self._path)


class Router:
    """A running Envoy in front of `listeners`; raises CannotListen for an address in use."""

    def __init__(
        self, config: Config, listeners: Sequence[envoy.Listener], folder: Path, program: str
    ) -> None:
        self._admin = f"{folder}/admin.sock"
        configuration = envoy.bootstrap(
            listeners, f"unix:{self._admin}", config.max_connections, config.tls
        )
        file = folder / "envoy.json"
        file.write_text(json.dumps(configuration))
        threads = max(1, config.processes // 2)
        command = [program, "-c", str(file), "--concurrency", str(threads),
                   "--disable-hot-restart", "--log-level", "error"]  # fmt: skip
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_end_with_parent
        )
        self._listeners = listeners
        try:
            self.addresses = self._wait()
        except BaseException:
            self.stop()
            raise

    def _wait(self) -> dict[str, str]:
        """Wait until Envoy listens; return its addresses by listener, with the actual ports."""
        until = time.monotonic() + _START_SECONDS
        names = {listener.name for listener in self._listeners}
        while time.monotonic() < until and self._process.poll() is None:
            with suppress(OSError, http.client.HTTPException):
                if self._ask("/ready").strip() == b"LIVE":
                    addresses = _addresses(json.loads(self._ask("/listeners?format=json")))
                    if names <= addresses.keys():
                        return addresses
            time.sleep(0.02)
        targets = ", ".join(listener.address for listener in self._listeners)
        raise CannotListen(f"cannot listen on {targets}: Envoy says above what it cannot use")

    def _ask(self, path: str) -> bytes:
        connection = _Administration(self._admin)
        try:
            connection.request("GET", path)
            return connection.getresponse().read()
        finally:
            connection.close()

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended by itself."""
        return self._process.poll() is not None

    def stop(self) -> None:
        """End it, and remove its sockets."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for listener in self._listeners:
            if listener.address.startswith("unix:"):
                Path(listener.address.removeprefix("unix:")).unlink(missing_ok=True)


def _end_with_parent() -> None:
    control_process(PR_SET_PDEATHSIG, int(signal.SIGKILL))


def _addresses(answer: Any) -> dict[str, str]:
    """Return Envoy's addresses by listener, from its administration."""
    addresses: dict[str, str] = {}
    for status in answer.get("listener_statuses", ()):
        address = status["local_address"]
        if "pipe" in address:
            addresses[status["name"]] = f"unix:{address['pipe']['path']}"
        else:
            place = address["socket_address"]
            addresses[status["name"]] = join_address(place["address"], place["port_value"])
    return addresses
