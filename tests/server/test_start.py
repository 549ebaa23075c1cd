# SPDX-License-Identifier: Apache-2.0
"""A server's start: its imports, its late values, and the first calls that it answers."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from nnpa_server.rpc.lazy import Lazy

COLLECTOR = """
import gc
gc.disable()
from nnpa_server.tuning.process import tune_collector
tune_collector()
print(gc.isenabled(), gc.get_freeze_count() > 0)
"""

# A server and a client beside it.
FIRST_CALLS = """
import os, signal, sys, threading, time
from contextlib import contextmanager
from pathlib import Path
from nnpa_server import __main__, app

FIRST = ("add", "sub", "mul", "div", "min", "max", "relu", "tanh", "exp", "transform_ztensor",
         "transform_origtensor", "getrange_ztensor")
LATE = ("numba", "llvmlite", "scipy", "onnx", "onnxruntime", "mli_emulator", "nnpa_network",
        "nnpa_server.mli.service", "nnpa_server.open_inference.service")
SOCKET = sys.argv[1]

told = []  # printed at the end: the server's line must not come in between

def tell():
    told.append([name for name in LATE if name in sys.modules])

def call():
    while not Path(SOCKET).exists():
        time.sleep(0.01)
    tell()
    from nnpa_client._server.transport import Endpoint, GrpcTransport
    from nnpa_client.errors import ProgramCheck, TransportError
    from nnpa_client.session import Session
    from tests import vector_runner

    class Opened:
        def __init__(self, session):
            self.session = session

        def execute(self, operation):
            try:
                return self.session.execute([operation])[0]
            except TransportError as error:
                raise vector_runner.CallFailedError(error.reason) from error
            except ProgramCheck as error:
                raise vector_runner.CallFailedError("PROGRAM_CHECK") from error

        def move(self, spec):
            self.session.update(spec)

    @contextmanager
    def target(options):
        with Session(GrpcTransport(Endpoint(f"unix:{SOCKET}")), options) as session:
            yield Opened(session)

    count = 0
    for name in FIRST:
        for vector in vector_runner.read(vector_runner.VECTORS / (name + ".jsonl")):
            if "dimension_too_large" not in str(vector):
                vector_runner.run(vector, target)
                count += 1
    told.append(count > 200)
    tell()

def call_and_end():
    try:
        call()
        for line in told:
            print(line, flush=True)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=call_and_end).start()
sys.argv[1:] = ["--listen", f"unix:{SOCKET}"]
__main__.main()
"""


def run(script: str, *arguments: str) -> list[str]:
    """Run a script in a process of its own, in the root of the tree; return its lines."""
    command, root = [sys.executable, "-c", script, *arguments], Path(__file__).parents[2]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=root)
    return done.stdout.splitlines()


def test_the_collector_works_after_the_start() -> None:
    """Cycles are not collected while modules are imported, and are as soon as calls are served."""
    assert run(COLLECTOR) == ["True True"]


@pytest.mark.heavy
def test_first_calls_wait_for_no_compiler(tmp_path: Path) -> None:
    """A start, and the everyday calls behind it, load nothing heavy and have the vectors' bits."""
    socket = tmp_path / "socket"
    lines = [line for line in run(FIRST_CALLS, str(socket)) if "listening" not in line]
    assert lines == ["[]", "True", "[]"]


@pytest.mark.shortcut
def test_a_late_value_is_made_once() -> None:
    """Threads that want something at the same time get the same one; a failure is told to each."""
    begun, objects = threading.Event(), list[object]()

    def make() -> object:
        begun.wait(10)
        objects.append(object())
        return objects[0]

    late, results = Lazy(make), list[object]()
    assert late.peek() is None
    threads = [threading.Thread(target=lambda: results.append(late.get())) for _ in range(4)]
    for thread in threads:
        thread.start()
    begun.set()
    for thread in threads:
        thread.join()
    assert len(objects) == 1
    assert results == objects * 4
    assert late.peek() is objects[0]

    def fail() -> Any:
        raise ImportError("not installed")

    failing = Lazy(fail)
    for _ in range(2):
        with pytest.raises(ImportError, match="not installed"):
            failing.get()
