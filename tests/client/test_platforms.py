# SPDX-License-Identifier: Apache-2.0
"""The client on macOS and Windows, in processes that lack what these platforms lack."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from nnpa_client._server.private_server import PrivateServer

PROGRAM = Path(__file__).with_name("other_platform.py")
PLATFORMS = ("win32", "darwin")


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    """The address of a server over TCP, which runs in this process as it is."""
    server = PrivateServer("127.0.0.1:0")
    yield server.target
    server.stop()


def run(platform: str, task: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a task of `other_platform` in a process that imitates a platform."""
    command = [sys.executable, str(PROGRAM), platform, task, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_imports_every_public_module(platform: str) -> None:
    """No public module of the client needs at import time what the platform lacks."""
    imported = run(platform, "import")
    assert imported.returncode == 0, imported.stderr
    assert {"nnpa_client.session", "nnpa_client.pytest_plugin", "nnpa_files.external_data"} <= set(
        imported.stdout.split()
    )


@pytest.mark.parametrize("platform", PLATFORMS)
def test_adds_at_a_server_over_tcp(platform: str, target: str) -> None:
    """A session at host:port computes, with the shortcuts and without."""
    added = run(platform, "add", target)
    assert added.returncode == 0, added.stderr
    assert added.stdout.split() == ["[[2.0,", "4.0]]", "[[2.0,", "4.0]]"]


@pytest.mark.heavy
@pytest.mark.parametrize("platform", PLATFORMS)
def test_private_server_needs_linux(platform: str) -> None:
    """A private server is refused with the reason and the remedy, before a process starts."""
    refused = run(platform, "refuse")
    assert refused.returncode == 0, refused.stderr
    assert refused.stdout.strip() == (
        "TransportError: UNAVAILABLE: no private server could be started: it needs Linux, this is "
        f"{platform}. Or use a server that runs already: connect('host:port')."
    )


@pytest.mark.heavy
def test_unix_socket_is_refused_on_windows() -> None:
    """A Unix socket is refused with the reason and the remedy where Python has none."""
    refused = run("win32", "refuse", "unix:/run/nnpa.sock")
    assert refused.returncode == 0, refused.stderr
    assert refused.stdout.strip() == (
        "ValueError: target: 'unix:/run/nnpa.sock': a Unix socket needs Linux or macOS; "
        "give host:port"
    )


@pytest.mark.heavy
@pytest.mark.parametrize("platform", PLATFORMS)
def test_reads_external_data(platform: str, tmp_path: Path) -> None:
    """Tensors beside a model are read without the flags that Windows lacks."""
    from onnx import TensorProto, helper, save_model

    weight = helper.make_tensor("w", TensorProto.FLOAT, [64], [1.0] * 64)
    graph = helper.make_graph([], "g", [], [], [weight])
    save_model(
        helper.make_model(graph),
        str(tmp_path / "m.onnx"),
        save_as_external_data=True,
        location="m.bin",
        size_threshold=0,
    )
    read = run(platform, "read", str(tmp_path / "m.onnx"))
    assert read.returncode == 0, read.stderr
    assert int(read.stdout) > 64 * 4


@pytest.mark.heavy
def test_suite_uses_a_server_that_runs_on_windows(target: str, tmp_path: Path) -> None:
    """The pytest plugin opens sessions at the server of --nnpa-server."""
    (tmp_path / "test_it.py").write_text(
        "def test_session(nnpa_session):\n    assert nnpa_session.machine.nnpa_installed\n"
    )
    ran = run("win32", "pytest", str(tmp_path), f"--nnpa-server={target}")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout


@pytest.mark.heavy
def test_worker_processes_share_no_server_on_windows() -> None:
    """The pytest plugin configures no worker processes: Windows has no server for them to share."""
    configured = run("win32", "configure")
    assert configured.returncode == 0, configured.stderr
    assert configured.stdout.strip() == "{}"
