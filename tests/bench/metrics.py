# SPDX-License-Identifier: Apache-2.0
"""Rows metrics and telemetry: the cost of counting, and of spans, for small operations."""

import atexit

import grpc
import numpy as np

from tests.bench.echo import OPTIONS
from tests.bench.report import Figure, Work, ratio, row
from tests.bench.server import N, directory, median_call, start
from tests.server.wire import Client, load, op

_SHAPE = (1, 1, 32, 64)


def _calls(name: str, *flags: str) -> dict[str, Work]:
    """Return the calls to measure, on a server of their own with warm kernels."""
    process, address = start("nnpa_server", "--listen", f"unix:{directory()}/{name}", *flags)
    atexit.register(process.terminate)
    client = Client(grpc.insecure_channel(address, OPTIONS))
    client.run(*load(1, np.ones(_SHAPE, np.float32)), *load(2, np.ones(_SHAPE, np.float32)))
    add = op("add", input_a=1, input_b=1, output=2)
    many, single = client.request(*[add] * N), client.request(add)
    return {
        f"{N} adds of 32x64 in one list": lambda: client.stub.Execute(many),
        "60 calls of one add": median_call(lambda: client.stub.Execute(single)),
    }


@row("metrics", "a server with --metrics over one without (time)", grpc=True)
def counting() -> list[Figure]:
    """Target 1.1: counting takes less than a tenth of the smallest operations."""
    on, off = _calls("counting", "--metrics", "127.0.0.1:0"), _calls("silent")
    return [Figure(what, ratio(on[what], off[what], 41), 1.1) for what in on]


@row("telemetry", "a server with --telemetry over one without (time)", grpc=True)
def tracing() -> list[Figure]:
    """Target 2: a span without a collector costs less than a small call."""
    on, off = _calls("tracing", "--telemetry"), _calls("untraced")
    return [Figure(what, ratio(on[what], off[what], 41), 2) for what in on]
