# SPDX-License-Identifier: Apache-2.0
"""One private server for several processes: the owner starts it, the others ask for its address.

The owner listens on a Unix socket in a directory of this user. It answers each connection with one
line of JSON, {"target", "log"} or {"error"}, and starts the server for the first one.
"""

import json
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nnpa_client._server.private_server import Place, PrivateServer

_START_SECONDS = 120.0
_ASK_SECONDS = 10.0


class SharedServer:
    """Starts the server for the first process that asks; `door` is the path that `ask` takes."""

    def __init__(self, start: "Callable[[], PrivateServer]") -> None:
        self._start = start
        self._server: PrivateServer | None = None
        self._directory = tempfile.TemporaryDirectory(prefix="nnpa-")
        self.door = f"{self._directory.name}/door"
        self._listener = _unix_socket()
        self._listener.bind(self.door)
        self._listener.listen(128)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._answer_all, name="nnpa-server", daemon=True)
        self._thread.start()

    def _answer_all(self) -> None:
        """Answer connections one after the other; ignore a process that ended meanwhile."""
        while not self._ended.is_set():
            asker, _ = self._listener.accept()
            asker.settimeout(_ASK_SECONDS)
            with asker, suppress(OSError):
                if asker.recv(1) == b"?":
                    asker.sendall(self._answer().encode())

    def _answer(self) -> str:
        try:
            if self._server is None:
                self._server = self._start()
        except Exception as error:
            return json.dumps({"error": str(error)})
        return json.dumps({"target": self._server.target, "log": str(self._server.log)})

    def stop(self) -> None:
        """End the server if it was started."""
        self._ended.set()
        with _unix_socket() as last:
            last.connect(self.door)
        self._thread.join()
        self._listener.close()
        if self._server is not None:
            self._server.stop()
        self._directory.cleanup()


def ask(door: str) -> "Place":
    """Return the address and the log of the server of a `SharedServer`.

    Raises OSError if nothing listens at `door`, as on another host, and RuntimeError with the
    reason if the server did not start.
    """
    from nnpa_client._server.private_server import Place  # with gRPC: not for each run of pytest

    with _unix_socket() as owner:
        owner.settimeout(_START_SECONDS)
        owner.connect(door)
        owner.sendall(b"?")
        with owner.makefile("rb") as answer:
            facts = json.load(answer)
    if "error" in facts:
        raise RuntimeError(facts["error"])
    return Place(facts["target"], Path(facts["log"]))


def _unix_socket() -> socket.socket:
    if sys.platform == "win32":
        raise OSError("a Unix socket needs Linux or macOS")
    return socket.socket(socket.AF_UNIX)
