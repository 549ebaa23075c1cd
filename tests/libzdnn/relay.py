# SPDX-License-Identifier: Apache-2.0
"""A Unix socket before another one, which counts what clients send and servers answer."""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

_PIECE = 1 << 18


class Relay:
    """A relay to the socket `target`; `sent` and `answered` are bytes since its start."""

    def __init__(self, path: Path, target: str) -> None:
        self.address = f"unix:{path}"
        self.sent = 0
        self.answered = 0
        self._target = target.removeprefix("unix:")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more clients."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self._target)
            back = threading.Thread(
                target=self._pump, args=(server, client, "answered"), daemon=True
            )
            back.start()
            self._pump(client, server, "sent")
            back.join()

    def _pump(self, source: socket.socket, target: socket.socket, counter: str) -> None:
        with suppress(OSError):
            while piece := source.recv(_PIECE):
                setattr(self, counter, getattr(self, counter) + len(piece))
                target.sendall(piece)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@contextmanager
def relaying(path: Path, target: str) -> Generator[Relay]:
    """Relay on a socket of its own while the block runs."""
    relay = Relay(path, target)
    try:
        yield relay
    finally:
        relay.close()
