# SPDX-License-Identifier: Apache-2.0
"""Row faults: the cost of hooks for faults, and of a rule in a session."""

import time

import grpc
import numpy as np
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1.fault_pb2 import FaultRule

from tests.bench.echo import OPTIONS
from tests.bench.report import Figure, Work, ratio, row
from tests.bench.server import N, directory, start_warm
from tests.server.wire import Client, load, op

_SHAPE = (1, 1, 32, 64)
_ELSEWHERE = FaultRule(operation="zdnn_lstm", status="ZDNN_INVALID_SHAPE")


def _address(name: str, *flags: str) -> str:
    return start_warm("--listen", f"unix:{directory()}/{name}", *flags)


def _list(address: str, *rules: FaultRule) -> Work:
    """Return a list of adds in a session of its own whose kernels are warm."""
    client = Client(grpc.insecure_channel(address, OPTIONS), pb.Session(fault_rules=rules))
    client.run(*load(1, np.ones(_SHAPE, np.float32)), *load(2, np.ones(_SHAPE, np.float32)))
    adds = client.request(*[op("add", input_a=1, input_b=1, output=2)] * N)
    return lambda: client.stub.Execute(adds)


class _Bare:
    """A session without rules, as the hooks see it."""

    def __init__(self) -> None:
        self.holdings: dict[str, object] = {}


def _hooks() -> float:
    """Return the seconds of an operation's hooks without rules: they read `holdings` twice."""
    session, rounds = _Bare(), 200_000
    hooked = bare = float("inf")
    for _ in range(15):
        started = time.perf_counter()
        for _ in range(rounds):
            if session.holdings or session.holdings:
                raise AssertionError
        hooked = min(hooked, time.perf_counter() - started)
        started = time.perf_counter()
        for _ in range(rounds):
            pass
        bare = min(bare, time.perf_counter() - started)
    return (hooked - bare) / rounds


def _seconds(work: Work) -> float:
    """Return the best of many rounds of a list, per operation."""
    best = float("inf")
    for _ in range(60):
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best / N


@row(
    "faults",
    "a list of small operations that no fault meets, over one on a server without faults",
    grpc=True,
)
def hooks() -> list[Figure]:
    """Targets: with faults disabled the hooks cost nothing visible; a rule costs its own check."""
    allowing, plain = _address("allowing", "--allow-faults"), _list(_address("plain"))
    what = f"{N} adds of 32x64 in one list"
    return [
        Figure("hooks alone, share of one add without rules", _hooks() / _seconds(plain), 0.01),
        Figure(f"{what}, --allow-faults, no rule", ratio(_list(allowing), plain, 61), 1.03),
        Figure(f"{what}, a rule for zdnn_lstm", ratio(_list(allowing, _ELSEWHERE), plain, 61), 1.5),
    ]
