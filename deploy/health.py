# SPDX-License-Identifier: Apache-2.0
"""Ask a server on this machine whether it serves, and exit with 0 or 1: the image's health check.

    python -I -S deploy/health.py [host:port or unix:/path]

Without an address it asks $NNPA_HEALTH, else 127.0.0.1:50051. It takes no TLS: of a server with
TLS give the address of a --health-listen on a Unix socket.

One call of grpc.health.v1.Health/Check is written as HTTP/2 frames (RFC 9113) with literal headers
(RFC 7541), so that no gRPC is imported: a check takes 20 ms of a processor in place of a second.
"""

import os
import socket
import sys

TIMEOUT_SECONDS = 4.0
MAX_FRAME_BYTES = 1 << 14
SERVING = b"\x08\x01"  # HealthCheckResponse, status: SERVING
_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_STREAM, _END_HEADERS = 1, 4
_STREAM = 1


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def _header(name: bytes, text: bytes) -> bytes:
    """Return a literal header that no table keeps; `name` as RFC 7541 has it."""
    return name + bytes((len(text),)) + text


def request() -> bytes:
    """Return the bytes that a client sends for one check of the whole server."""
    method_post, scheme_http, authority, path, content_type = (
        b"\x83",
        b"\x86",
        b"\1",
        b"\4",
        b"\x0f\x10",
    )
    headers = (
        method_post
        + scheme_http
        + _header(path, b"/grpc.health.v1.Health/Check")
        + _header(authority, b"localhost")
        + _header(content_type, b"application/grpc")
        + _header(b"\0\2te", b"trailers")
    )
    return (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + _frame(_SETTINGS, 0, 0, b"")
        + _frame(_HEADERS, _END_HEADERS, _STREAM, headers)
        + _frame(_DATA, _END_STREAM, _STREAM, bytes(5))  # uncompressed, and an empty message
    )


def _read(connection: socket.socket, count: int) -> bytes:
    buffer = b""
    while len(buffer) < count:
        if not (received := connection.recv(count - len(buffer))):
            raise ConnectionError("the server hung up")
        buffer += received
    return buffer


def answer(connection: socket.socket) -> bytes:
    """Return the message of the first answer; raise ConnectionError when the call ends without."""
    body = b""
    while True:
        head = _read(connection, 9)
        size, kind, flags = int.from_bytes(head[:3]), head[3], head[4]
        if size > MAX_FRAME_BYTES:
            raise ConnectionError(f"a frame of {size} bytes; the limit is {MAX_FRAME_BYTES}")
        payload = _read(connection, size)
        if int.from_bytes(head[5:]) & 0x7FFFFFFF != _STREAM:
            continue
        body += payload if kind == _DATA else b""
        if len(body) >= 5 and len(body) >= 5 + int.from_bytes(body[1:5]):
            return body[5:]
        if kind not in (_DATA, _HEADERS) or flags & _END_STREAM:
            raise ConnectionError("the call was refused")


def connect(address: str) -> socket.socket:
    """Connect to host:port, or unix:/path."""
    if not address.startswith("unix:"):
        host, _, port = address.rpartition(":")
        return socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_SECONDS)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(TIMEOUT_SECONDS)
    connection.connect(address.removeprefix("unix:"))
    return connection


def main() -> None:
    """Exit with 0 when the server says SERVING, else with 1 and a line that says why."""
    default = os.environ.get("NNPA_HEALTH", "127.0.0.1:50051")
    address = sys.argv[1] if len(sys.argv) > 1 else default
    try:
        with connect(address) as connection:
            connection.sendall(request())
            message = answer(connection)
    except (OSError, ValueError) as error:
        sys.exit(f"{address}: {error}")
    if message != SERVING:
        sys.exit(f"{address}: not serving")


if __name__ == "__main__":
    main()
