# SPDX-License-Identifier: Apache-2.0
"""Measure a server's processor time and memory: `python -m tests.bench.capacity`.

deploy/docs/server/scaling.md shows the figures.

Seconds are processor time of the server's process and its workers, so that other work of the
machine counts little. Clients are not counted. Bytes are resident memory that was added.
"""

import atexit
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import TypeAlias

import grpc
import numpy as np
import psutil
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa_network.reporting.measuring import Measurer, Settings

from tests.bench.full_size import resnet18
from tests.bench.models import family_memory, perceptron
from tests.bench.report import look_at_machine
from tests.bench.server import start
from tests.bench.validation import with_free_batch
from tests.server.onnx_models import Caller, request
from tests.server.wire import Client, load, op

_SMALL, _LARGE = 500, 10  # how often a piece of work is done
_FIRST = 10  # of them are not measured: a model's plan is made, and its worker ends
_MIB = 1 << 20
_SESSIONS = 50
Rows: TypeAlias = Iterator[tuple[str, float]]
_ROWS = 4  # images of a batch
_SESSION, _CALL, _LIST = (
    "session, made and deleted",
    "call of one add, 32x64",
    "call of 100 adds, 32x64",
)
_INFERENCES = ("inference, MLP of 11 nodes", "inference, ResNet-18")
_IMAGE = "image of a dataset, ResNet-18, both Telums and FP32"
_USE = 0.7  # of a core: what a fleet is planned for
# Kernels are loaded by the first calls, not beside those that are measured.
_FLAGS = ("--listen", "127.0.0.1:0", "--max-sessions", "200", "--plain=warm-up")
_OPTIONS = (("grpc.max_receive_message_length", 64 * _MIB),)


def _seconds(pid: int) -> float:
    """Return the seconds of processor time that a process and its children have had."""
    server = psutil.Process(pid)
    whole = server.cpu_times()
    ended = whole.children_user + whole.children_system
    times = (whole, *(child.cpu_times() for child in server.children(recursive=True)))
    return ended + sum(used.user + used.system for used in times)


def _each(pid: int, work: Callable[[], object], count: int) -> float:
    """Return the processor seconds of a process for one of `count` pieces of work."""
    for _ in range(max(_FIRST, count // 5)):
        work()
    before = _seconds(pid)
    for _ in range(count):
        work()
    return (_seconds(pid) - before) / count


def _sessions(address: str, pid: int) -> Rows:
    """Yield the seconds of sessions and their calls."""
    client = Client(grpc.insecure_channel(address, _OPTIONS))
    stub, small = client.stub, np.ones((1, 1, 32, 64), np.float32)
    client.run(*load(1, small), *load(2, small))
    add = op("add", input_a=1, input_b=1, output=2)
    large = np.ones((1, 1, 256, 1024), np.float32)

    def session() -> None:
        created = stub.CreateSession(pb.CreateSessionRequest())
        stub.DeleteSession(pb.DeleteSessionRequest(name=created.name))

    client.run(*load(3, large))
    add_request, list_request = client.request(add), client.request(*[add] * 100)
    array = client.request(load(3, large)[-1])
    yield _SESSION, _each(pid, session, _SMALL)
    yield _CALL, _each(pid, partial(stub.Execute, add_request), _SMALL)
    yield _LIST, _each(pid, partial(stub.Execute, list_request), _SMALL)
    yield "call with an array of 1 MiB", _each(pid, partial(stub.Execute, array), _SMALL)


def _models(address: str, pid: int) -> Rows:
    """Yield the seconds of inferences of published models."""
    caller = Caller(address, *_OPTIONS)
    rng = np.random.default_rng(1)
    caller.load("mlp", perceptron())
    small = request("mlp", x=rng.standard_normal((1, 64)).astype(np.float32))
    image = request("resnet18", image=rng.standard_normal((1, 3, 224, 224)).astype(np.float32))
    yield _INFERENCES[0], _each(pid, partial(caller.stub.ModelInfer, small), _SMALL)
    caller.load("resnet18", resnet18())
    yield _INFERENCES[1], _each(pid, partial(caller.stub.ModelInfer, image), _LARGE)


def _dataset() -> Rows:
    """Yield the seconds of a dataset's row in this process: on both machines, and in FP32."""
    model = with_free_batch(resnet18())
    images = np.random.default_rng(2).standard_normal((_ROWS, 3, 224, 224)).astype(np.float32)
    measurer = Measurer(model, settings=Settings(_ROWS, node_rows=1))
    measurer.measure(0, {"image": images})  # which compiles, and measures nodes
    before = time.process_time()
    for number in range(_LARGE):
        measurer.measure((64 + number) * _ROWS, {"image": images})
    seconds = (time.process_time() - before) / _LARGE / _ROWS
    yield _IMAGE, seconds


def _memory(address: str, pid: int) -> dict[str, int]:
    """Return the bytes that sessions add to a server: empty ones, and with a tensor of 1 MiB."""
    channel = grpc.insecure_channel(address, _OPTIONS)
    idle = family_memory(pid)
    array = np.ones((1, 1, 256, 1024), np.float32)
    first = Client(channel)
    first.run(*load(1, array))  # which loads a kernel
    first.delete()
    loaded = family_memory(pid)
    clients = [Client(channel) for _ in range(_SESSIONS)]
    empty = family_memory(pid)
    for client in clients:
        client.run(*load(1, array))
    full = family_memory(pid)
    for client in clients:
        client.delete()
    return {
        "server": idle,
        "server that has computed": loaded,
        "session": (empty - loaded) // _SESSIONS,
        "session with a stick of 256 x 1024, 512 KiB": (full - loaded) // _SESSIONS,
    }


def _needs(seconds: Mapping[str, float]) -> Iterator[str]:
    """Yield the cost of the three loads of the page on scaling, from the seconds of each work."""
    each = 10_000 / 3600
    for text, calls in (("one by one", 100 * seconds[_CALL]), ("in one list", seconds[_LIST])):
        session = seconds[_SESSION] + calls
        yield (
            f"10,000 sessions an hour, 100 calls {text}: {session * 1e3:.3g} ms of a core each, "
            f"{each * session:.2g} cores"
        )
    for name in _INFERENCES:
        cores = 1000 * seconds[name]
        yield f"1,000 a second, {name}: {cores:.3g} cores, {cores / _USE:.3g} at {_USE:.0%} use"
    yield f"50,000 times {_IMAGE}: {50_000 * seconds[_IMAGE] / 3600:.3g} hours of a core"


def main() -> None:
    """Print bytes, the pieces of work that a core does in a second, and the cost of loads."""
    process, address = start("nnpa_server", *_FLAGS)
    atexit.register(process.terminate)
    header = look_at_machine()
    print(f"CPU {header.cpu}, {header.cores} cores; {header.versions}", flush=True)
    for name, size in _memory(address, process.pid).items():
        print(f"{name:52} {size / 1024:10.4g} KiB", flush=True)
    pid = process.pid
    measured: dict[str, float] = {}
    for name, seconds in chain(_sessions(address, pid), _models(address, pid), _dataset()):
        measured[name] = seconds
        rate = f"{seconds * 1e3:10.3g} ms of a core {1 / seconds:8.4g} a second"
        print(f"{name:52} {rate}", flush=True)
    print(*_needs(measured), sep="\n")


if __name__ == "__main__":
    main()
