# SPDX-License-Identifier: Apache-2.0
"""Servers and sessions for tests.

The server is in process, so that its store can be looked into, and spoken to over a real socket.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import grpc
import pytest
from nnpa_server.app import Server
from nnpa_server.config import Config, Limits
from nnpa_server.sessions.store import Counts

from tests.server.process import PLAIN
from tests.server.wire import Client

# Small limits, so that kilobytes reach them.
LIMITS = Limits(max_sessions=12, max_session_bytes=1 << 20, max_session_tensors=50)
CONFIG = Config(listen=("127.0.0.1:0",), limits=LIMITS, workers=16, drain_timeout=5.0, plain=PLAIN)
OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


class Running:
    """A server on a socket, and a channel to it."""

    def __init__(self, config: Config) -> None:
        self.server = Server(config)
        (self.address,) = self.server.start()
        self.channel = grpc.insecure_channel(self.address, OPTIONS)

    def client(self) -> Client:
        """Create a session over the shared channel."""
        return Client(self.channel)

    def stop(self) -> None:
        """End channel and server."""
        self.channel.close()
        self.server.drain()


@pytest.fixture(scope="session")
def running() -> Iterator[Running]:
    """A server with small limits, shared by the tests."""
    server = Running(CONFIG)
    yield server
    server.stop()


@pytest.fixture
def client(running: Running) -> Iterator[Client]:
    """A session of its own; the store is empty afterwards."""
    fresh_client = running.client()
    yield fresh_client
    fresh_client.delete()
    assert running.server.store.counts() == Counts()


@pytest.fixture
def start() -> Iterator[Callable[..., Running]]:
    """A function that starts a server with other limits or settings."""
    started: list[Running] = []

    def run(*, limits: Limits = LIMITS, workers: int = CONFIG.workers) -> Running:
        server = Running(replace(CONFIG, limits=limits, workers=workers))
        started.append(server)
        return server

    yield run
    for server in started:
        server.stop()
