# SPDX-License-Identifier: Apache-2.0
"""`nnpa-server --processes 2` with each kind of listener: what one process does, two do as well.

Needs Envoy (the extra `processes`).
"""

import socket
import ssl
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from nnpa.oip import open_inference_grpc_pb2 as oip
from nnpa_client import TransportError, connect

from tests.certificates import issue
from tests.server.onnx_models import Caller, dense
from tests.server.process import PATIENCE, serving, wait_until
from tests.server.processes.test_processes import TWO, doubled, members, needs_envoy, number_of
from tests.server.sessions.test_metrics import scrape

pytestmark = [pytest.mark.heavy, needs_envoy]
ANY_PORT = ("--listen", "127.0.0.1:0")
INFER = "ModelInfer"


def _certificates(folder: Path) -> tuple[str, ...]:
    """Write a CA and its certificates into a folder; return the flags of a server's certificate."""
    ca = issue("nnpa test CA")
    ca.write(folder, "ca")
    issue("somebody else").write(folder, "stranger")
    for name in ("server", "client"):
        issue(name, ca).write(folder, name)
    return ("--tls-cert", f"{folder}/server.crt", "--tls-key", f"{folder}/server.key")


def _on_both(address: str, **credentials: Any) -> None:
    """Have sessions on both processes, and a call of each."""
    with ExitStack() as opened:
        sessions = [opened.enter_context(connect(address, **credentials)) for _ in range(4)]
        assert {number_of(session) for session in sessions} == {0, 1}
        for value, session in enumerate(sessions):
            doubled(session, value)


def _refusal(flags: tuple[str, ...], code: int = 1) -> str:
    """Start a server that cannot start; check its exit code and return its message."""
    command = [sys.executable, "-m", "nnpa_server", *TWO, *flags]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (ended.returncode, ended.stdout) == (code, "")
    return ended.stderr


def test_tls(tmp_path: Path) -> None:
    """Both processes are reached over TLS by those who know the CA; a Unix socket without."""
    tls = _certificates(tmp_path)
    flags = (*ANY_PORT, "--listen", f"unix:{tmp_path}/nnpa.sock")
    with serving(tmp_path, *TWO, *tls, *flags, listeners=2) as server:
        address, path = server.addresses
        _on_both(address, tls_ca=tmp_path / "ca.crt")
        _on_both(path)
        with pytest.raises(TransportError, match="CERTIFICATE_VERIFY_FAILED"):
            connect(address, tls_ca=tmp_path / "stranger.crt")
        with pytest.raises(TransportError, match="speaks TLS"):
            connect(address)


def test_mutual_tls(tmp_path: Path) -> None:
    """With a CA of clients, on every TCP listener only those with its certificates are served."""
    tls = (*_certificates(tmp_path), "--tls-client-ca", f"{tmp_path}/ca.crt")
    ca = tmp_path / "ca.crt"
    with serving(tmp_path, *TWO, *tls, *ANY_PORT, *ANY_PORT, listeners=2) as server:
        own, strange = (
            {"tls_cert": tmp_path / f"{name}.crt", "tls_key": tmp_path / f"{name}.key"}
            for name in ("client", "stranger")
        )
        _on_both(server.address, tls_ca=ca, **own)
        for credentials in ({}, strange):
            with pytest.raises(TransportError):
                _on_both(server.address, tls_ca=ca, **credentials)
        key, certificate = ((tmp_path / f"client.{end}").read_bytes() for end in ("key", "crt"))
        for pair, is_served in (((key, certificate), True), ((None, None), False)):
            offered = grpc.ssl_channel_credentials(ca.read_bytes(), *pair)
            with grpc.secure_channel(server.addresses[1], offered) as channel:
                live = channel.unary_unary(
                    "/inference.GRPCInferenceService/ServerLive",
                    oip.ServerLiveRequest.SerializeToString,
                    oip.ServerLiveResponse.FromString,
                )
                if is_served:
                    assert live(oip.ServerLiveRequest()).live
                else:
                    with pytest.raises(grpc.RpcError, match="UNAVAILABLE"):
                        live(oip.ServerLiveRequest())


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    """A certificate and a key that do not belong together are refused before Envoy starts."""
    tls, key = _certificates(tmp_path), f"{tmp_path}/stranger.key"
    message = _refusal((*ANY_PORT, *tls[:3], key), code=2)
    assert f"--tls-key {key}: expected a certificate in PEM and its key" in message


def test_models_of_both_processes(tmp_path: Path) -> None:
    """Both processes answer inferences of the operator's models, at each listener, in turn."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models/dense.onnx").write_bytes(dense())
    flags = ("--models", f"{tmp_path}/models", "--metrics", "127.0.0.1:0")
    with serving(tmp_path, *TWO, *ANY_PORT, *ANY_PORT, *flags, listeners=2) as server:
        for address in server.addresses:
            caller = Caller(address)

            def is_ready(client: Caller = caller) -> bool:
                request = oip.ModelReadyRequest(name="dense")
                return all(client.stub.ModelReady(request).ready for _ in range(4))

            wait_until(is_ready)
            row = np.ones((1, 4), np.float32)
            for _ in range(6):
                assert (caller.infer("dense", x=row)["y"] == row @ _weights()).all()
            with pytest.raises(grpc.RpcError, match="the operator loads models"):
                caller.load("other", dense())
            caller.channel.close()
        samples = scrape(server)
        served = [value for name, value in samples.items() if INFER in name and "_count" in name]
        assert sum(served) == 12
        assert min(served) > 0
        assert any('"process": "0"' in name for name in samples if INFER in name)
        assert any('"process": "1"' in name for name in samples if INFER in name)


def _weights() -> Any:
    return np.arange(-3, 5, dtype=np.float32).reshape(4, 2)


def test_health_has_connections_of_its_own(tmp_path: Path) -> None:
    """Health is answered at --health-listen while the other listener is full, and in a drain."""
    full = ("--max-connections", "4", "--health-listen", "127.0.0.1:0", "--drain-delay", "60s")
    with serving(tmp_path, *TWO, *ANY_PORT, *full) as server, ExitStack() as opened:
        address = server.stdout.readline().decode().split()[-1]
        session = opened.enter_context(connect(server.address))
        for _ in range(8):
            silent = socket.create_connection(("127.0.0.1", _port(server.address)))
            opened.enter_context(silent)
        channel = opened.enter_context(grpc.insecure_channel(address))
        health: Any = health_pb2_grpc.HealthStub(channel)

        def status() -> int:
            answer = health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE)
            return int(answer.status)

        assert status() == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(TransportError):
            connect(server.address, connect_timeout=2)
        server.process.terminate()
        wait_until(lambda: status() == health_pb2.HealthCheckResponse.NOT_SERVING)
        doubled(session, 3)


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def test_metrics_over_tls(tmp_path: Path) -> None:
    """Beyond this machine the metrics of all processes are over TLS, and no process has others."""
    flags = (*_certificates(tmp_path), "--metrics", "0.0.0.0:0")
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    with serving(tmp_path, *TWO, *ANY_PORT, *flags) as server:
        with connect(server.address, tls_ca=tmp_path / "ca.crt"):
            samples = scrape(server, context)
            assert sum(value for name, value in samples.items() if "nnpa_sessions{" in name) == 1
        assert server.log_text().count("metrics at https://") == 1
        assert "metrics at http://" not in server.log_text()


def test_a_taken_port_of_each_listener_is_refused() -> None:
    """A port that somebody has is refused by its address, whichever listener it is for."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        for flag in ("--listen", "--health-listen"):
            message = _refusal(
                (*ANY_PORT, flag, address) if flag != "--listen" else (flag, address)
            )
            assert message.splitlines()[-1] == (
                f"nnpa-server: cannot listen on {address}: "
                "the port is in use; choose another, or 0 for any"
            )
        message = _refusal((*ANY_PORT, "--metrics", address))
        assert f"nnpa-server: cannot serve metrics on {address}: Address already in use" in message


@pytest.mark.parametrize("host", ["localhost", "[::1]", "[::]"])
def test_listeners_take_names_and_ipv6(tmp_path: Path, host: str) -> None:
    """A name is listened on, and IPv6, and with IPv6 of all interfaces IPv4 too; told as given."""
    if not _has_ipv6() and host != "localhost":
        pytest.skip("there is no IPv6 here")
    flags = ("--listen", f"{host}:0", "--insecure")
    with serving(tmp_path, *TWO, *flags) as server:
        assert server.address.rpartition(":")[0] == host
        _on_both(server.address.replace("[::]", "[::1]"))
        if host == "[::]":
            _on_both(f"127.0.0.1:{_port(server.address)}")


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def _plain_clients(server: Any) -> list[int]:
    """Return how many clients are at each process's plain socket."""
    counts: list[int] = []
    for process in members(server):
        paths = [connection.laddr for connection in process.net_connections("unix")]
        counts.append(sum(str(path).endswith(".plain") for path in paths) - 1)
    return counts


@pytest.mark.shortcut
def test_plain_sockets_lead_to_their_process(tmp_path: Path) -> None:
    """Clients of a Unix socket are at the plain socket of their session's process; others are not.

    Of a second Unix socket, which has none beside it, clients use HTTP/2.
    """
    paths = [f"unix:{tmp_path}/{name}.sock" for name in ("first", "second")]
    flags = ("--listen", paths[0], "--listen", paths[1], *ANY_PORT)
    with serving(tmp_path, *TWO, *flags, listeners=3) as server:
        for address, each in zip(server.addresses, (2, 0, 0), strict=True):
            with ExitStack() as opened:
                sessions = [opened.enter_context(connect(address)) for _ in range(4)]
                for value, session in enumerate(sessions):
                    doubled(session, value)
                    doubled(session, value + 4)
                assert sorted(map(number_of, sessions)) == [0, 0, 1, 1]
                assert _plain_clients(server) == [each, each]
            wait_until(lambda: _plain_clients(server) == [0, 0])


def test_a_dead_process_leaves_its_plain_socket_to_the_next(tmp_path: Path) -> None:
    """A process that is started again has a plain socket again, and all are removed in the end."""
    with serving(tmp_path, *TWO, "--listen", f"unix:{tmp_path}/nnpa.sock") as server:
        dead = members(server)[0]
        dead.kill()
        wait_until(lambda: dead not in members(server) and len(members(server)) == 2)

        def serves_anew() -> bool:
            with connect(server.address) as session:
                doubled(session, 1)
                return number_of(session) == 0

        wait_until(serves_anew)
        assert (tmp_path / "nnpa.sock.0.plain").is_socket()
        assert server.stop() == 0
        assert [path.name for path in tmp_path.iterdir()] == ["server.log"]
