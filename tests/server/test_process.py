# SPDX-License-Identifier: Apache-2.0
"""The process: ready line, sockets, TLS, health, reflection, private servers, exit codes."""

import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from click.testing import CliRunner
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from nnpa.oip import open_inference_grpc_pb2 as oip
from nnpa.oip.open_inference_grpc_pb2_grpc import GRPCInferenceServiceStub
from nnpa_server import __main__
from nnpa_wire.installation import pip_install

from tests.certificates import Party, issue
from tests.server.process import PATIENCE, serving
from tests.server.wire import Client, load, op

DATA = np.ones((1, 1, 2, 3), np.float32)
ANY_PORT = ("--listen", "127.0.0.1:0")
CODE = grpc.StatusCode


def round_trip(channel: grpc.Channel) -> None:
    """Have a server add something."""
    client = Client(channel)
    client.run(*load(1, DATA), op("add", input_a=1, input_b=1, output=1))
    assert np.array_equal(client.array(1), 2 * DATA.ravel())
    client.delete()


def test_several_listeners_and_a_clean_end(tmp_path: Path) -> None:
    """One ready line per listener, the picked port in it; SIGTERM ends with 0 and says so."""
    socket = tmp_path / "nnpa.sock"
    flags = (*ANY_PORT, "--listen", f"unix:{socket}")
    with serving(tmp_path, *flags, listeners=2) as server:
        assert server.addresses[1] == f"unix:{socket}"
        assert int(server.address.rpartition(":")[2]) > 0
        for address in server.addresses:
            round_trip(grpc.insecure_channel(address))
        server.process.terminate()
        assert server.stdout.read() == b""
        assert server.wait() == 0
        assert "ended, all calls finished" in server.log_text()
    assert not socket.exists()


def test_health_and_reflection(tmp_path: Path) -> None:
    """Health tells of the server and the service, reflection names the service."""
    with serving(tmp_path, *ANY_PORT) as server:
        channel = grpc.insecure_channel(server.address)
        stub: Any = health_pb2_grpc.HealthStub(channel)
        for service in ("", "nnpa.zdnn.v1.AcceleratorService"):
            answer = stub.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        mirror: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (listed,) = mirror.ServerReflectionInfo(iter([request]))
        names = {entry.name for entry in listed.list_services_response.service}
        assert "nnpa.zdnn.v1.AcceleratorService" in names


@pytest.mark.heavy
def test_stale_socket_is_taken_and_a_live_one_is_not(tmp_path: Path) -> None:
    """A socket that a killed server left is reused; a server that runs keeps its own."""
    listen = ("--listen", f"unix:{tmp_path}/s")
    with serving(tmp_path, *listen) as killed:
        killed.process.kill()
        killed.wait()
    with serving(tmp_path, *listen) as server:
        command = [sys.executable, "-m", "nnpa_server", *listen]
        second = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert (second.returncode, second.stdout) == (1, "")
        assert "another server" in second.stderr
        round_trip(grpc.insecure_channel(server.address))


@pytest.mark.heavy
def test_port_in_use_ends_with_1(tmp_path: Path) -> None:
    """A port that is taken is said in one line."""
    with serving(tmp_path, *ANY_PORT) as server:
        command = [sys.executable, "-m", "nnpa_server", "--listen", server.address]
        second = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert second.returncode == 1
    assert f"cannot listen on {server.address}" in second.stderr


def test_a_socket_in_no_folder_ends_with_1(tmp_path: Path) -> None:
    """A socket whose folder does not exist is said in one line, of ours."""
    address = f"unix:{tmp_path}/nowhere/nnpa.sock"
    command = [sys.executable, "-m", "nnpa_server", "--listen", address]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    text = f"cannot listen on {address}: there is no folder {tmp_path}/nowhere\n"
    assert (ended.returncode, ended.stderr) == (1, f"nnpa-server: {text}")


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--listen", "0.0.0.0:0"), "--insecure"),
        (("--listen", "nowhere"), "'--listen': address is 'nowhere', must be host:port (0"),
        (("--metrics", "nowhere"), "'--metrics': address is 'nowhere', must be host:port"),
        (("--max-message", "much"), "must be a number"),
        (("--tls-cert", __file__), "go together"),
        (("--workers", "1"), "--workers"),
        (("--max-connections", "0"), "--max-connections"),
        (("--message-timeout", "1ms"), "must be at least 100ms"),
        (("--reflection", "maybe"), "'auto', 'on', 'off'"),
        (("--slow", "soon"), "must be a number"),
        (("--health-listen", "nowhere"), "host:port"),
        (("--health-listen", "0.0.0.0:0"), "--health-listen 0.0.0.0:0 is reachable"),
        (("--no-such-flag",), "No such option"),
    ],
)
def test_usage_errors_end_with_2(flags: tuple[str, ...], says: str) -> None:
    """A flag that cannot be followed is a usage error, before anything starts."""
    command = [sys.executable, "-m", "nnpa_server", *flags]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (result.returncode, result.stdout) == (2, "")
    assert says in result.stderr


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_models_need_the_packages_for_onnx(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--models without the packages that read models is a usage error with the command."""
    monkeypatch.setattr(__main__, "find_spec", {"onnx": "", "onnxruntime": "", missing: None}.get)
    ended = CliRunner().invoke(__main__.main, ("--models", str(tmp_path)))
    assert ended.exit_code == 2
    assert f"--models needs {missing}: {pip_install('onnx')}" in ended.output


def test_version_and_help() -> None:
    """--version names the product; --help tells every flag's default."""
    run = [sys.executable, "-m", "nnpa_server"]
    version = subprocess.run([*run, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.startswith("nnpa-server, version ")
    help_text = subprocess.run([*run, "--help"], capture_output=True, text=True, check=True).stdout
    for text in ("8GiB", "15m", "64MiB", "100000", "127.0.0.1:50051", "Exit"):
        assert text in help_text


def test_documents_call_no_server_ready_that_listens() -> None:
    """Help and manual say "listens" of the first line, and "ready" of the models."""
    shown = CliRunner().invoke(__main__.main, ("--help",)).output
    manual = (Path(__file__).parents[2] / "deploy/docs/server/flags.md").read_text()
    for text in (shown, manual):
        sentences = " ".join(text.split()).split(". ")
        of_lines = [sentence for sentence in sentences if "nnpa-server listening on" in sentence]
        of_models = [sentence for sentence in sentences if "ServerReady" in sentence]
        assert of_lines
        assert not any("ready" in sentence for sentence in of_lines)
        assert any("ready" in sentence for sentence in of_models)


def test_insecure_beyond_loopback_is_a_choice(tmp_path: Path) -> None:
    """With --insecure the server listens everywhere."""
    with serving(tmp_path, "--listen", "0.0.0.0:0", "--insecure") as server:
        port = server.address.rpartition(":")[2]
        round_trip(grpc.insecure_channel(f"127.0.0.1:{port}"))


@pytest.fixture
def certificates(tmp_path: Path) -> dict[str, Party]:
    """A CA, a server and a client that it signed; the files lie in tmp_path."""
    ca = issue("nnpa test CA")
    parties = {"ca": ca, "server": issue("server", ca), "client": issue("client", ca)}
    for name, party in parties.items():
        party.write(tmp_path, name)
    return parties


def test_tls_and_mutual_tls(tmp_path: Path, certificates: dict[str, Party]) -> None:
    """TLS serves clients that trust the CA; with a client CA only those with its certificate."""
    tls = ("--tls-cert", f"{tmp_path}/server.crt", "--tls-key", f"{tmp_path}/server.key")
    ca, client = certificates["ca"].certificate, certificates["client"]
    trusting = grpc.ssl_channel_credentials(ca)
    knowing = grpc.ssl_channel_credentials(ca, client.key, client.certificate)
    with serving(tmp_path, *ANY_PORT, *tls) as server:
        round_trip(grpc.secure_channel(server.address, trusting))
        unreachable(grpc.insecure_channel(server.address))
        stub = GRPCInferenceServiceStub(grpc.secure_channel(server.address, trusting))
        assert stub.ServerLive(oip.ServerLiveRequest()).live
    with serving(tmp_path, *ANY_PORT, *tls, "--tls-client-ca", f"{tmp_path}/ca.crt") as server:
        round_trip(grpc.secure_channel(server.address, knowing))
        unreachable(grpc.secure_channel(server.address, trusting))


def unreachable(channel: grpc.Channel) -> None:
    """Expect that a channel gets no connection."""
    with pytest.raises(grpc.RpcError) as caught:
        Client(channel)
    error: Any = caught.value
    assert error.code() is CODE.UNAVAILABLE


@pytest.mark.parametrize(
    ("cert", "key", "client_ca", "says"),
    [
        ("server.key", "server.crt", "ca.crt", "--tls-cert server.key, --tls-key server.crt: "),
        ("server.crt", "other.key", "ca.crt", "--tls-cert server.crt, --tls-key other.key: "),
        ("no key", "no key", "ca.crt", "--tls-cert no key, --tls-key no key: expected a cert"),
        ("server.crt", "server.key", "no key", "--tls-client-ca no key: expected certificates"),
    ],
)
@pytest.mark.usefixtures("certificates")
def test_bad_files_of_tls_are_named(
    cert: str, key: str, client_ca: str, says: str, tmp_path: Path
) -> None:
    """Files that are no certificate and its key are usage errors that name flag and file."""
    issue("other").write(tmp_path, "other")
    (tmp_path / "no key").write_text("no key")
    tls = ("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", client_ca)
    command = [sys.executable, "-m", "nnpa_server", *ANY_PORT, *tls]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert (result.returncode, result.stdout) == (2, "")
    assert says in result.stderr
    assert "add_port.cc" not in result.stderr


PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-m", "nnpa_server", "--listen", "127.0.0.1:0",
                          "--exit-with-parent"], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_private_server_ends_with_a_killed_parent() -> None:
    """--exit-with-parent ends the server when its parent dies, even by SIGKILL."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as parent:  # fmt: skip
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + 10
    while alive(child):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def alive(pid: int) -> bool:
    """Tell whether a process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.heavy
@pytest.mark.parametrize("is_asked", [False, True])
def test_private_server_ends_when_its_input_closes(tmp_path: Path, is_asked: bool) -> None:
    """A pipe as standard input that is closed ends the server too, and does not hurry its end."""
    listen = ("--listen", f"unix:{tmp_path}/nnpa.sock")
    command = [sys.executable, "-m", "nnpa_server", *listen, "--exit-with-parent"]
    log = tmp_path / "log"
    with log.open("wb") as lines, subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=lines
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        if is_asked:
            process.terminate()
        process.stdin.close()
        assert process.wait(PATIENCE) == 0
    assert "all calls finished" in log.read_text()
    assert list(tmp_path.iterdir()) == [log], "both of its sockets are gone"


@pytest.mark.heavy
def test_unwritable_kernel_cache_is_never_fatal(tmp_path: Path) -> None:
    """Without a place for compiled kernels the server says so in one line, and serves."""
    nowhere = tmp_path / "file"
    nowhere.write_text("no directory")
    env = {"NUMBA_CACHE_DIR": f"{nowhere}/a", "XDG_CACHE_HOME": f"{nowhere}/b"}
    blocked = "import tempfile; tempfile.tempdir = r'{}'".format(f"{nowhere}/c")
    start = f"{blocked}; import runpy; runpy.run_module('nnpa_server', run_name='__main__')"
    with subprocess.Popen(
        [sys.executable, "-c", start, *ANY_PORT], env={**os.environ, **env},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert "no writable directory for compiled kernels" in process.stderr.readline()
        line = process.stdout.readline()
        round_trip(grpc.insecure_channel(line.split()[-1]))
        process.terminate()
        process.stderr.read()
        assert process.wait(PATIENCE) == 0


def test_onnx_runtime_starts_no_thread() -> None:
    """A server that imports ONNX Runtime for a model has no thread more, which would report it."""
    code = """
import os, sys
from nnpa_server import __main__, app

def serve(config):
    before = len(os.listdir("/proc/self/task"))
    import onnxruntime
    print(len(os.listdir("/proc/self/task")) - before)
    return 0

app.serve = serve
__main__.main(["--listen", "unix:/unused.sock"])
"""
    run = [sys.executable, "-c", code]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    environment.pop("ORT_DISABLE_TELEMETRY", None)
    ended = subprocess.run(run, capture_output=True, text=True, check=True, env=environment)
    assert ended.stdout == "0\n"


def _arenas(pid: int) -> int:
    """Count malloc's arenas beside the heap: 64 MiB each, the unused part without access.

    Source: glibc, malloc/arena.c, HEAP_MAX_SIZE.
    """
    spans: list[tuple[int, int, str]] = []
    for line in Path(f"/proc/{pid}/maps").read_text("ascii", "replace").splitlines():
        place, access, *_ = line.split()
        first, end = (int(part, 16) for part in place.split("-"))
        spans.append((first, end, access))
    return sum(
        first % (64 << 20) == 0 and unused == end and last - first == 64 << 20
        for (first, end, access), (unused, last, none) in pairwise(spans)
        if (access, none) == ("rw-p", "---p")
    )


@pytest.mark.shortcut
def test_threads_share_one_arena(tmp_path: Path) -> None:
    """A call reuses memory that an earlier one freed: no thread has a malloc arena of its own."""
    with serving(tmp_path, *ANY_PORT) as server, grpc.insecure_channel(server.address) as channel:
        Client(channel).run(*load(1, np.ones((1, 1, 512, 512), np.float32)))
        assert _arenas(server.process.pid) == 0
