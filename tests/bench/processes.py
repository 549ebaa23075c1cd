# SPDX-License-Identifier: Apache-2.0
"""Row 28 and row router: several processes behind one address, and the cost of the hop to them.

Needs Envoy (the extra `processes`).
"""

import atexit
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import grpc
import numpy as np
import psutil
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa_client import Session, connect, zdnn
from nnpa_server.processes.envoy import TICKET

from tests.bench.echo import OPTIONS
from tests.bench.report import Figure, Work, ratio, row
from tests.bench.server import array_of, directory, start
from tests.server.wire import load, op

_SHAPE = (1, 1, 32, 64)
_LIST = 200
_CLIENTS = 4
_LISTS = 8  # of each client in a round
_EXECUTE = "/nnpa.zdnn.v1.AcceleratorService/Execute"
_SIZES = (1 << 10, 64 << 10, 1 << 20, 16 << 20)


@cache
def _server(processes: int) -> tuple[str, int]:
    """Start a server; return its address and process."""
    flags = ("--processes", str(processes), "--max-sessions", "64")
    listen = ("--listen", f"unix:{directory()}/of{processes}")
    process, address = start("nnpa_server", *listen, *flags)
    atexit.register(process.terminate)
    return address, process.pid


def _client(address: str) -> tuple[Work, str]:
    """Return work that runs a client's lists as bytes, and the ticket of its session."""
    channel = grpc.insecure_channel(address, OPTIONS)
    create = channel.unary_unary(
        "/nnpa.zdnn.v1.AcceleratorService/CreateSession",
        pb.CreateSessionRequest.SerializeToString, pb.Session.FromString,
    )  # fmt: skip
    session, call = create.with_call(pb.CreateSessionRequest())
    ticket = dict(call.initial_metadata() or ()).get(TICKET, "")
    metadata = ((TICKET, str(ticket)),) if ticket else None
    execute: Any = channel.unary_unary(_EXECUTE, bytes, bytes)
    array = np.ones(_SHAPE, np.float32)
    prepare = pb.ExecuteRequest(session=session.name, operations=[*load(1, array), *load(2, array)])
    execute(prepare.SerializeToString(), metadata=metadata)
    adds = [op("add", input_a=1, input_b=1, output=2)] * _LIST
    request = pb.ExecuteRequest(session=session.name, operations=adds).SerializeToString()

    def work() -> None:
        for _ in range(_LISTS):
            execute(request, metadata=metadata)

    return work, str(ticket)


def _clients(processes: int) -> Work:
    """Return a round of all clients at once, spread evenly over the processes."""
    address, _ = _server(processes)
    clients = [_client(address) for _ in range(_CLIENTS)]
    if processes > 1:
        tickets = [ticket for _, ticket in clients]
        assert {tickets.count(ticket) for ticket in tickets} == {_CLIENTS // processes}, tickets
    pool = ThreadPoolExecutor(_CLIENTS)

    def work() -> None:
        for done in [pool.submit(client) for client, _ in clients]:
            done.result()

    return work


def _share_of_clients(work: Work) -> float:
    """Return the share of the machine's processors that this process takes for work."""
    me, began = psutil.Process(), time.perf_counter()
    before = sum(me.cpu_times()[:2])
    work()
    used = sum(me.cpu_times()[:2]) - before
    return float(used / (time.perf_counter() - began) / (psutil.cpu_count() or 1))


@row("28", f"two processes over one: lists of {_LIST} additions of 32x64 (throughput)", grpc=True)
def two_over_one() -> list[Figure]:
    """Floor 1.5, moonshot 1.8; clients that take more than 15 % of the processors spoil it."""
    one_process, two_processes = _clients(1), _clients(2)
    one_process()
    two_processes()
    share = _share_of_clients(two_processes)
    note = f"clients take {share:.0%} of the processors"
    value = ratio(one_process, two_processes, 15)
    return [Figure(f"{_CLIENTS} clients", value, 1.5, 1.8, more=True, note=note)]


def _round_trip(session: Session, size: int) -> Work:
    array = array_of(max(size, 4096))[:, : max(1, min(1024, size // 4))]

    def work() -> None:
        zdnn.relu(session.ztensor(array)).numpy()

    return work


@row("router", "a call through the router over one to a process directly (time)", grpc=True)
def hop() -> list[Figure]:
    """No bound: the cost of --processes for one client. Both over gRPC, without shortcuts."""
    address, _ = _server(2)
    routed = connect(address, plain=True)
    direct = connect(f"{address}.0", plain=True)
    figures = [
        Figure(f"{size >> 10} KiB", ratio(_round_trip(routed, size), _round_trip(direct, size), 21))
        for size in _SIZES
    ]
    routed.close()
    direct.close()
    return figures
