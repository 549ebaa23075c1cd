# SPDX-License-Identifier: Apache-2.0
"""Serve HTTP to a bounded number of clients, in threads."""

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
"""The request of socketserver: over UDP it is a datagram."""


class Endpoint(ThreadingHTTPServer):
    """Serves HTTP to at most `max_clients` clients.

    One more ends the oldest connection of the caller with the most connections. A caller is an
    address until `know` names its token, so that silent connections end no connection of a token.

    `start` begins to serve, and calls `tick` twice a second; `close` ends. Raises OSError if host
    and port cannot be bound; port 0 picks a free port.
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
        self._open: dict[socket.socket, str] = {}  # connections and their callers, oldest first
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._host = f"[{host}]" if ":" in host else host
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), handler)

    @property
    def address(self) -> str:
        """The address, host:port, with the actual port."""
        return f"{self._host}:{self.server_port}"

    def start(self, name: str) -> None:
        """Serve clients, from a thread of this name."""
        self._thread.name = name
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self.shutdown()
        self.server_close()
        self._thread.join()

    def service_actions(self) -> None:
        """Call `tick` between two clients, or twice a second."""
        self._tick()

    def get_request(self) -> tuple[socket.socket, object]:
        """Accept a client; its own thread does the TLS handshake."""
        request, address = super().get_request()
        if self._tls is not None:
            request = self._tls.wrap_socket(
                request, server_side=True, do_handshake_on_connect=False
            )
        return request, address

    def process_request(self, request: Request, client_address: object) -> None:
        """Serve a client in a thread; end the oldest connection if there are too many."""
        with self._lock:
            if len(self._open) >= self._max_clients:
                ended = self._oldest_of_most()
                del self._open[ended]
                with suppress(OSError):
                    socket.socket.shutdown(ended, socket.SHUT_RDWR)
            self._open[_stream(request)] = _stream(request).getpeername()[0]
        super().process_request(request, client_address)

    def know(self, connection: socket.socket, caller: str) -> None:
        """Note the caller of a connection."""
        with self._lock:
            if connection in self._open:
                self._open[connection] = caller

    def _oldest_of_most(self) -> socket.socket:
        """Return the oldest connection of the caller with the most connections."""
        ((most, _count),) = Counter(self._open.values()).most_common(1)  # of equals the oldest
        return next(each for each, caller in self._open.items() if caller == most)

    def finish_request(self, request: Request, client_address: object) -> None:
        """Serve a client, within the timeout."""
        stream = _stream(request)
        stream.settimeout(TIMEOUT)
        if isinstance(stream, ssl.SSLSocket):
            stream.do_handshake()
        super().finish_request(request, client_address)

    def shutdown_request(self, request: Request) -> None:
        """Close a client's connection."""
        with self._lock:
            self._open.pop(_stream(request), None)
        super().shutdown_request(request)

    def handle_error(self, request: Request, client_address: object) -> None:
        """Ignore a client that does not speak TLS or HTTP, or is too slow."""


def _stream(request: Request) -> socket.socket:
    """Return the socket of a request over TCP."""
    assert isinstance(request, socket.socket)
    return request
