# SPDX-License-Identifier: Apache-2.0
"""Row start: how soon a server that somebody has just started computes."""

import statistics
import time
from collections.abc import Callable

import numpy as np
from nnpa_client import connect, zdnn

from tests.bench.echo import EchoClient
from tests.bench.report import Figure, row
from tests.bench.server import directory, start

_ROUNDS = 7
_ONES = np.ones((2, 3), np.float32)


def _add(address: str) -> None:
    with connect(address) as session:
        a = session.ztensor(_ONES)
        assert zdnn.add(a, a).numpy()[0, 0] == 2


def _echo(address: str) -> None:
    client = EchoClient(address)
    assert client.raw(b"2") == b"2"
    client.channel.close()


def _seconds(call: Callable[[str], None], module: str, *arguments: str) -> float:
    """Return how long it takes from the start of a process to its first answer."""
    began = time.perf_counter()
    process, address = start(module, *arguments)
    try:
        call(address)
        return time.perf_counter() - began
    finally:
        process.terminate()
        process.communicate(timeout=60)


@row(
    "start",
    "start to first zdnn_add, kernels cached, over a bare server's to first echo (time)",
    grpc=True,
)
def start_to_add() -> list[Figure]:
    """Target 4. The first start, which may compile, does not count; clients are imported."""
    socket = f"unix:{directory()}"

    def ours() -> float:
        return _seconds(_add, "nnpa_server", "--listen", f"{socket}/start")

    def bare() -> float:
        return _seconds(_echo, "tests.bench.echo", f"{socket}/start-echo")

    ours()
    pairs = [(ours(), bare()) for _ in range(_ROUNDS)]
    value = statistics.median(mine / theirs for mine, theirs in pairs)
    first = statistics.median(mine for mine, _ in pairs)
    return [Figure("nnpa-server / echo", value, 4, note=f"{first:.2f} s")]
