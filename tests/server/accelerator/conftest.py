# SPDX-License-Identifier: Apache-2.0
"""Fixtures that tests of this folder share."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from nnpa.zdnn.v1 import trace_pb2

from tests.server.accelerator.test_trace import Open
from tests.server.wire import Client


@pytest.fixture
def opened(client: Client) -> Iterator[Callable[..., Open]]:
    """A function that opens a trace, which the test's session joins; ended with the test."""
    traces: list[Open] = []

    def make(**options: Any) -> Open:
        trace = Open(client.channel, **options)
        traces.append(trace)
        assert trace.join(client) == trace.name
        return trace

    yield make
    for trace in traces:
        trace.stub.EndTrace(trace_pb2.EndTraceRequest(trace=trace.name))
