# SPDX-License-Identifier: Apache-2.0
"""Row trace: the cost of recording for a list of 100 operations, and of not recording."""

import atexit
import statistics
import time
from unittest import mock

import grpc
import numpy as np
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa_client._server.transport import GrpcTransport
from nnpa_client.config import Endpoint
from nnpa_client.trace import Recording
from nnpa_server.accelerator import AcceleratorService, composition
from nnpa_server.config import Limits
from nnpa_server.rpc.codec import WireRequest
from nnpa_server.sessions.store import Store

from tests.bench.echo import OPTIONS
from tests.bench.report import Figure, Work, ratio, row
from tests.bench.server import PROGRAMS, N, directory, start_warm
from tests.client.in_process import Waiting
from tests.server.wire import Client, load, op

_REPETITIONS = 400


def _program(client: Client, shape: tuple[int, int]) -> Work:
    """Return the work of one list of adds on tensors that the session holds."""
    array = np.ones((1, 1, *shape), np.float32)
    client.run(*load(1, array), *load(2, array))
    many = client.request(*[op("add", input_a=1, input_b=1, output=2)] * N)
    return lambda: client.stub.Execute(many)


def _traced(address: str, client: Client) -> None:
    """Record a session into a file as long as the bench runs."""
    path = directory() / f"trace-{client.session.rpartition('/')[2]}"
    recording = Recording(GrpcTransport(Endpoint(address)), path)
    atexit.register(recording.stop)
    request = pb.UpdateSessionRequest(session=pb.Session(name=client.session, trace=recording.name))
    request.update_mask.paths.append("trace")
    assert client.stub.UpdateSession(request).trace == recording.name


@row(
    "trace", "a session that is recorded, without contents, over one that is not (time)", grpc=True
)
def recording() -> list[Figure]:
    """Target 1.1: recording takes less than a tenth of a program of 100 operations."""
    address = start_warm("--listen", f"unix:{directory()}/trace")
    figures: list[Figure] = []
    for label, shape in PROGRAMS.items():
        clients = [Client(grpc.insecure_channel(address, OPTIONS)) for _ in range(2)]
        _traced(address, clients[0])
        on, off = (_program(client, shape) for client in clients)
        figures.append(Figure(f"{N} adds of {label} in one list", ratio(on, off, 101), 1.1))
    return figures


def _thread_ns(work: Work) -> int:
    started = time.thread_time_ns()
    work()
    return time.thread_time_ns() - started


def _create(host: AcceleratorService) -> str:
    """Return the name of a session with two tensors."""
    name = host.CreateSession(pb.CreateSessionRequest(), Waiting()).name
    array = np.ones((1, 1, 32, 64), np.float32)
    operations = [*load(1, array), *load(2, array)]
    host.Execute(pb.ExecuteRequest(session=name, operations=operations), Waiting())
    return name


def _list(host: AcceleratorService, session: str, count: int) -> Work:
    """Return the work of a list of adds."""
    add = op("add", input_a=1, input_b=1, output=2)
    message = pb.ExecuteRequest(session=session, operations=[add] * count)
    listed = WireRequest(message.SerializeToString())
    return lambda: host.Execute(listed, Waiting())


@row(
    "trace-off", "a session that is not recorded, over a server that cannot record (CPU)", grpc=True
)
def silent() -> list[Figure]:
    """Target 1.02, no measurable cost: medians of many turns, in this process."""
    store = Store(Limits())
    host = AcceleratorService(store)
    session = _create(host)
    with mock.patch.object(composition, "OBSERVERS", ()):
        unobserved = _create(host)
    figures: list[Figure] = []
    for label, count in ((f"{N} adds of 32x64 in one list", N), ("one add of 32x64", 1)):
        work, bare = _list(host, session, count), _list(host, unobserved, count)
        pairs = [(_thread_ns(work), _thread_ns(bare)) for _ in range(_REPETITIONS)]
        on, off = (statistics.median(times) for times in zip(*pairs, strict=True))
        figures.append(Figure(label, on / off, 1.02))
    store.close()
    return figures
