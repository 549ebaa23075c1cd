# SPDX-License-Identifier: Apache-2.0
"""Lists of operations over a server's plain socket: ExecuteStream without HTTP/2.

Sources: protos/README.md, "Plain sockets"; gRPC, PROTOCOL-HTTP2.md, "Length-Prefixed-Message" and
"Status-Message"; gRPC-Web, PROTOCOL-WEB.md, "Message framing".
"""

import base64
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeAlias
from urllib.parse import unquote_to_bytes

import grpc
import numpy as np
from google.protobuf.message import DecodeError

from nnpa_client._shortcuts.out_of_band_arrays import Answered, Listed, parse, pieces

Metadata: TypeAlias = Sequence[tuple[str, str]]
_PREFIX = struct.Struct(">BI")
_METADATA = 0x80  # the flag of a frame that is no message
_BUFFER = (
    1 << 20
)  # bytes of the socket's buffer: what one side writes while the other does not read
_SMALL = 64 << 10  # bytes of an answer below which its memory is one of `bytes`
_MOST_PIECES = 64  # of one system call, below IOV_MAX
_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


class PlainSocketError(grpc.RpcError, grpc.Call):
    """How a call on a plain socket failed, as a grpc.RpcError tells it."""

    def __init__(
        self, code: grpc.StatusCode, details: str, trailing: Sequence[tuple[str, Any]] = ()
    ) -> None:
        super().__init__(details)
        self._code, self._details, self._trailing = code, details, tuple(trailing)

    def code(self) -> grpc.StatusCode:
        """Return the status."""
        return self._code

    def details(self) -> str:
        """Return what the server said."""
        return self._details

    def initial_metadata(self) -> Any:
        """Return nothing: a plain socket has none."""
        return ()

    def trailing_metadata(self) -> Any:
        """Return what followed the status."""
        return self._trailing

    def is_active(self) -> bool:
        """Tell that the call has ended."""
        return False

    def time_remaining(self) -> float:
        """Return 0: the call has ended."""
        return 0.0

    def cancel(self) -> bool:
        """Do nothing: the call has ended."""
        return False

    def add_callback(self, callback: Any) -> bool:  # noqa: ARG002 - gRPC's signature
        """Call nothing: the call has ended."""
        return False


class PlainStream:
    """One call, each list of which is answered before the next; OSError where nobody listens."""

    def __init__(self, path: str, metadata: Metadata) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.setblocking(False)  # who has stopped to take clients is not waited for
            self._socket.connect(path)
            self._socket.setblocking(True)
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                self._socket.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
            lines = "".join(f"{name}: {value}\r\n" for name, value in metadata)
            self._send(_METADATA, [lines.encode()])
        except OSError:
            self._socket.close()
            raise

    def is_active(self) -> bool:
        """Tell whether nothing has come since the last answer: no end either."""
        try:
            self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def ask(self, listed: Listed) -> Answered:
        """Return the answer of a list; raise what ends the call."""
        try:
            self._send(0, pieces(listed))
        except OSError:  # why, the answer tells; the server waits for no more of the list
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
        try:
            flag, size = _PREFIX.unpack(self._receive(_PREFIX.size))
            payload = self._receive(size)
        except OSError as error:
            text = f"connection lost: {error}"
            raise PlainSocketError(grpc.StatusCode.UNAVAILABLE, text) from error
        if flag:
            raise _told(bytes(payload))
        try:
            return parse(payload)
        except DecodeError as error:
            raise PlainSocketError(grpc.StatusCode.INTERNAL, f"the answer: {error}") from error

    def close(self) -> None:
        """End the call: in order if it has no list under way."""
        self._socket.close()

    cancel = close

    def _send(self, flag: int, contents: Sequence[bytes | memoryview]) -> None:
        left = [_PREFIX.pack(flag, sum(map(len, contents))), *contents]
        while left:
            sent = self._socket.sendmsg(left[:_MOST_PIECES])
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if sent:
                left[0] = memoryview(left[0])[sent:]

    def _receive(self, size: int) -> bytes | memoryview:
        """Return so many bytes; many in memory that is not cleared first."""
        if size < _SMALL:
            whole = self._socket.recv(size, socket.MSG_WAITALL) if size else b""
            if len(whole) < size:
                raise ConnectionResetError("the server has hung up")
            return whole
        memory, there = np.empty(size, np.uint8).data, 0
        while there < size:
            count = self._socket.recv_into(memory[there:], 0, socket.MSG_WAITALL)
            if count == 0:
                raise ConnectionResetError("the server has hung up")
            there += count
        return memory


def _told(lines: bytes) -> PlainSocketError:
    """Return the error that the last frame of a call tells."""
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
