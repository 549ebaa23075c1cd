# SPDX-License-Identifier: Apache-2.0
"""Runs of networks over a plain socket: the same answers and errors as calls over HTTP/2."""

import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import grpc
import numpy as np
import pytest
from google.protobuf.any_pb2 import Any
from google.rpc.error_details_pb2 import ErrorInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from nnpa.network.v1 import network_pb2 as pb
from nnpa_client import Session, TransportError, connect
from nnpa_client._server.methods import INFER_NETWORK
from nnpa_client._server.shortcuts.plain_socket import PlainSocketError
from nnpa_client._server.shortcuts.stream import StreamTransport
from nnpa_client._server.tickets import Tickets
from nnpa_client._values.user_arrays import Array
from nnpa_client.network import Network

from tests.client.server.test_stream import lines
from tests.network.models import image
from tests.server.process import ServerProcess, serving

pytestmark = pytest.mark.shortcut


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server on a Unix socket, with a plain one beside it."""
    with serving(tmp_path, "--listen", f"unix:{tmp_path}/nnpa.sock") as running:
        yield running


@pytest.fixture
def session(server: ServerProcess) -> Iterator[Session]:
    """A session on the server."""
    with connect(server.address) as opened:
        yield opened


def images(count: int, value: int = 1) -> Array:
    """Return images of one value."""
    return np.full((count, 2, 3, 4), value, np.float32)


def load(session: Session) -> Network:
    """Load a network of one Relu, over any number of images of 2 x 3 x 4."""
    return session.load(image())


@pytest.mark.heavy
def test_runs_share_a_connection(server: ServerProcess, session: Session) -> None:
    """All runs of a session are messages of one connection, each with its line in the log."""
    network = load(session)
    for number in range(5):
        assert network(images(1, number - 2)).max() == max(number - 2, 0)
    log_lines = [line for line in lines(server, "InferNetwork") if "status=OK" in line]
    assert len(log_lines) == 5
    assert len({line.rpartition("id=")[2] for line in log_lines}) == 1


def test_an_error_ends_the_connection_and_not_the_session(session: Session) -> None:
    """A refused run has the same error as over HTTP/2; the next run has a new connection."""
    network = load(session)
    image, wrong = images(1), np.ones((1, 3), np.float32)
    with pytest.raises(TransportError) as plain:
        network(wrong)
    assert np.array_equal(network(image), image)
    with connect(session.target, plain=True) as plain_session:
        over_http = load(plain_session)
        with pytest.raises(TransportError) as refused:
            over_http(wrong)
        assert np.array_equal(over_http(image), image)
    assert str(plain.value) == str(refused.value)
    assert plain.value.metadata == refused.value.metadata


@pytest.mark.heavy
@pytest.mark.parametrize("count", [1, 900, 20_000])
def test_arrays_of_any_size(session: Session, count: int) -> None:
    """Arrays come back unchanged, whether they fit one read or not."""
    x = images(count) * np.arange(-12, 12, dtype=np.float32).reshape(2, 3, 4)
    assert np.array_equal(load(session)(x), np.maximum(x, 0))


def test_threads_of_one_session(session: Session) -> None:
    """Threads that call at the same time get their own answers."""
    network, wrong = load(session), list[int]()

    def work(number: int) -> None:
        x = images(1, number)
        wrong.extend(number for _ in range(20) if not np.array_equal(network(x), x))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_refused_run_is_sent_once() -> None:
    """A run that a server refuses with a reason raises and is not sent again: part may have run."""
    info = Any()
    info.Pack(ErrorInfo(reason="EXTENSION_NOT_OFFERED"))
    code, text = grpc.StatusCode.UNIMPLEMENTED, "not offered"
    status = Status(code=code.value[0], message=text, details=[info]).SerializeToString()
    inner, route, stream = Mock(target="unix:x"), Mock(), Mock()
    route.begin.return_value = stream
    stream.ask.side_effect = PlainSocketError(code, text, [("grpc-status-details-bin", status)])
    with pytest.raises(TransportError, match="EXTENSION_NOT_OFFERED"):
        StreamTransport(inner, [route], Tickets()).unary(INFER_NETWORK, pb.InferNetworkRequest())
    assert inner.unary.call_count == 0


def test_a_server_that_serves_no_runs_there() -> None:
    """An older server is asked once; then runs are calls over HTTP/2."""
    inner, route, stream = Mock(), Mock(), Mock()
    route.begin.return_value = stream
    stream.ask.side_effect = PlainSocketError(grpc.StatusCode.UNIMPLEMENTED, "is not served here")
    transport = StreamTransport(inner, [route], Tickets())
    for _ in range(2):
        answer = transport.unary(INFER_NETWORK, pb.InferNetworkRequest())
        assert answer is inner.unary.return_value
    assert (stream.ask.call_count, inner.unary.call_count) == (1, 2)
