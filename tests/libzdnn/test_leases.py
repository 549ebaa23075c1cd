# SPDX-License-Identifier: Apache-2.0
"""Sessions of C programs end with their processes, however these end."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.libzdnn import toolchain
from tests.libzdnn.toolchain import Prefix
from tests.server.process import ServerProcess, orphans, serving, wait_until

CHILDREN = int(os.environ.get("NNPA_LEASE_CHILDREN", "200"))
PLACES = 64
PAUSE = 130.0  # seconds: gRPC would ping after 60 and end the connection after 60 more


@pytest.fixture
def program(prefix: Prefix, tmp_path: Path) -> str:
    """The compiled program."""
    source = Path(__file__).parent / "programs/leases.c"
    return str(toolchain.compiled(source, tmp_path / "leases", prefix, "-std=gnu11"))


@pytest.fixture(params=["tcp", "unix"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of 64 sessions."""
    listen = "127.0.0.1:0" if request.param == "tcp" else f"unix:{tmp_path}/nnpa.sock"
    flags = ("--max-sessions", str(PLACES), "--shared-memory", "--lease-grace", "1s")
    with serving(tmp_path, "--listen", listen, *flags) as process:
        yield process


def sessions(server: ServerProcess) -> int:
    """Count the sessions of a server by its audit log."""
    log = server.log_text()
    return log.count("event=session_created") - log.count("event=session_ended")


def test_children_leave_nothing(program: str, server: ServerProcess) -> None:
    """Many children in a row that end by _exit, abort or a signal are served, and leave nothing."""
    before = orphans()
    done = subprocess.run(
        [program, str(CHILDREN)],
        env=toolchain.environment(ZDNN_SERVER=server.address),
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.stdout == f"{CHILDREN} of {CHILDREN} right\n", done.stderr
    wait_until(lambda: sessions(server) == 0)
    assert orphans() <= before


def test_without_leases_the_server_fills_up(program: str, server: ServerProcess) -> None:
    """ZDNN_LEASE=0 turns leases off: sessions of ended processes keep their places."""
    done = subprocess.run(
        [program, str(PLACES + 1)],
        env=toolchain.environment(ZDNN_SERVER=server.address, ZDNN_LEASE="0"),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout == f"{PLACES} of {PLACES + 1} right\n"
    assert "SESSION_QUOTA_EXCEEDED" in done.stderr


def test_a_forked_child_keeps_its_own(program: str, server: ServerProcess) -> None:
    """A killed parent's session goes though a child lives on; the child's own stays with it."""
    with subprocess.Popen(
        [program, "orphan"],
        env=toolchain.environment(ZDNN_SERVER=server.address),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        assert sessions(server) == 1
        parent.kill()
        wait_until(lambda: sessions(server) == 0)
        parent.stdin.write("\n")
        parent.stdin.flush()
        assert parent.stdout.readline() == "right\n"
        assert sessions(server) == 1
        parent.stdin.write("\n")
        parent.stdin.flush()
    wait_until(lambda: sessions(server) == 0)


@pytest.mark.heavy
@pytest.mark.parametrize("server", ["tcp"], indirect=True)
def test_a_program_that_pauses_keeps_its_session(program: str, server: ServerProcess) -> None:
    """A program that makes no call, so that nothing answers pings of HTTP/2, keeps its session."""
    with subprocess.Popen(
        [program, "pause"],
        env=toolchain.environment(ZDNN_SERVER=server.address),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as paused:
        assert paused.stdin is not None
        assert paused.stdout is not None
        assert paused.stdout.readline() == "right\n"
        time.sleep(PAUSE)
        paused.stdin.write("\n")
        paused.stdin.flush()
        assert paused.stdout.readline() == "right\n"
        assert server.log_text().count("event=session_created") == 1
