# SPDX-License-Identifier: Apache-2.0
"""Rows 16 to 19 and 21b: the Open Inference Protocol, beside other servers and a bare echo.

All servers are up, each with one connection, and get requests in turns. Requests and responses are
bytes that the client does not parse, with raw contents in both directions.
"""

import atexit
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import grpc
import numpy as np
from nnpa.oip import open_inference_grpc_pb2 as pb

from tests.bench import options, peers
from tests.bench.echo import OPTIONS
from tests.bench.report import Figure, row
from tests.bench.server import directory, echo, start_warm
from tests.server.onnx_models import binary, request

Ask: TypeAlias = Callable[[bytes], bytes]
_METHOD = "/inference.GRPCInferenceService/ModelInfer"
_PATIENCE = 90.0
_ROUNDS, _CALLS = 7, 200
_CLIENTS, _SECONDS = 8, 2.0
SMALL, LARGE = (1, 1024), ((1, 1 << 18), (256, 1024))
_NO_PEERS = "peers are measured by `poe bench --peers`"


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def connect(address: str) -> Ask:
    """Return a function that sends a request over its own connection, when the server answers."""
    channel = grpc.insecure_channel(address, [*OPTIONS, ("nnpa.bench", str(time.monotonic()))])
    grpc.channel_ready_future(channel).result(_PATIENCE)
    call: Any = channel.unary_unary(_METHOD, bytes, bytes)
    return lambda data: call(data, timeout=_PATIENCE)


def message(shape: tuple[int, int]) -> bytes:
    """Return a serialised request for the sum of two tensors."""
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    return request("add", x=x, y=x).SerializeToString()


def until_it_answers(address: str) -> Ask:
    """Return a connection to a server whose model answers."""
    ask, end, data = connect(address), time.monotonic() + _PATIENCE, message(SMALL)
    while True:
        try:
            answer = pb.ModelInferResponse.FromString(ask(data))
        except grpc.RpcError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
            continue
        assert len(answer.raw_output_contents[0]) == 4096, "the peer answers raw"
        return ask


@cache
def ours(listen: str) -> tuple[str, Ask]:
    """Start our server with the model; return its address and a connection."""
    folder = directory() / "models"
    folder.mkdir(exist_ok=True)
    (folder / "add.onnx").write_bytes(binary("Add", ("n", "m")))
    address = start_warm("--listen", listen, "--models", str(folder))
    return address, until_it_answers(address)


def _launch(command: list[str], address: str) -> tuple[subprocess.Popen[bytes], str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with (directory() / "peers.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=env)
    atexit.register(process.terminate)
    return process, address


def _command(name: str) -> tuple[list[str], str]:
    http, port = free_port(), free_port()
    folder = directory() / f"{name}-{port}"
    match name:
        case "MLServer p=0":
            command = peers.mlserver(folder, http, port, 0)
        case "MLServer":
            command = peers.mlserver(folder, http, port, None)
        case _:
            command = peers.kserve(folder, http, port)
    return command, f"127.0.0.1:{port}"


@cache
def peer(name: str) -> Ask:
    """Start a peer once; return a connection to it."""
    return until_it_answers(_launch(*_command(name))[1])


def medians(asks: dict[str, Ask], data: bytes, calls: int = _CALLS) -> dict[str, list[float]]:
    """Return each server's median time of a call, by round; the servers take turns."""
    for ask in asks.values():
        for _ in range(calls // 2):
            ask(data)
    round_medians: dict[str, list[float]] = {name: [] for name in asks}
    for number in range(_ROUNDS):
        names = list(asks) if number % 2 else list(reversed(asks))
        for name in names:
            times: list[float] = []
            for _ in range(calls):
                began = time.perf_counter()
                asks[name](data)
                times.append(time.perf_counter() - began)
            round_medians[name].append(statistics.median(times))
    return round_medians


def _echoes(listen: str) -> Ask:
    raw = echo(listen).raw
    return lambda data: raw(data)


@cache
def _small() -> dict[str, list[float]]:
    """Measure the small sum on every installed server, once for all rows."""
    socket_ = f"unix:{directory()}"
    asks: dict[str, Ask] = {
        "nnpa TCP": ours("127.0.0.1:0")[1],
        "nnpa UDS": ours(f"{socket_}/oip")[1],
        "echo TCP": _echoes("127.0.0.1:0"),
        "echo UDS": _echoes(f"{socket_}/echo"),
    }
    if options.PEERS:
        asks |= {name: peer(name) for name in ("MLServer p=0", "MLServer", "KServe")}
    return medians(asks, message(SMALL))


def _over(times: dict[str, list[float]], name: str, peer: str) -> tuple[float, str]:
    value = statistics.median(a / b for a, b in zip(times[name], times[peer], strict=True))
    note = f"{statistics.median(times[name]) * 1e6:.0f} over "
    return value, f"{note}{statistics.median(times[peer]) * 1e6:.0f} us"


@row("16", "ModelInfer p50, 1x1024 add on sticks, over MLServer (time)", grpc=True)
def over_mlserver() -> list[Figure]:
    """Floors 0.7 and 0.35, moonshots 0.25 and 0.12. The bare echo of the request always."""
    times, figures = _small(), list[Figure]()
    for kind in ("TCP", "UDS"):
        value, note = _over(times, f"nnpa {kind}", f"echo {kind}")
        figures.append(Figure(f"{kind} / bare echo", value, note=note))
    if not options.PEERS:
        return [*figures, Figure("MLServer", float("nan"), note=_NO_PEERS)]
    for kind in ("TCP", "UDS"):
        for name, floor, moonshot in (("MLServer p=0", 0.7, 0.25), ("MLServer", 0.35, 0.12)):
            value, note = _over(times, f"nnpa {kind}", name)
            figures.append(Figure(f"{kind} / {name}", value, floor, moonshot, note=note))
    return figures


@row("17", "the same over the KServe SDK (time)", grpc=True)
def over_kserve() -> list[Figure]:
    """Floor 0.9, moonshot 0.4."""
    if not options.PEERS:
        return [Figure("KServe", float("nan"), note=_NO_PEERS)]
    figures: list[Figure] = []
    for kind in ("TCP", "UDS"):
        value, note = _over(_small(), f"nnpa {kind}", "KServe")
        figures.append(Figure(f"{kind} / KServe", value, 0.9, 0.4, note=note))
    return figures


def throughput(address: str) -> float:
    """Return the requests per second of 8 clients, each with a connection of its own."""
    asks, data = [connect(address) for _ in range(_CLIENTS)], message(SMALL)
    counts, end = [0] * _CLIENTS, time.perf_counter() + _SECONDS

    def client(number: int) -> None:
        while time.perf_counter() < end:
            asks[number](data)
            counts[number] += 1

    threads = [threading.Thread(target=client, args=(number,)) for number in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / _SECONDS


@row("18", "requests per second at 8 clients over MLServer in one process, and KServe", grpc=True)
def at_eight_clients() -> list[Figure]:
    """Floors 1.5 and 1.0, moonshots 3.0 and 1.8."""
    mine = ours("127.0.0.1:0")[0]
    if not options.PEERS:
        note = f"requests per second; {_NO_PEERS}"
        return [Figure("nnpa", throughput(mine), more=True, note=note)]
    figures: list[Figure] = []
    for name, floor, moonshot in (("MLServer p=0", 1.5, 3.0), ("KServe", 1.0, 1.8)):
        _, address = _launch(*_command(name))
        until_it_answers(address)
        pairs = [(throughput(mine), throughput(address)) for _ in range(3)]
        value = statistics.median(a / b for a, b in pairs)
        note = f"{statistics.median(a for a, _ in pairs):.0f} over "
        note += f"{statistics.median(b for _, b in pairs):.0f}"
        figures.append(Figure(name, value, floor, moonshot, more=True, note=note))
    return figures


@row("19", "ModelInfer with tensors of 1 MiB over MLServer in one process (time)", grpc=True)
def large_tensors() -> list[Figure]:
    """Floor 0.3, moonshot 0.05. One row in sticks has 16 times the pages of many rows."""
    asks: dict[str, Ask] = {
        "nnpa": ours("127.0.0.1:0")[1],
        "echo": _echoes("127.0.0.1:0"),
    }
    if options.PEERS:
        asks |= {"MLServer p=0": peer("MLServer p=0"), "KServe": peer("KServe")}
    figures: list[Figure] = []
    for shape in LARGE:
        times = medians(asks, message(shape), 20)
        for name in list(asks)[1:]:
            value, note = _over(times, "nnpa", name)
            judged = name == "MLServer p=0"
            floor, moonshot = (0.3, 0.05) if judged else (None, None)
            label = f"{shape[0]}x{shape[1]} / {name}"
            figures.append(Figure(label, value, floor, moonshot, note=note))
    return figures


@row("21b", "start to an open port, kernels cached, over MLServer (time)", grpc=True)
def start_over_mlserver() -> list[Figure]:
    """Floor 1.0, moonshot 0.5."""
    if not options.PEERS:
        return [Figure("MLServer", float("nan"), note=_NO_PEERS)]

    def opened(command: list[str], port: int) -> float:
        began = time.perf_counter()
        process, _ = _launch(command, "")
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.005)
        seconds = time.perf_counter() - began
        process.terminate()
        process.wait()
        return seconds

    def mine() -> float:
        port = free_port()
        command = [sys.executable, "-m", "nnpa_server", "--listen", f"127.0.0.1:{port}"]
        return opened(command, port)

    def theirs() -> float:
        command, address = _command("MLServer p=0")
        return opened(command, int(address.rpartition(":")[2]))

    pairs = [(mine(), theirs()) for _ in range(5)]
    value = statistics.median(a / b for a, b in pairs)
    note = f"{statistics.median(a for a, _ in pairs):.2f} over "
    note += f"{statistics.median(b for _, b in pairs):.2f} s"
    return [Figure("nnpa-server / MLServer", value, 1.0, 0.5, note=note)]
