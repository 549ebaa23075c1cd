# SPDX-License-Identifier: Apache-2.0
"""How traces end: limits, slow readers, failures, cancellation, the server's end."""

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import trace_pb2
from nnpa_server.accelerator.observers.trace_contents import Contents
from nnpa_server.sessions import traces as open_traces

from tests.server.accelerator.test_trace import DATA, FAILED, TOO_LARGE, TOO_SLOW, Open, calls
from tests.server.conftest import Running
from tests.server.wire import Client, load, op

SLOWLY = 30.0  # seconds


def test_a_session_leaves_a_trace(client: Client, opened: Callable[..., Open]) -> None:
    """After an update that takes the trace away nothing is recorded."""
    trace = opened()
    client.run(op("is_nnpa_installed"))
    request = pb.UpdateSessionRequest(session=pb.Session(name=client.session))
    request.update_mask.paths.append("trace")
    assert client.stub.UpdateSession(request).trace == ""
    client.run(op("is_nnpa_installed"))
    assert len(calls(trace.end())) == 1


def test_a_full_trace_is_cut_and_the_program_goes_on(
    client: Client, opened: Callable[..., Open]
) -> None:
    """Beyond max_bytes the trace ends with its reason; every call is still answered."""
    trace = opened(contents=True, max_bytes=8192)
    noise = np.random.default_rng(1).normal(size=(1, 1, 8, 64)).astype(np.float32)
    for number in range(1, 9):
        answer = client.run(*load(number, noise + number))
        assert [result.zdnn_status for result in answer] == [0, 0, 0]
    records = trace.rest()
    assert records[-1].end.reason == TOO_LARGE
    assert sum(record.ByteSize() for record in records) <= 8192
    assert records[-1].end.calls == len(calls(records))
    assert client.state().trace == ""


def test_a_slow_reader_has_its_trace_cut(
    running: Running, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that nobody takes end the trace, not the program."""
    monkeypatch.setattr(open_traces, "_MAX_WAITING", 1024)
    monkeypatch.setattr(open_traces, "_READER_TIMEOUT", 0.01)
    monkeypatch.setattr(open_traces, "_PERIOD", SLOWLY)
    trace = Open(running.channel)
    trace.join(client)
    for _ in range(100):
        assert client.run(op("is_nnpa_installed"))[0].boolean
    records = trace.rest()
    assert records[-1].end.reason == TOO_SLOW
    assert 0 < records[-1].end.calls < 100


def test_a_recorder_that_fails_leaves_the_answer_alone(
    client: Client, opened: Callable[..., Open], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect in recording cuts the trace, and the call has its answer."""

    def fail(*_: object) -> None:
        raise RuntimeError("recording")

    trace = opened(contents=True)
    monkeypatch.setattr(Contents, "record_outputs", fail)
    assert [result.zdnn_status for result in client.run(*load(1, DATA))] == [0, 0, 0]
    assert client.array(1).tolist() == DATA.reshape(-1).tolist()
    assert trace.rest()[-1].end.reason == FAILED


def test_a_quiet_trace_gives_signs_of_life(
    client: Client, opened: Callable[..., Open], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quiet trace sends an empty message now and then, so that nobody cuts the stream."""
    monkeypatch.setattr(open_traces, "_HEARTBEAT", 0.05)
    trace = opened()
    messages = [next(trace.stream) for _ in range(4)]
    assert any(not message.records and not message.trace for message in messages)
    assert len(calls(trace.end())) == 0
    assert client.state().trace == ""


def test_a_cancelled_stream_ends_its_trace(client: Client, opened: Callable[..., Open]) -> None:
    """When the reader goes away the session is no longer recorded, and lives on."""
    trace = opened()
    trace.stream.cancel()
    deadline = time.monotonic() + SLOWLY
    while client.state().trace and time.monotonic() < deadline:
        time.sleep(0.02)
    assert client.state().trace == ""
    assert client.run(op("is_nnpa_installed"))[0].boolean


def test_draining_does_not_wait_for_a_trace(start: Callable[..., Running]) -> None:
    """A draining server ends an open trace at once, with the reason SHUTDOWN."""
    server = start()
    trace = Open(server.channel)
    assert server.server.drain()  # else calls were cut off
    assert trace.rest()[-1].end.reason == trace_pb2.TRACE_END_REASON_SHUTDOWN


def test_the_end_waits_for_the_last_record() -> None:
    """A server that ends its traces waits until their readers have taken the last record."""
    traces, all_read = open_traces.Traces(), threading.Event()
    trace = traces.open(trace_pb2.TraceStart(), max_bytes=0)

    def read() -> None:
        for records in trace.read(lambda: True):
            time.sleep(0.3)
            assert records
        all_read.set()
        traces.forget(trace)

    threading.Thread(target=read).start()
    traces.close()
    assert all_read.is_set()
