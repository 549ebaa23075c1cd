# SPDX-License-Identifier: Apache-2.0
"""Answers of a session's networks that are larger than its requests may be."""

from collections.abc import Iterator
from dataclasses import replace

import grpc
import numpy as np
import pytest
from nnpa_server.network import memory
from nnpa_server.sessions.store import Counts
from onnx import ModelProto, helper

from tests.network.small_models import model
from tests.server.conftest import CONFIG, LIMITS, Running
from tests.server.network.service_client import Client
from tests.server.wire import refused

MIB = 1 << 20
COLUMNS = 1 << 10


def spread() -> ModelProto:
    """Return a model that repeats each element of a column 1024 times."""
    return model(
        [helper.make_node("Expand", ["x", "shape"], ["y"], "spread")],
        [("x", np.float32, ("N", 1))],
        [("y", np.float32, ("N", COLUMNS))],
        {"shape": np.array([1, COLUMNS])},
    )


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """A server that takes messages of one MiB, and gives a session 32."""
    limits = replace(LIMITS, max_message=MIB, max_session_bytes=32 * MIB)
    server = Running(replace(CONFIG, limits=limits))
    yield server
    server.stop()


@pytest.fixture
def client(running: Running) -> Iterator[Client]:
    """A session of its own; the store is empty afterwards."""
    connected = Client(running.channel)
    yield connected
    assert running.server.store.counts().staged_bytes == 0
    connected.close()
    assert running.server.store.counts() == Counts()


def column(mebibytes: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Return an input whose output has `mebibytes` MiB."""
    return np.arange(mebibytes * MIB // (4 * COLUMNS), dtype=np.float32)[:, None]


def test_an_output_larger_than_a_request(client: Client) -> None:
    """Outputs above --max-message are answered whole."""
    x = column(8)
    (output,) = client.infer(client.ready(spread()), x=x).outputs
    assert output.data == np.repeat(x, COLUMNS, 1).tobytes()


def test_large_answers_count_in_the_quota(client: Client) -> None:
    """An answer that the session has no room for is refused; earlier tensors stay."""
    name = client.create(spread()).network.name
    assert client.init(name, size=28 * MIB, shared_activations="all")
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "TENSOR_QUOTA_EXCEEDED"):
        client.infer(name, x=column(8))
    (output,) = client.infer(name, x=column(1)).outputs
    assert len(output.data) == MIB


def test_no_answer_is_longer_than_a_message(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer larger than any message is refused with the remedy."""
    monkeypatch.setattr(memory, "MAX_RESPONSE", MIB)
    name = client.ready(spread())
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    with refused(invalid, "MESSAGE_TOO_LARGE", field="outputs", value=2 * MIB, limit=MIB):
        client.infer(name, x=column(2))
