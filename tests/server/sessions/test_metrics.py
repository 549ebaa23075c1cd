# SPDX-License-Identifier: Apache-2.0
"""The metrics, as a scraper reads them: real processes, real sockets."""

import hashlib
import json
import re
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import grpc
import numpy as np
import pytest
from click.testing import CliRunner
from nnpa.oip import open_inference_grpc_pb2 as oip
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1.accelerator_pb2_grpc import AcceleratorServiceStub
from nnpa_client import connect
from nnpa_emulator import FUNCTIONS
from nnpa_server.__main__ import main
from nnpa_server.rpc.prometheus import MAX_SCRAPES
from nnpa_server.sessions.metrics import BOUNDS, Metrics
from prometheus_client.parser import text_string_to_metric_families

from tests.certificates import issue
from tests.server.onnx_models import Caller, dense, request
from tests.server.process import PATIENCE, ServerProcess, serving
from tests.server.wire import Client, init, load, op, refused

CODE = grpc.StatusCode
FLAGS = ("--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
DATA = np.ones((1, 1, 2, 3), np.float32)


def scrape(server: ServerProcess, context: ssl.SSLContext | None = None) -> dict[str, float]:
    """Return every sample by its name and labels."""
    match = re.search(r"metrics at (https?://[^\s\"]+)", server.log_text())
    assert match is not None, server.log_text()
    address = match[1].replace("0.0.0.0", "127.0.0.1")  # of which certificates are
    with urllib.request.urlopen(address, timeout=PATIENCE, context=context) as answer:
        text = answer.read().decode()
    return {
        f"{entry.name}{json.dumps(entry.labels, sort_keys=True)}": entry.value
        for family in text_string_to_metric_families(text)
        for entry in family.samples
    }


def sample(name: str, **labels: str) -> str:
    """Return the key of a sample."""
    return f"{name}{json.dumps(labels, sort_keys=True)}"


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata that carries a token."""
    return (("authorization", f"Bearer {token}"),)


def counted(reason: str) -> Callable[[dict[str, float]], bool]:
    """Return a check whether a scrape has one call refused for a reason."""
    key = sample("nnpa_refused_total", reason=reason)
    return lambda samples: samples.get(key) == 1


def until(server: ServerProcess, holds: Callable[[dict[str, float]], bool]) -> None:
    """Scrape until a condition holds: a call is counted when it has ended, after its answer."""
    deadline = time.monotonic() + PATIENCE
    while not holds(samples := scrape(server)):
        assert time.monotonic() < deadline, samples
        time.sleep(0.05)


def test_operations_calls_bytes_and_sessions(tmp_path: Path) -> None:
    """A list is counted by operation, machine and status; gauges count sessions and bytes."""
    with serving(tmp_path, *FLAGS) as server:
        client = Client(grpc.insecure_channel(server.address))
        twice = (op("add", input_a=1, input_b=1, output=1),) * 2
        client.run(*load(1, DATA), *twice)
        with refused(CODE.NOT_FOUND, "TENSOR_NOT_FOUND"):
            client.run(op("reset_ztensor", ztensor=9))
        until(
            server,
            lambda samples: (
                samples.get(sample("nnpa_refused_total", reason="TENSOR_NOT_FOUND")) == 1
            ),
        )
        samples = scrape(server)
        labels = {"op": "add", "machine": "telum2", "status": "ZDNN_OK"}
        assert samples[sample("nnpa_operations_total", **labels)] == 2
        assert samples[sample("nnpa_operation_seconds_count", op="add")] == 2
        assert samples[sample("nnpa_operation_seconds_sum", op="add")] > 0
        assert samples[sample("nnpa_operation_seconds_bucket", op="add", le="+Inf")] == 2
        assert samples[sample("nnpa_call_seconds_count", method="Execute")] == 2
        assert samples[sample("nnpa_bytes_total", direction="received")] > DATA.nbytes
        assert samples[sample("nnpa_bytes_total", direction="sent")] > 0
        assert samples[sample("nnpa_sessions")] == 1
        assert samples[sample("nnpa_store_bytes")] == 4096
        client.delete()
        until(server, lambda samples: samples[sample("nnpa_sessions")] == 0)
        assert scrape(server)[sample("nnpa_store_bytes")] == 0


def test_warnings_and_program_checks_have_their_own_status(tmp_path: Path) -> None:
    """A range violation and a program check are counted under their names."""
    with serving(tmp_path, *FLAGS) as server:
        client = Client(grpc.insecure_channel(server.address))
        client.run(*load(1, -DATA), *init(2, 1, 1, 2, 3), op("log", input=1, output=2))
        client.run(*init(3, 1, 1, 1, 1))
        with refused(CODE.ABORTED, "PROGRAM_CHECK"):
            client.run(op("add", input_a=1, input_b=3, output=2))
        until(
            server,
            lambda samples: samples.get(sample("nnpa_refused_total", reason="PROGRAM_CHECK")) == 1,
        )
        samples = scrape(server)
        for name, status in (("log", "ZDNN_ELEMENT_RANGE_VIOLATION"), ("add", "PROGRAM_CHECK")):
            labels = {"op": name, "machine": "telum2", "status": status}
            assert samples[sample("nnpa_operations_total", **labels)] == 1


def test_hosted_networks_are_counted(tmp_path: Path) -> None:
    """A run through the inference protocol, and one of a session's network, count their calls."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "dense.onnx").write_bytes(dense())
    feeds = {"x": np.ones((3, 4), np.float32)}
    with serving(tmp_path, *FLAGS, "--models", f"{tmp_path}/models") as server:
        caller = Caller(server.address)
        deadline = time.monotonic() + PATIENCE
        while not caller.stub.ServerReady(oip.ServerReadyRequest()).ready:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        before = calls(scrape(server), "telum2")
        caller.stub.ModelInfer(request("dense", **feeds))
        once = {key: n - before.get(key, 0) for key, n in calls(scrape(server), "telum2").items()}
        assert sum(once.values()) >= 3  # two transforms and a product, at least
        with connect(server.address, machine="z16") as session:
            with session.load(dense()) as network:
                network(feeds["x"])
            until(server, lambda samples: calls(samples, "telum1") == once)


def calls(samples: dict[str, float], machine: str) -> dict[str, float]:
    """Return how often each operation came out OK on a machine."""
    counts = {
        op: samples.get(
            sample("nnpa_operations_total", op=op, machine=machine, status="ZDNN_OK"), 0.0
        )
        for op in FUNCTIONS
    }
    return {op: count for op, count in counts.items() if count}


def test_refused_attempts_are_counted(tmp_path: Path) -> None:
    """No token, an expired one, too many sessions, bytes, and inline bytes: code and count."""
    file = tmp_path / "tokens.toml"
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("mine", "old")}
    file.write_text(
        f'[tokens.a]\nsha256 = "{digests["mine"]}"\nmax_session_bytes = "64KiB"\n'
        f'[tokens.b]\nsha256 = "{digests["old"]}"\nexpires = 2020-01-01T00:00:00Z\n'
    )
    flags = ("--tokens", f"{file}", "--max-sessions", "1", "--max-message", "64KiB")
    with serving(tmp_path, *FLAGS, *flags) as server:
        stub = AcceleratorServiceStub(grpc.insecure_channel(server.address))
        create = pb.CreateSessionRequest()
        for metadata in ((), bearer("wrong"), bearer("old")):
            with refused(CODE.UNAUTHENTICATED, "TOKEN_INVALID"):
                stub.CreateSession(create, metadata=metadata)
        session = stub.CreateSession(create, metadata=bearer("mine")).name
        with refused(CODE.RESOURCE_EXHAUSTED, "SESSION_QUOTA_EXCEEDED"):
            stub.CreateSession(create, metadata=bearer("mine"))
        large = pb.ExecuteRequest(session=session, operations=init(1, 1, 1, 1, 1 << 16))
        with refused(CODE.RESOURCE_EXHAUSTED, "TENSOR_QUOTA_EXCEEDED"):
            stub.Execute(large, metadata=bearer("mine"))
        wide = np.ones((1, 1, 80, 64), np.float32)  # above a quarter of --max-message
        inline = pb.ExecuteRequest(session=session, operations=load(7, wide))
        stub.Execute(inline, metadata=bearer("mine"))
        answer = pb.ExecuteRequest(session=session)
        answer.operations.append(op("transform_origtensor", ztensor=7))
        with refused(CODE.INVALID_ARGUMENT, "MESSAGE_TOO_LARGE"):
            stub.Execute(answer, metadata=bearer("mine"))
        long = pb.ExecuteRequest(session="x" * (64 << 10))
        with pytest.raises(grpc.RpcError, match=r"larger than max \(6\d+ vs. 65536\)"):
            stub.Execute(long, metadata=bearer("mine"))
        expected = {
            "TOKEN_INVALID": 3,
            "SESSION_QUOTA_EXCEEDED": 1,
            "TENSOR_QUOTA_EXCEEDED": 1,
            "MESSAGE_TOO_LARGE": 1,
            "MESSAGE_TOO_LONG": 1,
        }
        keys = {sample("nnpa_refused_total", reason=reason): n for reason, n in expected.items()}
        until(server, lambda samples: keys.items() <= samples.items())


def test_failed_handshakes_are_counted(tmp_path: Path) -> None:
    """A certificate of another CA, none, and no TLS at all: no call, and one count each."""
    ours, second_ca = issue("our CA"), issue("another CA")
    for name, issuer in (("server", ours), ("stranger", second_ca)):
        issue(name, issuer).write(tmp_path, name)
    ours.write(tmp_path, "ca")
    ca = ours.certificate
    stranger = ((tmp_path / "stranger.key").read_bytes(), (tmp_path / "stranger.crt").read_bytes())
    files = ("--tls-cert", "server.crt", "--tls-key", "server.key", "--tls-client-ca", "ca.crt")
    flags = tuple(
        argument if argument.startswith("--") else f"{tmp_path}/{argument}" for argument in files
    )
    with serving(tmp_path, *FLAGS, *flags, "--log-format", "json") as server:
        for channel in (
            grpc.secure_channel(server.address, grpc.ssl_channel_credentials(ca, *stranger)),
            grpc.secure_channel(server.address, grpc.ssl_channel_credentials(ca)),
            grpc.insecure_channel(server.address),
        ):
            with pytest.raises(grpc.RpcError, match="UNAVAILABLE"):
                Client(channel)
            channel.close()
        key = sample("nnpa_refused_total", reason="TLS_HANDSHAKE_FAILED")
        until(server, lambda samples: samples.get(key, 0) >= 3)
        assert server.stop() == 0
        lines = [json.loads(line) for line in server.log_text().splitlines()]
    assert any("CERTIFICATE_VERIFY_FAILED" in line.get("message", "") for line in lines)


def test_beyond_loopback_only_when_asked() -> None:
    """Metrics are for this machine, unless there is TLS or --insecure; a socket is no address."""
    result = CliRunner().invoke(main, ("--metrics", "0.0.0.0:0"))
    assert (result.exit_code, "--metrics 0.0.0.0:0 is reachable" in result.output) == (2, True)
    result = CliRunner().invoke(main, ("--metrics", "unix:/x"))
    assert (result.exit_code, "must be host:port" in result.output) == (2, True)


def test_metrics_over_tls(tmp_path: Path) -> None:
    """Where others can reach the metrics, they are served with the server's certificate."""
    ca = issue("our CA")
    issue("server", ca).write(tmp_path, "server")
    flags = ("--tls-cert", f"{tmp_path}/server.crt", "--tls-key", f"{tmp_path}/server.key")
    listen = ("--listen", "127.0.0.1:0", "--metrics", "0.0.0.0:0")
    context = ssl.create_default_context(cadata=ca.certificate.decode())
    with serving(tmp_path, *listen, *flags) as server:
        assert scrape(server, context)[sample("nnpa_sessions")] == 0


@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "tls"])
def test_silent_clients_leave_room_for_scrapes(tmp_path: Path, is_secure: bool) -> None:
    """The endpoint keeps a bounded number of clients: the oldest goes, a new one is answered."""
    ca = issue("our CA")
    flags: tuple[str, ...] = ()
    context: ssl.SSLContext | None = None
    if is_secure:
        issue("server", ca).write(tmp_path, "server")
        flags = ("--tls-cert", f"{tmp_path}/server.crt", "--tls-key", f"{tmp_path}/server.key")
        context = ssl.create_default_context(cadata=ca.certificate.decode())
    metrics = ("--metrics", "0.0.0.0:0" if is_secure else "127.0.0.1:0")
    with (
        serving(tmp_path, "--listen", "127.0.0.1:0", *metrics, *flags) as server,
        ExitStack() as end,
    ):
        address = re.search(r"metrics at https?://[\d.]+:(\d+)", server.log_text())
        assert address is not None, server.log_text()
        silent = [
            end.enter_context(socket.create_connection(("127.0.0.1", int(address[1]))))
            for _ in range(5 * MAX_SCRAPES)
        ]
        started = time.monotonic()
        assert scrape(server, context)[sample("nnpa_sessions")] == 0
        assert time.monotonic() - started < 3  # before the silent ones have been silent too long
        for client in silent[: 4 * MAX_SCRAPES]:
            client.settimeout(PATIENCE)
            assert client.recv(1) == b""


def test_port_in_use_ends_the_start(tmp_path: Path) -> None:
    """A port in use ends the server with an error before it is ready."""
    with serving(tmp_path, *FLAGS) as server:
        address = server.address
        command = [sys.executable, "-m", "nnpa_server", *FLAGS[:3], address]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert f"cannot serve metrics on {address}" in ended.stderr


def test_durations_fall_into_their_buckets() -> None:
    """A time counts in the first bucket whose bound it does not exceed, the longest in none."""
    metrics = Metrics()
    for seconds in (*BOUNDS, 0.0, 1e9):
        metrics.call("Execute", seconds)
    buckets = metrics.read().call_seconds["Execute"].buckets
    assert buckets == [2, *[1] * (len(BOUNDS) - 1), 1]


def test_runs_of_networks_count_warnings_once() -> None:
    """Of three calls with one warning, two are ZDNN_OK."""
    metrics, violation = Metrics(), 0x00020001
    metrics.network("telum1", {"add": 3}, {("add", violation): 1})
    assert metrics.read().operations == {
        ("add", "telum1", "ZDNN_ELEMENT_RANGE_VIOLATION"): 1,
        ("add", "telum1", "ZDNN_OK"): 2,
    }
