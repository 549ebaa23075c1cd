# SPDX-License-Identifier: Apache-2.0
"""A long operation ends when its call ends; it does not run on to its own end."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import grpc
import numpy as np
import pytest
from nnpa_server.config import Limits

from tests.server.conftest import CONFIG, Running
from tests.server.process import PLAIN
from tests.server.wire import Client, Operation, begun, init, load, op, refused

CODE = grpc.StatusCode
SIDE = 8192  # of a square matrix: multiplying two takes a processor more than ten seconds
PROMPT = 4.0  # seconds, of which the least part that is not cut takes one
pytestmark = pytest.mark.skipif(bool(PLAIN), reason="references take minutes to make the operands")


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    """A server with room for large matrices."""
    running = Running(replace(CONFIG, limits=Limits(max_session_bytes=1 << 30)))
    yield running
    running.stop()


@pytest.fixture
def client(server: Running) -> Client:
    """A session with a large matrix."""
    client = server.client()
    make_matrix(client)
    return client


def make_matrix(client: Client) -> None:
    """Make a large matrix, 4, and room for its square, 5."""
    tall, bias = np.ones((1, 1, SIDE, 64), np.float32), np.ones((1, 1, 1, SIDE), np.float32)
    client.run(*load(1, tall))
    client.run(*load(2, tall.reshape(1, 1, 64, SIDE)), *load(3, bias))
    client.run(*init(4, 1, 1, SIDE, SIDE), *init(5, 1, 1, SIDE, SIDE), _product(1, 2, 4))


def _product(a: int, b: int, output: int) -> Operation:
    return op("matmul_op", input_a=a, input_b=b, input_c=3, op_type=0, output=output)


SQUARE = _product(4, 4, 5)


def seconds_of(call: Callable[[], object]) -> float:
    """Return how long a call takes."""
    started = time.monotonic()
    call()
    return time.monotonic() - started


def test_a_deadline_ends_it(client: Client) -> None:
    """After its deadline an operation does not run on; the session is free for its next call."""
    with pytest.raises(grpc.RpcError, match="DEADLINE_EXCEEDED"):
        client.run(SQUARE, timeout=0.5)
    assert seconds_of(lambda: client.run(op("init"))) < PROMPT
    client.delete()


def test_a_deadline_ends_pooling(client: Client) -> None:
    """A deadline also ends an operation that is no product: pooling with large windows."""
    client.run(*init(6, 1, 1024, 1024, 64), *init(7, 1, 1024, 1024, 64))
    pooling = op(
        "avgpool2d", input=6, padding_type=1, kernel_height=64, kernel_width=64,
        stride_height=1, stride_width=1, output=7,
    )  # fmt: skip
    with pytest.raises(grpc.RpcError, match="DEADLINE_EXCEEDED"):
        client.run(pooling, timeout=0.5)
    assert seconds_of(lambda: client.run(op("init"))) < PROMPT
    client.delete()


def test_cancellation_ends_it(client: Client) -> None:
    """An operation ends when its client cancels the call."""
    call = begun(client, SQUARE)
    call.cancel()
    assert seconds_of(lambda: client.run(op("init"))) < PROMPT
    client.delete()


def test_the_end_of_its_session_ends_it(client: Client) -> None:
    """Deleting a session does not wait for the operation that runs in it."""
    call = begun(client, SQUARE)
    assert seconds_of(client.delete) < PROMPT
    with refused(CODE.NOT_FOUND, "SESSION_NOT_FOUND"):
        call.result()
