# SPDX-License-Identifier: Apache-2.0
"""A client of plain sockets, byte by byte."""

import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from nnpa.zdnn.v1 import accelerator_pb2 as pb

METADATA = 0x80
PATIENCE = 30.0


def frame(flag: int, payload: bytes) -> bytes:
    """Return a frame as it travels."""
    return struct.pack(">BI", flag, len(payload)) + payload


class Plain:
    """One connection, which has sent its metadata, and perhaps descriptors with them."""

    def __init__(
        self, path: Path, metadata: str = "", descriptors: Sequence[int] = (), begin: bool = True
    ) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(str(path))
        if begin:
            first = frame(METADATA, metadata.encode())
            socket.send_fds(self.socket, [first], list(descriptors))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, request: pb.ExecuteRequest) -> None:
        """Send a list, unless the server has ended the call already, which says why."""
        with suppress(BrokenPipeError):
            self.socket.sendall(frame(0, request.SerializeToString()))

    def receive(self) -> tuple[int, bytes]:
        """Return flag and payload of the next frame."""
        flag, size = struct.unpack(">BI", self._exactly(5))
        return flag, self._exactly(size)

    def answer(self) -> pb.ExecuteResponse:
        """Return the next message."""
        flag, payload = self.receive()
        assert flag == 0, payload
        return pb.ExecuteResponse.FromString(payload)

    def ask(self, request: pb.ExecuteRequest) -> pb.ExecuteResponse:
        """Send a list and return its answer."""
        self.send(request)
        return self.answer()

    def end(self) -> dict[str, str]:
        """Return the fields of the last frame; nothing follows it."""
        flag, payload = self.receive()
        assert flag == METADATA
        with suppress(ConnectionResetError):  # what the server has not read is lost
            assert self.socket.recv(1) == b""
        lines = payload.decode().split("\r\n")
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def finish(self) -> dict[str, str]:
        """Say that there are no more lists, and return the fields of the last frame."""
        self.socket.shutdown(socket.SHUT_WR)
        return self.end()

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            assert piece, "the server has hung up"
            data += piece
        return data
