# SPDX-License-Identifier: Apache-2.0
"""Sessions for client tests: over gRPC to a server process, and in process if `.ci/run` says so."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from nnpa_client import Session
from nnpa_client._guest.options import session_options
from nnpa_client._server.shortcuts import with_shortcuts
from nnpa_client._server.transport import GrpcTransport, Transport
from nnpa_client.config import Endpoint, plain_shortcuts
from nnpa_server.config import Limits
from nnpa_server.sessions.store import Store

from tests.client.in_process import InProcessTransport
from tests.client.server_process import serving
from tests.server.process import PLAIN

Open = Callable[..., Session]


@pytest.fixture(scope="session", autouse=True)
def plain_clients() -> Iterator[None]:
    """With NNPA_TEST_PLAIN all clients, and the servers that they start, are plain."""
    with pytest.MonkeyPatch.context() as patch:
        if PLAIN:
            patch.setenv("ZDNN_PLAIN", "1")
        yield


@pytest.fixture(scope="session")
def server_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The Unix socket of a server process that all client tests share."""
    socket = Path(tmp_path_factory.mktemp("nnpa")) / "nnpa.sock"
    with serving([f"unix:{socket}"]) as targets:
        yield targets[0]


@pytest.fixture(scope="session")
def store() -> Iterator[Store]:
    """The store of the server in process."""
    held = Store(Limits())
    yield held
    held.close()


@pytest.fixture(params=[pytest.param("in_process", marks=pytest.mark.heavy), "grpc"])
def make_transport(request: pytest.FixtureRequest) -> Callable[[], Transport]:
    """A function that connects to a server, by either way."""
    if request.param == "in_process":
        held: Store = request.getfixturevalue("store")
        return lambda: InProcessTransport(held)
    target: str = request.getfixturevalue("server_target")
    return lambda: with_shortcuts(GrpcTransport(Endpoint(target)), plain_shortcuts())


@pytest.fixture
def open_session(make_transport: Callable[[], Transport]) -> Iterator[Open]:
    """A function that opens sessions with options; the sessions end with the test."""
    with ExitStack() as stack:

        def opened(machine: Any = None, **options: Any) -> Session:
            transport = make_transport()
            message, _fields = session_options(transport, machine, **options)
            return stack.enter_context(Session(transport, message))

        yield opened


@pytest.fixture
def session(open_session: Open) -> Session:
    """A session on the default machine, entered."""
    return open_session()
