# SPDX-License-Identifier: Apache-2.0
"""A Ray cluster on loopback whose nodes are real `ray start` processes. Needs Ray."""

import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from tests.server.process import PATIENCE, wait_until

HAS_RAY = find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not HAS_RAY, reason="there is no Ray here: pip install 'nnpa[ray]'")
_STARTED = "Ray runtime started"
_STORE_BYTES = 100_000_000


class Node:
    """A `ray start` in the foreground, and all processes that it has begun."""

    def __init__(
        self, folder: Path, options: list[str], python: str, environment: Mapping[str, str]
    ) -> None:
        words = ["start", "--block", "--disable-usage-stats", "--temp-dir", str(folder)]
        ports = ["--min-worker-port", "0", "--max-worker-port", "0"]
        store = ["--object-store-memory", str(_STORE_BYTES)]
        self._log = folder / f"{os.urandom(4).hex()}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [python, "-m", "ray.scripts.scripts", *words, *ports, *store, *options],
                stdout=log,
                stderr=log,
                env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", **environment},
            )
        wait_until(self._has_started, 4 * PATIENCE)

    def _has_started(self) -> bool:
        text = self._log.read_text(errors="replace")
        assert self._process.poll() is None, text
        return _STARTED in text

    def processes(self) -> list[psutil.Process]:
        """Return the living processes of this node."""
        if self._process.poll() is not None:
            return []
        own = psutil.Process(self._process.pid)
        return [own, *own.children(recursive=True)]

    def kill(self) -> None:
        """End every process of this node at once, with SIGKILL."""
        processes = self.processes()
        for process in processes:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self._process.wait()
        psutil.wait_procs(processes, PATIENCE)


class Cluster:
    """A head node at `address`, for drivers elsewhere at `client`, and nodes that join it."""

    def __init__(self, folder: Path, port: int, client_port: int) -> None:
        self._folder, self._nodes = folder, list[Node]()
        self.address, self.client = f"127.0.0.1:{port}", f"ray://127.0.0.1:{client_port}"
        self._head = ["--head", "--port", str(port), "--ray-client-server-port", str(client_port)]

    def start(
        self,
        cores: int,
        python: str = sys.executable,
        environment: Mapping[str, str] | None = None,
    ) -> Node:
        """Start a node with `cores` CPUs; the first node is the head."""
        role = ["--address", self.address] if self._nodes else self._head
        extra = [] if self._nodes else ["--include-dashboard", "false"]
        options = [*role, *extra, "--num-cpus", str(cores)]
        node = Node(self._folder, options, python, environment or {})
        self._nodes.append(node)
        return node

    def processes(self) -> list[psutil.Process]:
        """Return the living processes of all nodes."""
        return [process for node in self._nodes for process in node.processes()]

    def end(self) -> None:
        """End all nodes, the head last."""
        for node in reversed(self._nodes):
            node.kill()


@contextmanager
def cluster(port: int, client_port: int) -> Generator[Cluster]:
    """Yield a cluster without nodes; nodes that are started end with the block."""
    with ExitStack() as stack:
        # Paths of Ray's sockets have at most 107 bytes: pytest's own folders are too deep.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ray-")))
        ray_cluster = Cluster(folder, port, client_port)
        stack.callback(ray_cluster.end)
        yield ray_cluster


def python_without_nnpa(folder: Path) -> str:
    """Return a Python that has the packages of this one, Ray too, and not nnpa."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin/python"
    packages = sysconfig.get_path("purelib", vars={"base": str(folder)})
    # Its own .pth files are not read there, so that what is installed as editable is not seen.
    (Path(packages) / "outside.pth").write_text(sysconfig.get_path("purelib") + "\n")
    lacks = "import importlib.util as u, sys; sys.exit(u.find_spec('nnpa_tools') is not None)"
    assert subprocess.run([python, "-c", lacks], check=False).returncode == 0
    return str(python)
