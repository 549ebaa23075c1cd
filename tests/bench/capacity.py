# SPDX-License-Identifier: Apache-2.0
"""What a server takes for its work: `python -m tests.bench.capacity`, for server/SCALING.md.

Seconds are those of the processor, of the server's process and its workers, so that what else the
machine does counts little. Clients are not counted. Bytes are resident memory that was added.
"""

import atexit
import time
from collections.abc import Callable
from functools import partial

import grpc
import numpy as np
import psutil
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa_network.reporting.measuring import Measurer, Settings
from rich.console import Console
from rich.table import Table

from tests.bench.full_size import resnet18
from tests.bench.models import perceptron, taken
from tests.bench.report import look_at_machine
from tests.bench.server import start
from tests.bench.validation import with_free_batch
from tests.network.acceptance.trial import on_one_thread
from tests.server.onnx_models import Caller, request
from tests.server.wire import Client, load, op

_SECONDS = 5.0  # of each row, on the clock
_MIB = 1 << 20
_SESSIONS = 50
_ROWS = 4  # images of a batch
_FLAGS = ("--listen", "127.0.0.1:0", "--max-sessions", "200")
_OPTIONS = (("grpc.max_receive_message_length", 64 * _MIB),)


def _seconds(pid: int) -> float:
    """Return the seconds of processor time that a process and its children have had."""
    whole = psutil.Process(pid)
    times = [process.cpu_times() for process in (whole, *whole.children(recursive=True))]
    return sum(used.user + used.system for used in times)


def _each(pid: int, work: Callable[[], object]) -> float:
    """Return the processor seconds of a process for one piece of work."""
    for _ in range(20):
        work()
    before, until, count = _seconds(pid), time.monotonic() + _SECONDS, 0
    while time.monotonic() < until:
        work()
        count += 1
    return (_seconds(pid) - before) / count


def _sessions(address: str, pid: int) -> dict[str, float]:
    """Return what sessions and their calls take."""
    client = Client(grpc.insecure_channel(address, _OPTIONS))
    stub, small = client.stub, np.ones((1, 1, 32, 64), np.float32)
    client.run(*load(1, small), *load(2, small))
    add = op("add", input_a=1, input_b=1, output=2)
    large = np.ones((1, 1, 256, 1024), np.float32)

    def session() -> None:
        made = stub.CreateSession(pb.CreateSessionRequest())
        stub.DeleteSession(pb.DeleteSessionRequest(name=made.name))

    client.run(*load(3, large))
    one, many = client.request(add), client.request(*[add] * 100)
    array = client.request(load(3, large)[-1])
    return {
        "session, made and deleted": _each(pid, session),
        "call of one add, 32x64": _each(pid, partial(stub.Execute, one)),
        "call of 100 adds, 32x64": _each(pid, partial(stub.Execute, many)),
        "call with an array of 1 MiB": _each(pid, partial(stub.Execute, array)),
    }


def _models(address: str, pid: int) -> dict[str, float]:
    """Return what inferences of published models take."""
    caller = Caller(address, *_OPTIONS)
    rng = np.random.default_rng(1)
    caller.load("mlp", perceptron())
    caller.load("resnet18", resnet18())
    small = request("mlp", x=rng.standard_normal((1, 64)).astype(np.float32))
    image = request("resnet18", image=rng.standard_normal((1, 3, 224, 224)).astype(np.float32))
    return {
        "inference, MLP": _each(pid, partial(caller.stub.ModelInfer, small)),
        "inference, ResNet-18": _each(pid, partial(caller.stub.ModelInfer, image)),
    }


def _dataset() -> dict[str, float]:
    """Return what a row of a dataset takes in this process: each machine, and FP32 beside."""
    model = with_free_batch(resnet18())
    images = np.random.default_rng(2).standard_normal((_ROWS, 3, 224, 224)).astype(np.float32)
    measurer = Measurer(model, settings=Settings(_ROWS, node_rows=1))
    measurer.measure(0, {"image": images})
    runtime = on_one_thread(model)

    def seconds(work: Callable[[], object]) -> float:
        before = time.process_time()
        for _ in range(3):
            work()
        return (time.process_time() - before) / 3 / _ROWS

    both = seconds(lambda: measurer.measure(64 * _ROWS, {"image": images}))
    return {
        "image of ResNet-18, both Telums and FP32": both,
        "image of ResNet-18, ONNX Runtime alone": seconds(
            lambda: runtime.run(None, {"image": images})
        ),
    }


def _memory(address: str, pid: int) -> dict[str, int]:
    """Return the bytes that sessions add to a server: empty ones, and with a tensor of 1 MiB."""
    channel = grpc.insecure_channel(address, _OPTIONS)
    idle = taken(pid)
    clients = [Client(channel) for _ in range(_SESSIONS)]
    empty = taken(pid)
    for client in clients:
        client.run(*load(1, np.ones((1, 1, 256, 1024), np.float32)))
    full = taken(pid)
    for client in clients:
        client.delete()
    return {
        "server": idle,
        "session": (empty - idle) // _SESSIONS,
        "session with 1 MiB of FP32, a stick of half of it": (full - idle) // _SESSIONS,
    }


def main() -> None:
    """Print how often a core does each, in a second, and the bytes."""
    process, address = start("nnpa_server", *_FLAGS)
    atexit.register(process.terminate)
    console = Console(width=100)
    header = look_at_machine()
    console.print(f"CPU {header.cpu}, {header.cores} cores; {header.versions}")
    rates = Table("work", "ms of a core", "a second and core", title="processor")
    rows = {**_sessions(address, process.pid), **_models(address, process.pid), **_dataset()}
    for name, seconds in rows.items():
        rates.add_row(name, f"{seconds * 1e3:.3g}", f"{1 / seconds:.4g}")
    console.print(rates)
    sizes = Table("what", "KiB", title="memory")
    for name, size in _memory(address, process.pid).items():
        sizes.add_row(name, f"{size / 1024:.4g}")
    console.print(sizes)


if __name__ == "__main__":
    main()
