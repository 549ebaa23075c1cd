# SPDX-License-Identifier: Apache-2.0
"""Rows 12 to 15, 20, 21 and growth: the wire. Every server is a process of its own."""

import atexit
import itertools
import queue
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import nnpa_emulator
import numpy as np
import numpy.typing as npt
from google.protobuf.wrappers_pb2 import BytesValue
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa_client import Session, connect, zdnn
from nnpa_emulator import TensorDesc, Ztensor

from tests.bench.echo import OPTIONS, EchoClient
from tests.bench.local import repeated
from tests.bench.report import Figure, Work, ratio, row
from tests.server.wire import Client, Operation, init, load, op

MIB = 1 << 20
CHUNK = MIB
N = 100
PROGRAMS = {"512x1024": (512, 1024), "64x1024": (64, 1024), "32x64": (32, 64)}
FLAGS = ("--max-sessions", "300")


@cache
def directory() -> Path:
    """Make a place for sockets and logs; it goes when the bench ends."""
    place = tempfile.TemporaryDirectory(prefix="nnpa-bench-")
    atexit.register(place.cleanup)
    return Path(place.name)


def start(module: str, *arguments: str) -> tuple[subprocess.Popen[bytes], str]:
    """Start a server process; return it and the address in its first line."""
    with (directory() / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
        )  # fmt: skip
    assert process.stdout is not None
    ready = process.stdout.readline().decode().split()
    while ready[1:2] == ["compiling"]:
        ready = process.stdout.readline().decode().split()
    if not ready:
        raise SystemExit(f"{module} ended: {(directory() / 'log').read_text().splitlines()[-1:]}")
    return process, ready[-1]


def start_warm(*flags: str) -> str:
    """Start our server with all its kernels compiled and loaded; return its address."""
    process, address = start("nnpa_server", *flags, "--compile-first")
    atexit.register(process.terminate)
    return address


@cache
def server(listen: str) -> str:
    """Start the server once, warm; return its address. Programs in C may share memory with it."""
    return start_warm("--listen", listen, "--shared-memory", *FLAGS)


@cache
def echo(listen: str, *flags: str) -> EchoClient:
    """Start the bare server once; return a client of it."""
    process, address = start("tests.bench.echo", listen, *flags)
    atexit.register(process.terminate)
    return EchoClient(address)


def sockets() -> tuple[str, str]:
    """Return the Unix sockets of the server and of the bare server."""
    return f"unix:{directory()}/nnpa", f"unix:{directory()}/echo"


@cache
def session() -> Session:
    """Return the Python client's session on a Unix socket."""
    session = connect(server(sockets()[0]))
    atexit.register(session.close)
    return session


def array_of(size: int) -> npt.NDArray[np.float32]:
    """Return `size` bytes of FP32, rows of 1024."""
    return np.random.default_rng(1).normal(size=(size // 4096, 1024)).astype(np.float32)


def adds_in(ours: Session, array: npt.NDArray[np.float32]) -> dict[str, Work]:
    """Return work that uploads an array, adds a resident one, and downloads the sum.

    As one list where a message holds the array, and call by call.
    """
    resident = ours.ztensor(array)

    def listed() -> None:
        out = np.empty_like(array)
        with ours.pipeline():
            zdnn.transform_origtensor(zdnn.add(ours.ztensor(array), resident), out)

    def call_by_call() -> None:
        zdnn.add(ours.ztensor(array), resident).numpy()

    if array.nbytes > ours.limits.max_inline_bytes:
        return {"": call_by_call}
    return {", one list": listed, ", call by call": call_by_call}


@row(
    "12",
    "upload, add, download by the Python client over a bare chunked-stream echo (time)",
    grpc=True,
)
def chunked() -> list[Figure]:
    """Floor 2.0, moonshot 1.2. Both from array to array, with the same malloc settings."""
    figures: list[Figure] = []
    stream = echo(f"{sockets()[1]}-tuned", "--tuned").stream
    for mib in (1, 4, 64):
        array = array_of(mib * MIB)

        def bare(array: npt.NDArray[np.float32] = array) -> None:
            view, back, position = array.reshape(-1).view(np.uint8).data, np.empty_like(array), 0
            target = back.reshape(-1).view(np.uint8).data
            for part in stream(bytes(view[at : at + CHUNK]) for at in range(0, len(view), CHUNK)):
                target[position : position + len(part)] = part
                position += len(part)

        for how, work in adds_in(session(), array).items():
            figures.append(Figure(f"{mib} MiB{how}", ratio(work, bare), 2.0, 1.2))
    return figures


@row("13", "the same over the protobuf-bytes echo that a user writes by default (time)", grpc=True)
def against_protobuf() -> list[Figure]:
    """Floor 0.8, moonshot 0.2."""
    figures: list[Figure] = []
    for mib in (1, 4, 64):
        array = array_of(mib * MIB)
        message = echo(sockets()[1]).message

        def bare(
            array: npt.NDArray[np.float32] = array, message: Callable[..., Any] = message
        ) -> None:
            np.frombuffer(message(BytesValue(value=array.tobytes())).value, np.float32)

        for how, work in adds_in(session(), array).items():
            figures.append(Figure(f"{mib} MiB{how}", ratio(work, bare), 0.8, 0.2))
    return figures


def program(shape: tuple[int, int]) -> tuple[Client, list[Operation], Work]:
    """Return a client with three tensors, N additions of them, and the same calls made locally."""
    client = Client(grpc.insecure_channel(server(sockets()[0]), OPTIONS))
    dims = (1, 1, *shape)
    operand = np.ones(dims, np.float32)
    client.run(*init(1, *dims), *init(2, *dims), *init(3, *dims))
    header = [client.arrays_header(op("transform_ztensor", ztensor=number), operand.nbytes)
              for number in (1, 2)]  # fmt: skip
    for operation in header:
        client.write([operation, pb.WriteTensorRequest(chunk=operand.tobytes())])
    guest = nnpa_emulator.Guest(nnpa_emulator.MACHINES["telum2"])
    desc = TensorDesc(8, 0, 0, *dims)
    local = [Ztensor(TensorDesc(8, 0, 255, *dims), desc) for _ in range(3)]
    for tensor in local:
        nnpa_emulator.run(guest, "allochelper_ztensor", {"ztensor": tensor})
    arguments = {"input_a": local[0], "input_b": local[1], "output": local[2]}

    add = repeated(guest, "add", arguments)

    def alone() -> None:
        for _ in range(N):
            add()

    return client, [op("add", input_a=1, input_b=2, output=3)] * N, alone


@row("14", f"program of N={N} ops in one RPC over the same calls made locally (time)", grpc=True)
def one_rpc() -> list[Figure]:
    """Floors 1.3, 1.6, 8; moonshots, over the stream, 1.03, 1.1, 2.5."""
    bounds = {"512x1024": (1.3, 1.03), "64x1024": (1.6, 1.1), "32x64": (8.0, 2.5)}
    figures: list[Figure] = []
    for name, shape in PROGRAMS.items():
        client, operations, alone = program(shape)
        request = client.request(*operations)
        unary = ratio(lambda: client.stub.Execute(request), alone, 25)  # noqa: B023 - used at once
        figures.append(Figure(name, unary, bounds[name][0]))
        stream = Conversation(client, request)
        streamed = ratio(stream.ask, alone, 25)
        figures.append(Figure(f"{name}, stream", streamed, *bounds[name]))
        stream.close()
    return figures


class Conversation:
    """A stream of lists: the same request, sent once for each call of `ask`."""

    def __init__(self, client: Client, request: pb.ExecuteRequest) -> None:
        self._request = request
        self._queue: queue.SimpleQueue[pb.ExecuteRequest | None] = queue.SimpleQueue()
        self._answers = client.stub.ExecuteStream(iter(self._queue.get, None))

    def ask(self, count: int = 1) -> None:
        """Send the request `count` times, then wait for the answers."""
        for _ in range(count):
            self._queue.put(self._request)
        for _ in range(count):
            next(self._answers)

    def close(self) -> None:
        """End the stream."""
        self._queue.put(None)


@row("15", f"N={N} in one RPC over {N} pipelined stream messages (time)", grpc=True)
def one_rpc_over_messages() -> list[Figure]:
    """Floor 0.3, moonshot 0.04 for 32x64."""
    figures: list[Figure] = []
    for name in ("64x1024", "32x64"):
        client, operations, _ = program(PROGRAMS[name])
        request = client.request(*operations)
        stream = Conversation(client, client.request(operations[0]))
        share = ratio(
            lambda: client.stub.Execute(request),  # noqa: B023 - used at once
            lambda: stream.ask(N),  # noqa: B023
        )
        figures.append(Figure(name, share, 0.3, 0.04 if name == "32x64" else None))
        stream.close()
    return figures


def median_call(call: Work, count: int = 60) -> Work:
    """Return work that repeats a call `count` times, enough for a p50."""

    def work() -> None:
        for _ in range(count):
            call()

    return work


@row(
    "20", "p50 of a unary call with one 32x64 add over a bare echo of equal bytes (time)", grpc=True
)
def unary_latency() -> list[Figure]:
    """Floor 2, moonshot 1.15."""
    figures: list[Figure] = []
    listens = {"Unix socket": sockets(), "TCP": ("127.0.0.1:0", "127.0.0.1:0")}
    for name, (ours, theirs) in listens.items():
        client = Client(grpc.insecure_channel(server(ours), OPTIONS))
        client.run(*load(1, np.ones((1, 1, 32, 64), np.float32)), *init(2, 1, 1, 32, 64))
        request = client.request(op("add", input_a=1, input_b=1, output=2))
        size = max(len(request.SerializeToString()), client.stub.Execute(request).ByteSize())
        raw, payload = echo(theirs).raw, bytes(size)
        value = p50_ratio(
            lambda: client.stub.Execute(request),  # noqa: B023 - used at once
            lambda: raw(payload),  # noqa: B023
        )
        figures.append(Figure(name, value, 2.0, 1.15))
    return figures


def p50_ratio(work: Work, reference: Work, rounds: int = 7, calls: int = 300) -> float:
    """Return p50 over p50, the median over rounds in turns."""

    def p50(work: Work) -> float:
        times: list[float] = []
        for _ in range(calls):
            began = time.perf_counter()
            work()
            times.append(time.perf_counter() - began)
        return statistics.median(times)

    p50(work)
    p50(reference)
    return statistics.median(p50(work) / p50(reference) for _ in range(rounds))


@row(
    "21",
    "start to ready line, kernels cached, over the same of a bare echo server (time)",
    grpc=True,
)
def start_to_ready() -> list[Figure]:
    """Reported only: the goal's peer, MLServer, is measured where it is installed."""

    def started(module: str, *arguments: str) -> float:
        began = time.perf_counter()
        process, _ = start(module, *arguments)
        seconds = time.perf_counter() - began
        process.terminate()
        process.wait()
        return seconds

    pairs = [
        (started("nnpa_server", "--listen", "127.0.0.1:0"),
         started("tests.bench.echo", "127.0.0.1:0"))
        for _ in range(5)
    ]  # fmt: skip
    ours = statistics.median(mine for mine, _ in pairs)
    value = statistics.median(mine / theirs for mine, theirs in pairs)
    return [Figure("nnpa-server / echo", value, note=f"{ours:.2f} s")]


@row("growth", "cost with much over cost with little (time): flat is 1", grpc=True)
def growth() -> list[Figure]:
    """Floor 1.3 each: time does not grow with idle tensors, idle sessions, or a list's length."""
    address = server(sockets()[0])
    little, much = (Client(grpc.insecure_channel(address, OPTIONS)) for _ in range(2))
    for client in (little, much):
        client.run(*load(1, np.ones((1, 1, 32, 64), np.float32)), *init(2, 1, 1, 32, 64))
    for begin in range(3, 10_003, 1000):
        much.run(
            *itertools.chain.from_iterable(init(number, 8) for number in range(begin, begin + 1000))
        )
    add = op("add", input_a=1, input_b=1, output=2)
    few, many = little.request(add), much.request(add)
    run_few: Work = median_call(lambda: little.stub.Execute(few))
    figures = [
        Figure("10 000 live tensors", ratio(median_call(lambda: much.stub.Execute(many)), run_few),
               1.3)
    ]  # fmt: skip
    alone = p50_of(lambda: little.stub.Execute(few))
    idle = [Client(little.channel) for _ in range(200)]
    figures.append(Figure("200 sessions", p50_of(lambda: little.stub.Execute(few)) / alone, 1.3))
    for client in idle:
        client.delete()
    hundred, lot = little.request(*[add] * 100), little.request(*[add] * 10_000)
    per_op = ratio(
        lambda: little.stub.Execute(lot), median_call(lambda: little.stub.Execute(hundred), 100), 5
    )
    figures.append(Figure("per op, list of 10 000 over lists of 100", per_op, 1.3))
    return figures


def p50_of(work: Work, calls: int = 1000) -> float:
    """Return the median time of a call in seconds."""
    times: list[float] = []
    for _ in range(calls):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)
