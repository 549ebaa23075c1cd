# SPDX-License-Identifier: Apache-2.0
"""Calls over a plain socket with any bytes. Source: deploy/docs/wire.md, "Plain sockets"."""

import base64
import binascii
import os
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from tests.hostile.calls import Answer

SUFFIX = ".plain"
METADATA = 0x80
_PREFIX = struct.Struct(">BI")
_CODES = {code.value[0]: code.name for code in grpc.StatusCode}
_TIMEOUT = 10.0


def frame(flag: int, payload: bytes) -> bytes:
    """Return a frame as it travels."""
    return _PREFIX.pack(flag, len(payload)) + payload


class PlainCall:
    """One connection, which is one call; `path` is gRPC's socket, `lines` are more metadata.

    A file, if there is one, is sent with them, and closed.
    """

    def __init__(
        self,
        path: Path,
        token: str = "",
        timeout: float = _TIMEOUT,
        lines: str = "",
        file: int | None = None,
    ) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout)
        self._socket.connect(str(path.with_name(path.name + SUFFIX)))
        metadata = (f"authorization: Bearer {token}\r\n" if token else "") + lines
        first = frame(METADATA, metadata.encode())
        if file is None:
            self.send(first)
            return
        try:
            socket.send_fds(self._socket, [first], [file])
        finally:
            os.close(file)

    def send(self, raw: bytes) -> None:
        """Send bytes, frames or not; a call that has ended says why when it is read."""
        with suppress(OSError):
            self._socket.sendall(raw)

    def ask(self, message: bytes, flag: int = 0) -> Answer:
        """Send a message; return its answer."""
        self.send(frame(flag, message))
        return self.receive()

    def receive(self) -> Answer:
        """Return the next answer, or how the call ended."""
        begin = time.monotonic()
        try:
            flag, size = _PREFIX.unpack(self._exactly(_PREFIX.size))
            payload = self._exactly(size)
        except TimeoutError:
            return Answer("DEADLINE_EXCEEDED", details="no frame came")
        except OSError as error:
            return Answer("UNAVAILABLE", details=str(error))
        if flag == METADATA:
            return _ended(payload)
        return Answer("OK", messages=(payload,), seconds=time.monotonic() - begin)

    def finish(self) -> Answer:
        """Say that there are no more messages; return how the call ended."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        while (answer := self.receive()).messages:
            pass
        return answer

    def __enter__(self) -> "PlainCall":
        return self

    def __exit__(self, *_error: object) -> None:
        self._socket.close()

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(min(size - len(data), 1 << 20))
            if not piece:
                raise ConnectionResetError("the server has hung up")
            data += piece
        return data


def _ended(payload: bytes) -> Answer:
    """Read the status at the end of a call."""
    lines = payload.decode("latin-1").split("\r\n")
    pairs: Mapping[str, str] = {
        name: text.strip() for name, _, text in (line.partition(":") for line in lines)
    }
    reason, facts = "", dict[str, str]()
    with suppress(KeyError, DecodeError, binascii.Error):
        status = status_pb2.Status.FromString(base64.b64decode(pairs["grpc-status-details-bin"]))
        info = error_details_pb2.ErrorInfo()
        if status.details and status.details[0].Unpack(info):
            reason, facts = str(info.reason), dict(info.metadata)
    code = _CODES.get(int(pairs.get("grpc-status", "2")), "UNKNOWN")
    return Answer(code, reason, unquote(pairs.get("grpc-message", "")), facts)
