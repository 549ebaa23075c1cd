# SPDX-License-Identifier: Apache-2.0
"""The image's health check: exit code 0 from a server that serves, 1 and a reason from all else."""

import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from nnpa_client import connect

CHECK = Path(__file__).parents[2] / "deploy/health.py"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
NOT_SERVING = b"\0\0\7\0\0\0\0\0\1" + b"\0\0\0\0\2\x08\2"
ENDED = b"\0\0\1\1\5\0\0\0\1\x88"  # headers alone: the call was refused


def check(address: str) -> tuple[int, str]:
    """Return the exit code and the line of a check, as the image runs it."""
    run = subprocess.run(
        [sys.executable, "-I", "-S", str(CHECK), address],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return run.returncode, run.stderr.strip()


@contextmanager
def answering(*parts: bytes) -> Generator[str]:
    """Yield the address of a socket that takes a connection and sends some bytes."""

    def serve() -> None:
        connection, _peer = listener.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(b"".join(parts))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def test_a_server_that_serves() -> None:
    """A private server is found healthy on its socket."""
    with connect() as session:
        assert check(session.target) == (0, "")


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ((SETTINGS, NOT_SERVING), "not serving"),
        ((SETTINGS, ENDED), "the call was refused"),
        ((SETTINGS,), "the server hung up"),
        ((b"HTTP/1.1 400 Bad Request\r\n\r\n",), "a frame of 4740180 bytes; the limit is 16384"),
    ],
    ids=["not serving", "refused", "hung up", "HTTP/1"],
)
def test_what_is_not_healthy(sent: tuple[bytes, ...], reason: str) -> None:
    """Another answer than SERVING, or none, ends with 1 and the reason in one line."""
    with answering(*sent) as address:
        assert check(address) == (1, f"{address}: {reason}")


def test_nobody_listens() -> None:
    """Where nobody listens the check ends with 1 at once."""
    code, line = check("unix:/nonexistent/nnpa.sock")
    assert code == 1
    assert "No such file" in line


def test_it_imports_no_grpc() -> None:
    """The check imports nothing outside of the standard library."""
    code = f"import runpy, sys; runpy.run_path({str(CHECK)!r}); print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    modules = {name.partition(".")[0] for name in run.stdout.split()}
    assert modules - {"__main__"} <= set(sys.stdlib_module_names) | {"__mp_main__"}
