# SPDX-License-Identifier: Apache-2.0
"""The end of a process: running calls finish, new ones are refused, and the timeout is kept."""

import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1.fault_pb2 import FaultDelay, FaultRule

from tests.server.conftest import CONFIG, Running
from tests.server.long_lists import LENGTH, long_list
from tests.server.process import PATIENCE, serving, wait_until
from tests.server.wire import Client, begun, load, op, read_error, refused

ANY_PORT = ("--listen", "127.0.0.1:0")
CODE = grpc.StatusCode
DATA = np.ones((1, 1, 2, 3), np.float32)


@pytest.mark.heavy
def test_draining_finishes_what_runs_and_refuses_the_rest(tmp_path: Path) -> None:
    """After SIGTERM a running list gets its answer, new calls SERVER_DRAINING, health says so."""
    with serving(tmp_path, *ANY_PORT) as server:
        channel = grpc.insecure_channel(server.address)
        client = Client(channel)
        call = long_list(client)
        health: Any = health_pb2_grpc.HealthStub(channel)
        server.process.send_signal(signal.SIGTERM)
        ending = health_pb2.HealthCheckResponse.NOT_SERVING
        wait_until(lambda: bool(health.Check(health_pb2.HealthCheckRequest()).status == ending))
        with refused(CODE.UNAVAILABLE, "SERVER_DRAINING"):
            client.run()
        assert not call.done()
        assert len(call.result().results) > LENGTH
        assert server.wait() == 0
        assert "all calls finished" in server.log_text()


def test_drain_timeout_cuts_off(tmp_path: Path) -> None:
    """A list that takes longer than --drain-timeout is cut off, and the exit code is still 0."""
    with serving(tmp_path, *ANY_PORT, "--drain-timeout", "200ms") as server:
        client = Client(grpc.insecure_channel(server.address))
        call = long_list(client, 4 * LENGTH)
        assert server.stop() == 0
        assert "calls were cut off" in server.log_text()
        assert call.exception() is not None


def test_second_signal_ends_at_once(tmp_path: Path) -> None:
    """A server that waits for a running list ends at the next SIGTERM, and says so."""
    with serving(tmp_path, *ANY_PORT, "--drain-timeout", "60s") as server:
        call = long_list(Client(grpc.insecure_channel(server.address)), 8 * LENGTH)
        server.process.terminate()
        wait_until(lambda: "draining, for at most" in server.log_text())
        assert not call.done()
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 1
        assert "ended at once" in server.log_text()


@pytest.mark.heavy
@pytest.mark.parametrize("seconds", [0.0, 1.5])
def test_drain_timeout_is_kept(tmp_path: Path, seconds: float) -> None:
    """A call that nothing ends, here one that a fault delays, does not hold up the end."""
    flags = (*ANY_PORT, "--allow-faults", "--drain-timeout", f"{seconds}s")
    with serving(tmp_path, *flags) as server:
        rule = FaultRule(operation="exp", delay=FaultDelay(seconds=300))
        channel = grpc.insecure_channel(server.address)
        client = Client(channel, pb.Session(fault_rules=[rule]))
        client.run(*load(1, DATA))
        call = begun(client, op("exp", input=1, output=1))
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < seconds + 1
        assert "calls were cut off" in server.log_text()
        assert call.exception() is not None


def test_waiting_conversations_hear_of_the_end(tmp_path: Path) -> None:
    """SIGTERM between two lists: the status of each open conversation is SERVER_DRAINING."""
    over, statuses = threading.Event(), list[str]()

    def converse(client: Client, ready: threading.Semaphore) -> None:
        def requests() -> Iterator[pb.ExecuteRequest]:
            yield client.request(op("init"))
            over.wait(PATIENCE)

        stream = client.stub.ExecuteStream(requests())
        next(stream)
        ready.release()
        try:
            next(stream)
        except grpc.RpcError as error:
            statuses.append(read_error(error).reason)

    with serving(tmp_path, *ANY_PORT) as server:
        ready = threading.Semaphore(0)
        clients = [Client(grpc.insecure_channel(server.address)) for _ in range(12)]
        threads = [threading.Thread(target=converse, args=(client, ready)) for client in clients]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert ready.acquire(timeout=PATIENCE)
        assert server.stop() == 0
        for thread in threads:
            thread.join(PATIENCE)
        over.set()
    assert statuses == ["SERVER_DRAINING"] * len(threads)


def test_open_stream_does_not_delay_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that waits for its client's next list has nothing under way."""
    monkeypatch.setattr("nnpa_server.app._GRACE", 60)
    running, over = Running(replace(CONFIG, drain_timeout=60)), threading.Event()
    client = running.client()

    def requests() -> Iterator[pb.ExecuteRequest]:
        yield client.request()
        over.wait()

    stream = client.stub.ExecuteStream(requests())
    next(stream)
    began = time.monotonic()
    assert running.server.drain()
    assert time.monotonic() - began < 30, "neither as long as a call nor as its last words may take"
    over.set()
    running.channel.close()
