# SPDX-License-Identifier: Apache-2.0
"""Kernels that a server compiles beside its calls; nothing is compiled before it is called."""

import os
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path

import grpc
import numpy as np
import psutil
import pytest
from nnpa_emulator.kernels.jit import COMPILE_WORK
from nnpa_server.network.worker_kernels import WorkerKernels
from nnpa_server.tuning.background import BackgroundCompiler
from nnpa_server.tuning.warmup import kernel_mark, steps

from tests.server.process import PATIENCE, ServerProcess, serving, wait_until
from tests.server.wire import Client, load, op

pytestmark = pytest.mark.shortcut
ROOT = Path(__file__).parents[3]
ONES = np.ones((2, 3), np.float32)


def call(server: ServerProcess, count: int) -> None:
    """Add small tensors `count` times, in a session of its own."""
    client = Client(grpc.insecure_channel(server.address))
    client.run(*load(1, ONES), *load(2, ONES))
    for _ in range(count // 100):
        client.run(*[op("add", input_a=1, input_b=2, output=1)] * 100)
    client.delete()


def compilers(server: ServerProcess) -> list[psutil.Process]:
    """Return the processes that a server has started."""
    return psutil.Process(server.process.pid).children(recursive=True)


@pytest.mark.heavy
def test_a_server_that_is_hardly_called_compiles_nothing(tmp_path: Path) -> None:
    """With an empty cache, a start and 200 calls start no process, load no compiler, keep none."""
    env = {"NUMBA_CACHE_DIR": str(tmp_path / "cold")}
    with serving(tmp_path, "--listen", "127.0.0.1:0", env=env) as server:
        call(server, 200)
        with pytest.raises(AssertionError, match="it did not come"):
            wait_until(lambda: bool(compilers(server)), 3)
        assert "llvmlite" not in Path(f"/proc/{server.process.pid}/maps").read_text()
        assert server.stop() == 0
    assert list((tmp_path / "cold").rglob("*.nbi")) == []


@pytest.mark.heavy
def test_a_compilation_yields_and_keeps_no_server_from_ending(tmp_path: Path) -> None:
    """A compiling process has the lowest priority, and ends at once with its server."""
    env = {"NUMBA_CACHE_DIR": str(tmp_path / "cold")}
    with serving(tmp_path, "--listen", "127.0.0.1:0", env=env) as server:
        for _ in range(60):
            call(server, 500)
            if compilers(server):
                break
        (compiler,) = compilers(server)
        wait_until(lambda: compiler.nice() == 19)
        call(server, 100)
        assert server.stop() == 0
        _, alive = psutil.wait_procs([compiler], PATIENCE)
        assert alive == []


BESIDE = """
import os, sys, time
import numpy as np
from nnpa_server.config import kernel_cache, kernel_folder, kernels_are_cached
kernel_cache()
from nnpa_emulator.kernels import elementwise, jit
from nnpa_server.tuning import background

background.PROGRAM = "tests.server.tuning.unhurried_compiler"
jit.compile_by(background.BackgroundCompiler(kernel_folder(), has_kernels=kernels_are_cached()))
codes, out = np.full(2048, 0x3E00, np.uint16), np.zeros(2048, np.uint16)
sums = set()
deadline = time.monotonic() + 300
while not getattr(elementwise.binary, "signatures", None) and time.monotonic() < deadline:
    elementwise.binary(0, codes, codes, out, (1, 1, 1, 32, 64), False)
    sums.add(int(out[0]))
elementwise.binary(0, codes, codes, out, (1, 1, 1, 32, 64), False)
print(sorted({*sums, int(out[0])}), len(elementwise.binary.signatures))
print(sum(elementwise.binary.stats.cache_hits.values()))
"""


@pytest.mark.heavy
def test_a_kernel_that_is_called_often_is_compiled(tmp_path: Path) -> None:
    """Another process compiles it into the cache, this one loads it, and bits are 1 + 1 always."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-c", BESIDE], env=environment, capture_output=True, text=True,
        timeout=6 * PATIENCE, check=True,
    )  # fmt: skip
    assert run.stdout.splitlines() == [f"[{0x4000}] 1", "1"], run.stderr
    assert [file.name.split("-")[0] for file in tmp_path.rglob("*.nbi")].count(
        "elementwise.binary"
    ) == 1


class Ordered(BackgroundCompiler):
    """A compiler that notes what it is to compile, and does nothing."""

    def __init__(self, place: Path) -> None:
        super().__init__(place, has_kernels=False)
        self.orders: list[set[str]] = []

    def compile_steps(self, names: Collection[str], done: Callable[[], None]) -> None:
        """Note the steps, and say that they are done."""
        self.orders.append({*names})
        done()


def test_kernels_of_workers_are_compiled_when_runs_pay(tmp_path: Path) -> None:
    """Functions that workers ran over 128 MiB are ordered once, with what every network needs."""
    compiler = Ordered(tmp_path)
    renewed = list[bool]()
    kernels = WorkerKernels(compiler, tmp_path, lambda: renewed.append(True))
    for _ in range(COMPILE_WORK // (1 << 20) - 1):
        kernels.note(("conv2d", "relu"), 1 << 20)
    assert compiler.orders == []
    for _ in range(3):
        kernels.note(("conv2d", "relu"), 1 << 20)
    beside = {"transform FP32", "reshape", "host operators", "table"}
    expected = {"conv2d", "relu", "conv2d between elements", *beside}
    assert compiler.orders == [expected]
    assert renewed == [True]
    for name in steps():
        kernel_mark(tmp_path, name).touch()
    kernels.note(("lstm",), COMPILE_WORK)
    assert compiler.orders == [expected], "what is compiled already is not ordered"


LOOKS = """
import threading
import numba
import numpy as np
from nnpa_emulator.kernels import jit

assert jit.load()
ended, failures = threading.Event(), []


@numba.njit
def total(array):
    return array.sum() + np.sin(array).max()


def look():
    signature = (numba.types.Array(numba.float32, 2, "C"),)
    kernels = [entry.compiled() for entry in jit.KERNELS.values()]
    while not ended.is_set():
        for kernel in kernels:
            jit._is_cached(kernel, signature)


threads = [threading.Thread(target=look) for _ in range(8)]
for thread in threads:
    thread.start()
try:
    print(total(np.zeros(3, np.float32)))
finally:
    ended.set()
"""


@pytest.mark.heavy
def test_looks_at_the_cache_disturb_no_compilation(tmp_path: Path) -> None:
    """Threads that ask whether a kernel is on disk leave Numba's registries to the compiler."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    answer = subprocess.run(
        [sys.executable, "-c", LOOKS], env=environment, capture_output=True, text=True, timeout=300
    )
    assert answer.stdout == "0.0\n", answer.stderr[-2000:]
