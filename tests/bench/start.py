# SPDX-License-Identifier: Apache-2.0
"""Rows start and 30: the time to a server's first answer, also before kernels are compiled."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping

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
    """Return the seconds from the start of a process to its first answer."""
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


def _demo_seconds(environment: Mapping[str, str]) -> float:
    """Return the seconds of `nnpa demo` to the last line of its report; wait for its end."""
    code = "from nnpa_tools.cli import main; main(['demo'])"
    began, ended = time.perf_counter(), 0.0
    with subprocess.Popen(
        [sys.executable, "-uc", code], env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            if line.split()[:2] == ["as", "promised"]:
                ended = time.perf_counter()
    assert process.returncode == 0
    return ended - began


def _call_seconds(environment: Mapping[str, str]) -> tuple[float, float]:
    """Return the seconds of a server's first matmul_op, 512 wide, and of its first conv2d."""
    command = [sys.executable, "-m", "nnpa_server", "--listen", f"unix:{directory()}/first"]
    with (
        (directory() / "log").open("ab") as log,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log) as process,
    ):
        assert process.stdout is not None
        try:
            return _first_calls(process.stdout.readline().decode().split()[-1])
        finally:
            process.terminate()


def _first_calls(address: str) -> tuple[float, float]:
    with connect(address) as session:
        square = session.ztensor(np.ones((1, 512, 512), np.float32), "3DS")
        bias = session.ztensor(np.ones((1, 512), np.float32), "2DS")
        image = session.ztensor(np.ones((1, 56, 56, 64), np.float32), "NHWC")
        kernel = session.ztensor(np.ones((3, 3, 64, 64), np.float32), "HWCK")
        channels = session.ztensor(np.ones(64, np.float32), "1D")
        began = time.perf_counter()
        zdnn.matmul_op(square, square, bias)
        multiplied = time.perf_counter()
        zdnn.conv2d(image, kernel, channels, zdnn.SAME_PADDING, 1, 1, zdnn.CONV2D_ACT_NONE)
        return multiplied - began, time.perf_counter() - multiplied


@row(
    "30",
    "no kernel compiled: nnpa demo over that with all compiled (time), first calls (s more)",
    grpc=True,
)
def first_run() -> list[Figure]:
    """Target 3, and 3 s more."""
    with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryDirectory() as filled:
        kept = {name: text for name, text in os.environ.items() if name != "NUMBA_CACHE_DIR"}
        cold, warm = {**kept, "XDG_CACHE_HOME": empty}, {**kept, "XDG_CACHE_HOME": filled}
        first = _demo_seconds(cold)
        compiling = [sys.executable, "-m", "nnpa_server", "--compile-kernels"]
        subprocess.run(compiling, env=warm, check=True, capture_output=True)
        second = statistics.median(_demo_seconds(warm) for _ in range(3))
        calls = zip(("matmul_op", "conv2d"), _call_seconds(cold), _call_seconds(warm), strict=True)
        return [
            Figure("demo", first / second, 3, 1.5, note=f"{first:.1f} s, compiled {second:.1f}"),
            *(Figure(name, slow - quick, 3, 1.5) for name, slow, quick in calls),
        ]
