# SPDX-License-Identifier: Apache-2.0
"""A server with a plain socket, and lists that tests send over it."""

import base64
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa_server.app import Server
from nnpa_server.config import Config

from tests.server.conftest import OPTIONS
from tests.server.plain import Plain
from tests.server.process import wait_until
from tests.server.wire import Client, Operation, load, op

ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)
SUM = (*load(1, ARRAY), op("add", input_a=1, input_b=1, output=1))


class Near:
    """A server on a Unix socket, with a session over gRPC."""

    def __init__(self, folder: Path, config: Config) -> None:
        self.path = folder / "nnpa.sock"
        self.server = Server(replace(config, listen=(f"unix:{self.path}",)))
        self.server.start()
        self.channel = grpc.insecure_channel(f"unix:{self.path}", OPTIONS)
        self.client = Client(self.channel)
        self.stopped = False
        self.plain_path = self.path.with_name(
            self.path.name + self.client.state().plain_socket.suffix
        )

    def plain(self, metadata: str = "") -> Plain:
        """Open a plain socket."""
        return Plain(self.plain_path, metadata)

    def request(self, *operations: Operation) -> pb.ExecuteRequest:
        """Return a list of the session."""
        return self.client.request(*operations)

    def wait_until_busy(self, began: float) -> None:
        """Wait until a list runs, or has run, since then."""
        wait_until(lambda: self.server.interceptor.last_busy() >= began)

    def wait_until_idle(self) -> None:
        """Wait until no list runs."""
        now = time.monotonic()
        while self.server.interceptor.last_busy() >= now:
            time.sleep(0.001)
            now = time.monotonic()

    def stop(self) -> None:
        """End all of it; may be repeated."""
        self.channel.close()
        if not self.stopped:
            self.stopped = True
            self.server.drain()


def info_of(trailers: dict[str, str]) -> Any:
    """Return the ErrorInfo of a status, whose details begin with it."""
    raw = base64.b64decode(trailers["grpc-status-details-bin"])
    info = error_details_pb2.ErrorInfo()
    assert status_pb2.Status.FromString(raw).details[0].Unpack(info)
    return info
