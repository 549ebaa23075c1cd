# SPDX-License-Identifier: Apache-2.0
"""A client of HTTP/2 frame by frame, for what no gRPC client sends. Source: RFC 9113, RFC 7541."""

import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
CANCEL = 8
INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 4, 5
WINDOW, FRAME = 65535, 16384
TIMEOUT = 5.0


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame as it travels."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def header_block(path: str, token: str = "", extra: Sequence[tuple[str, str]] = ()) -> bytes:
    """Return the headers of a gRPC call, none of them compressed or remembered."""
    pairs = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost"),
             ("content-type", "application/grpc"), ("te", "trailers")]  # fmt: skip
    if token:
        pairs.append(("authorization", f"Bearer {token}"))
    return b"".join(b"\x00" + _text(name) + _text(text) for name, text in (*pairs, *extra))


def _text(text: str) -> bytes:
    """Return a string literal of RFC 7541: its length with seven bits of prefix, then itself."""
    raw, size = text.encode(), b""
    if len(raw) < 127:
        return bytes([len(raw)]) + raw
    left = len(raw) - 127
    while left >= 128:
        size += bytes([left % 128 + 128])
        left //= 128
    return b"\x7f" + size + bytes([left]) + raw


class Connection:
    """One connection; it answers settings and pings, and keeps to the server's windows.

    `window` is how much of an answer the server may send.
    """

    def __init__(self, address: str, window: int = WINDOW) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT)
        self._next_stream = 1
        self._changed = threading.Condition()
        self._initial, self._frame = WINDOW, FRAME
        self._window = WINDOW
        self._granted: dict[int, int] = defaultdict(int)
        self.is_open = True
        self._socket.settimeout(None)
        limit = struct.pack("ll", int(TIMEOUT), 0)  # of one write; reads wait
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        settings = struct.pack(">HI", INITIAL_WINDOW_SIZE, window)
        self.send(PREFACE + frame(SETTINGS, 0, 0, settings))
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, raw: bytes) -> None:
        """Send bytes; a server that has hung up is noted."""
        try:
            self._socket.sendall(raw)
        except OSError:
            self.is_open = False

    def begin(self, path: str, token: str = "", *, end: bool = False) -> int:
        """Send the headers of a call; return its stream."""
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        flags = END_HEADERS | (END_STREAM if end else 0)
        self.send(frame(HEADERS, flags, stream, header_block(path, token)))
        return stream

    def ask(self, path: str, message: bytes, token: str = "") -> int:
        """Send a small call with its one message; return its stream."""
        stream = self.begin(path, token)
        whole = struct.pack(">BI", 0, len(message)) + message
        self.send(frame(DATA, END_STREAM, stream, whole))
        return stream

    def data(self, stream: int, payload: bytes) -> int:
        """Send bytes of a message as the windows allow; return how many the server took."""
        sent = 0
        while sent < len(payload) and self.is_open:
            size = self._take(stream, len(payload) - sent)
            if size == 0:
                break
            self.send(frame(DATA, 0, stream, payload[sent : sent + size]))
            sent += size
        return sent

    def _take(self, stream: int, most: int) -> int:
        """Return how many bytes may be sent now, 0 when the server allows none for a while."""

        def allowed() -> int:
            return min(most, self._frame, self._window, self._initial + self._granted[stream])

        with self._changed:
            self._changed.wait_for(lambda: allowed() > 0 or not self.is_open, TIMEOUT)
            size = max(0, allowed())
            self._window -= size
            self._granted[stream] -= size
        return size

    def close(self) -> None:
        """Hang up."""
        self.is_open = False
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read(self) -> None:
        with suppress(OSError, ValueError, struct.error), self._socket.makefile("rb") as received:
            while head := received.read(9):
                size = int.from_bytes(head[:3])
                kind, flags, stream = struct.unpack(">BBI", head[3:])
                self._note(kind, flags, stream, received.read(size))
        with self._changed:
            self.is_open = False
            self._changed.notify_all()

    def _note(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        with self._changed:
            if kind == WINDOW_UPDATE and stream == 0:
                self._window += int.from_bytes(payload)
            elif kind == WINDOW_UPDATE:
                self._granted[stream] += int.from_bytes(payload)
            elif kind == SETTINGS and not flags & ACK:
                for number, setting in struct.iter_unpack(">HI", payload):
                    self._initial = setting if number == INITIAL_WINDOW_SIZE else self._initial
                    self._frame = setting if number == MAX_FRAME_SIZE else self._frame
            self._changed.notify_all()
        if kind == SETTINGS and not flags & ACK:
            self.send(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.send(frame(PING, ACK, 0, payload))
        elif kind == DATA and payload:
            self.send(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", len(payload))))
