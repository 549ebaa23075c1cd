# SPDX-License-Identifier: Apache-2.0
"""Calls over a server's plain socket: ExecuteStream, and InferNetwork, without HTTP/2.

Sources: deploy/docs/wire.md, "Plain sockets"; gRPC, PROTOCOL-HTTP2.md, "Length-Prefixed-Message"
and "Status-Message"; gRPC-Web, PROTOCOL-WEB.md, "Message framing".
"""

import base64
import socket
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Generic, TypeAlias, cast
from urllib.parse import unquote_to_bytes

import grpc
import numpy as np
from google.protobuf.message import DecodeError
from nnpa.zdnn.v1.accelerator_pb2 import Session

from nnpa_client._server.transport import EXECUTE, Method, Received, Sent

assert sys.platform != "win32", "Python has no Unix sockets on Windows"
__tracebackhide__ = True  # pytest shows the line that called, not these

Metadata: TypeAlias = Sequence[tuple[str, str]]
_PREFIX = struct.Struct(">BI")
_METADATA = 0x80  # the flag of a frame that is no message
_BUFFER_BYTES = 1 << 20  # of the socket: what one side writes while the other does not read
_SMALL_BYTES = 64 << 10  # of an answer that is received into `bytes`
_MAX_PIECES = 64  # of one system call, below IOV_MAX
_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


class PlainSocketError(grpc.RpcError):
    """A failed call on a plain socket, with the status that gRPC's errors have."""

    def __init__(
        self, code: grpc.StatusCode, details: str, trailing: Sequence[tuple[str, str | bytes]] = ()
    ) -> None:
        super().__init__(details)
        self._code, self._details, self._trailing = code, details, tuple(trailing)

    def code(self) -> grpc.StatusCode:
        """Return the status."""
        return self._code

    def details(self) -> str:
        """Return the server's text."""
        return self._details

    def trailing_metadata(self) -> Any:
        """Return the metadata that followed the status."""
        return self._trailing


class PlainStream(Generic[Sent, Received]):
    """One call whose messages are answered one by one; raises OSError where nothing listens."""

    def __init__(self, path: str, metadata: Metadata, method: Method[Sent, Received]) -> None:
        self._method = method
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.setblocking(False)  # a full backlog is refused, not waited for
            self._socket.connect(path)
            self._socket.setblocking(True)
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                self._socket.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
            lines = "".join(f"{name}: {value}\r\n" for name, value in metadata)
            self._send(_METADATA, [lines.encode()])
        except OSError:
            self._socket.close()
            raise

    def is_active(self) -> bool:
        """Return True if the server has neither ended the call nor sent anything unasked."""
        try:
            self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def ask(self, request: Sent) -> Received:
        """Return the answer to a message; raise PlainSocketError if the call ends instead."""
        pieces, serialize = self._method.pieces, self._method.serialize
        try:
            self._send(0, [serialize(request)] if pieces is None else pieces(request))
        except OSError:  # the answer says why; the server waits for no more of it
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
        try:
            flag, size = _PREFIX.unpack(self._receive(_PREFIX.size))
            payload = self._receive(size)
        except OSError as error:
            text = f"connection lost: {error}"
            raise PlainSocketError(grpc.StatusCode.UNAVAILABLE, text) from error
        if flag:
            raise _error_from_trailer(bytes(payload))
        try:
            return self._method.parse(cast("bytes", payload))
        except DecodeError as error:
            raise PlainSocketError(grpc.StatusCode.INTERNAL, f"the answer: {error}") from error

    def close(self) -> None:
        """Close the socket, which ends the call."""
        self._socket.close()

    cancel = close

    def _send(self, flag: int, contents: Sequence[bytes | memoryview]) -> None:
        pieces = [_PREFIX.pack(flag, sum(map(len, contents))), *contents]
        while pieces:
            sent = self._socket.sendmsg(pieces[:_MAX_PIECES])
            while pieces and sent >= len(pieces[0]):
                sent -= len(pieces.pop(0))
            if sent:
                pieces[0] = memoryview(pieces[0])[sent:]

    def _receive(self, size: int) -> bytes | memoryview:
        """Receive `size` bytes; large ones go into memory that is not cleared first."""
        if size < _SMALL_BYTES:
            whole = self._socket.recv(size, socket.MSG_WAITALL) if size else b""
            if len(whole) < size:
                raise ConnectionResetError("the server has hung up")
            return whole
        memory, received = np.empty(size, np.uint8).data, 0
        while received < size:
            count = self._socket.recv_into(memory[received:], 0, socket.MSG_WAITALL)
            if count == 0:
                raise ConnectionResetError("the server has hung up")
            received += count
        return memory


class PlainSocketRoute:
    """Streams over the plain socket beside a server's Unix socket, if the server has one."""

    def __init__(self, target: str, metadata: Metadata) -> None:
        self._target, self._metadata = target, metadata
        self._paths: dict[str, str] = {}  # by ticket

    def session_created(self, session: Session, ticket: str) -> None:
        """Note the path of the plain socket of the session's server, by ticket."""
        suffix = session.plain_socket.suffix
        is_beside = bool(suffix) and "/" not in suffix
        path = self._target.removeprefix("unix:").removeprefix("//")
        self._paths[ticket] = path + suffix if is_beside else ""

    def begin(
        self, method: Method[Sent, Received], ticket: str
    ) -> PlainStream[Sent, Received] | None:
        """Begin a stream; None if the server has no plain socket or no longer listens there."""
        path = self._paths.get(ticket)
        if not path:
            return None
        lines = () if method.path == EXECUTE.path else ((":path", method.path),)
        try:
            return PlainStream(path, (*self._metadata, *lines), method)
        except OSError:
            del self._paths[ticket]
            return None


def _error_from_trailer(lines: bytes) -> PlainSocketError:
    """Return the error in the last frame of a call."""
    pairs = [line.partition(":") for line in lines.decode("latin-1").split("\r\n") if line]
    metadata = {name: value.strip() for name, _, value in pairs}
    number = metadata.pop("grpc-status", "")
    code = _CODES.get(int(number) if number.isdecimal() else -1, grpc.StatusCode.UNKNOWN)
    details = unquote_to_bytes(metadata.pop("grpc-message", "")).decode(errors="replace")
    trailing = [
        (name, base64.b64decode(value) if name.endswith("-bin") else value)
        for name, value in metadata.items()
    ]
    return PlainSocketError(code, details, trailing)
