# SPDX-License-Identifier: Apache-2.0
"""HTTP for a bounded number of clients, in threads of its own."""

import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeAlias

TIMEOUT = 5.0  # seconds that a client may be silent

Request: TypeAlias = socket.socket | tuple[bytes, socket.socket]
"""What socketserver calls a request: over UDP it is a datagram."""


class Endpoint(ThreadingHTTPServer):
    """Serves HTTP to at most `max_clients`: one more ends the oldest of the caller with the most.

    A caller is an address until `know` names it: silent connections end none of a caller that
    has shown a token, nor do those of a caller that has more.
    `start` begins, with `tick` called twice a second in the endpoint's thread; `close` ends.
    Raises OSError where host and port cannot be had; port 0 picks one.
    """

    request_queue_size = 128

    def __init__(
        self,
        host: str,
        port: int,
        handler: type[BaseHTTPRequestHandler],
        max_clients: int,
        tls: ssl.SSLContext | None = None,
        tick: Callable[[], object] = int,
    ) -> None:
        self._max_clients, self._tls, self._tick = max_clients, tls, tick
        self._open: dict[socket.socket, str] = {}  # with whose they are, the oldest first
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._host = f"[{host}]" if ":" in host else host
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), handler)

    @property
    def address(self) -> str:
        """The address, host:port, with the port that was picked."""
        return f"{self._host}:{self.server_port}"

    def start(self, name: str) -> None:
        """Answer clients, from a thread of this name."""
        self._thread.name = name
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        self.shutdown()
        self.server_close()
        self._thread.join()

    def service_actions(self) -> None:
        """Do what is due between two clients, or twice a second."""
        self._tick()

    def get_request(self) -> tuple[socket.socket, object]:
        """Accept a client, whose thread does the handshake of TLS."""
        request, address = super().get_request()
        if self._tls is not None:
            request = self._tls.wrap_socket(
                request, server_side=True, do_handshake_on_connect=False
            )
        return request, address

    def process_request(self, request: Request, client_address: object) -> None:
        """Have a thread answer a client, and let the oldest go where there are too many."""
        with self._lock:
            if len(self._open) >= self._max_clients:
                ended = self._oldest_of_most()
                del self._open[ended]
                with suppress(OSError):
                    socket.socket.shutdown(ended, socket.SHUT_RDWR)
            self._open[_stream(request)] = _stream(request).getpeername()[0]
        super().process_request(request, client_address)

    def know(self, connection: socket.socket, caller: str) -> None:
        """Note whose connection it is."""
        with self._lock:
            if connection in self._open:
                self._open[connection] = caller

    def _oldest_of_most(self) -> socket.socket:
        """Return the oldest connection of the caller who has the most."""
        ((most, _count),) = Counter(self._open.values()).most_common(1)  # of equals the oldest
        return next(each for each, caller in self._open.items() if caller == most)

    def finish_request(self, request: Request, client_address: object) -> None:
        """Answer a client."""
        stream = _stream(request)
        stream.settimeout(TIMEOUT)
        if isinstance(stream, ssl.SSLSocket):
            stream.do_handshake()
        super().finish_request(request, client_address)

    def shutdown_request(self, request: Request) -> None:
        """End a client's connection."""
        with self._lock:
            self._open.pop(_stream(request), None)
        super().shutdown_request(request)

    def handle_error(self, request: Request, client_address: object) -> None:
        """Leave a client alone that speaks no TLS or HTTP, or takes its time."""


def _stream(request: Request) -> socket.socket:
    """Return the socket of a request over TCP."""
    assert isinstance(request, socket.socket)
    return request
