# SPDX-License-Identifier: Apache-2.0
"""SIGTERM ends a server in time while its workers have models, and the workers with it."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import numpy as np
import pytest
from nnpa_server.sandbox import confinement

from tests.server.network.service_client import Client
from tests.server.network.test_host_nodes_in_workers import await_end, infer
from tests.server.network.test_sandboxed_models import bomb, slow
from tests.server.network.worker_models import endless
from tests.server.process import serving, wait_until

Call: TypeAlias = "grpc.Future[Any]"
DRAIN = 1.0
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(not confinement.is_linux(), reason="workers are Linux processes"),
]


def a_host_node(client: Client) -> Call:
    """Begin to run a node of the host that takes minutes."""
    return infer(client, client.ready(endless()), x=np.ones((400, 400), np.float32))


def a_compilation(client: Client) -> Call:
    """Begin to compile a model that takes long."""
    return client.stub.CreateNetwork.future(client.upload(slow().SerializeToString()))


def shape_inference(client: Client) -> Call:
    """Begin to infer the shapes of a model that takes gigabytes."""
    return client.stub.CreateNetwork.future(client.upload(bomb(1 << 25)))


def children(pid: int) -> set[int]:
    """Return the processes that a process has started and that have not ended."""
    listed = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return {int(child) for line in listed for child in line.split()}


@pytest.mark.parametrize("signals", [1, 2])
@pytest.mark.parametrize("begin", [a_host_node, a_compilation, shape_inference])
def test_the_end_comes_in_time(
    tmp_path: Path, begin: Callable[[Client], Call], signals: int
) -> None:
    """A job of a worker delays neither the end of its server nor, at a second signal, its exit."""
    flags = ("--listen", "127.0.0.1:0", "--drain-timeout", f"{DRAIN if signals == 1 else 60}s")
    with serving(tmp_path, *flags) as server, grpc.insecure_channel(server.address) as channel:
        call = begin(Client(channel))
        wait_until(lambda: bool(children(server.process.pid)))
        time.sleep(0.3)
        assert not call.done()
        workers = children(server.process.pid)
        if signals == 2:
            server.process.terminate()
            wait_until(lambda: "draining" in server.log_text())
        started = time.monotonic()
        assert server.stop() == 0, server.log_text()
        assert time.monotonic() - started < (DRAIN + 1 if signals == 1 else 1)
        assert call.exception() is not None
    assert all(map(await_end, workers))
