# SPDX-License-Identifier: Apache-2.0
"""Fault rules on the wire: permission, marks of faults, and faults in lists."""

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1.fault_pb2 import FaultDelay, FaultMove, FaultRule
from nnpa_server.errors import CallRefused
from nnpa_server.faults import read_rules
from nnpa_server.sessions.metrics import Metrics
from nnpa_server.sessions.store import Counts
from nnpa_server.sessions.tokens import Token, set_caller

from tests.server.conftest import CONFIG, Running
from tests.server.wire import Client, New, chunks, load, op, read_error, refused

DATA = np.arange(8, dtype=np.float32).reshape(2, 4)
ADD = op("add", input_a=1, input_b=1, output=2)
EXCEEDS_MDIS, WARNING = 0x000C0012, 0x00020001


@pytest.fixture(scope="module")
def allowing() -> Iterator[Running]:
    """A server that allows faults, with metrics."""
    server = Running(replace(CONFIG, allow_faults=True, metrics="127.0.0.1:0"))
    yield server
    assert server.server.store.counts() == Counts()
    server.stop()


@pytest.fixture
def guest(allowing: Running) -> Iterator[Client]:
    """A session with a tensor 1 of data and a tensor 2 that may be written."""
    session = allowing.client()
    session.run(*load(1, DATA), *load(2, DATA))
    yield session
    session.delete()


def _update(client: Client, *rules: FaultRule, paths: tuple[str, ...] = ("fault_rules",)) -> Any:
    session = pb.Session(name=client.session, fault_rules=rules)
    request = pb.UpdateSessionRequest(session=session)
    request.update_mask.paths.extend(paths)
    return client.stub.UpdateSession(request)


def _marks(call: grpc.Call) -> list[str]:
    return [str(value) for key, value in call.trailing_metadata() or () if key == "nnpa-fault"]


def test_a_server_without_the_flag_refuses_rules(client: Client) -> None:
    """A server without --allow-faults refuses rules, in a new session and in an old one."""
    rules = [FaultRule(note=True)]
    code, reason = grpc.StatusCode.PERMISSION_DENIED, "FAULTS_NOT_ALLOWED"
    with refused(code, reason, option="--allow-faults", field="session.fault_rules"):
        client.stub.CreateSession(pb.CreateSessionRequest(session=pb.Session(fault_rules=rules)))
    with refused(code, reason, option="--allow-faults"):
        _update(client, *rules)
    _update(client)


def test_a_session_begins_with_rules(allowing: Running) -> None:
    """Rules of a new session hold from its first call, and the session's state has them."""
    rule = FaultRule(operation="zdnn_add", status="ZDNN_EXCEEDS_MDIS")
    client = Client(allowing.channel, pb.Session(fault_rules=[rule]))
    assert list(client.state().fault_rules) == [rule]
    results = client.run(*load(1, DATA), *load(2, DATA), ADD)
    assert [result.zdnn_status for result in results] == [0] * 6 + [EXCEEDS_MDIS]
    client.delete()


def test_a_list_ends_at_an_injected_error(guest: Client) -> None:
    """A list stops at an injected error as at any, and goes on after a warning."""
    _update(guest, FaultRule(operation="add", status="ZDNN_EXCEEDS_MDIS", nth=2))
    assert [result.zdnn_status for result in guest.run(ADD, ADD, ADD)] == [0, EXCEEDS_MDIS]
    _update(guest, FaultRule(operation="add", status=str(WARNING), nth=2))
    assert [result.zdnn_status for result in guest.run(ADD, ADD, ADD)] == [0, WARNING, 0]


def test_a_fault_is_marked_in_log_metadata_and_session(
    guest: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault has the same mark in the log, in the trailing metadata and in the session."""
    _update(guest, FaultRule(operation="add", status="ZDNN_EXCEEDS_MDIS", output_written=True))
    with caplog.at_level(logging.WARNING, logger="nnpa.fault"):
        _, call = guest.stub.Execute.with_call(guest.request(ADD))
    mark = "call=1 operation=add rule=0 effect=status detail=ZDNN_EXCEEDS_MDIS"
    assert _marks(call) == [mark]
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.endswith(mark)
    assert guest.session not in line
    (fault,) = guest.state().injected_faults
    facts = (fault.sequence, fault.call, fault.operation, fault.rule, fault.effect, fault.detail)
    assert facts == (1, 1, "add", 0, "status", "ZDNN_EXCEEDS_MDIS")
    _, call = guest.stub.Execute.with_call(guest.request(op("sub", input_a=1, input_b=1, output=2)))
    assert _marks(call) == []


@pytest.mark.parametrize(
    ("rule", "code", "reason"),
    [
        (FaultRule(program_check="data"), grpc.StatusCode.ABORTED, "PROGRAM_CHECK"),
        (FaultRule(lose_connection="before"), grpc.StatusCode.UNAVAILABLE, ""),
        (FaultRule(lose_connection="after"), grpc.StatusCode.UNAVAILABLE, ""),
    ],
)
def test_marks_of_errors(
    guest: Client, rule: FaultRule, code: grpc.StatusCode, reason: str
) -> None:
    """A call that ends with an error has the mark of its fault beside its request id."""
    _update(guest, rule)
    with pytest.raises(grpc.RpcError) as caught:
        guest.run(ADD)
    call: Any = caught.value
    error = read_error(call)
    assert (error.code, error.reason) == (code, reason)
    assert error.request_id
    assert len(_marks(call)) == 1


def test_marks_are_bounded(guest: Client) -> None:
    """Metadata holds sixteen marks of a call, and the session the last thousand."""
    _update(guest, FaultRule(note=True))
    _, call = guest.stub.Execute.with_call(guest.request(*[ADD] * 1010))
    assert len(_marks(call)) == 16
    kept = guest.state().injected_faults
    assert [fault.sequence for fault in kept] == list(range(11, 1011))


def test_marks_of_a_stream_are_bounded(guest: Client) -> None:
    """A stream of more faults than its metadata can hold ends well, with the first of them."""
    _update(guest, FaultRule(operation="zdnn_add", note=True))
    stream = guest.stub.ExecuteStream(iter([guest.request(ADD)] * 300))
    assert sum(len(answer.results) for answer in stream) == 300
    assert len(_marks(stream)) == 16
    assert len(guest.state().injected_faults) == 300


def test_streams_meet_faults(guest: Client) -> None:
    """Lists of a stream, and tensors in chunks, meet faults as unary calls do."""
    _update(guest, FaultRule(operation="add", status="ZDNN_EXCEEDS_MDIS", nth=2))
    answers = list(guest.stub.ExecuteStream(iter([guest.request(ADD), guest.request(ADD)])))
    assert [answer.results[0].zdnn_status for answer in answers] == [0, EXCEEDS_MDIS]
    _update(guest, FaultRule(status="ZDNN_CONVERT_FAILURE"))
    arrays = guest.arrays_header(op("transform_ztensor", ztensor=1), DATA.nbytes)
    guest.run(op("reset_ztensor", ztensor=1))
    chunk = pb.WriteTensorRequest(chunk=DATA.tobytes())
    assert guest.write([arrays, chunk]).zdnn_status == 0x00100003
    header, data = guest.read(operation=op("transform_origtensor", ztensor=2))
    assert (header.result.zdnn_status, data) == (0x00100003, b"")
    assert [fault.call for fault in guest.state().injected_faults] == [2, 4, 5]


def test_a_refused_upload_is_a_call_like_in_a_list(guest: Client) -> None:
    """A transform that the library refuses has its number and meets its rule, chunked or not."""
    rule = FaultRule(operation="transform_ztensor", status="ZDNN_UNAVAILABLE_FUNCTION")
    _update(guest, rule)
    transform = op("transform_ztensor", ztensor=1, data=[DATA.tobytes()])
    (listed,) = guest.run(transform)
    header = guest.arrays_header(op("transform_ztensor", ztensor=1), DATA.nbytes)
    streamed = guest.write([header, *chunks(DATA.tobytes())])
    assert listed.zdnn_status == streamed.zdnn_status
    first, second = guest.state().injected_faults
    assert (first.call + 1, first.operation) == (second.call, second.operation)


def test_an_output_left_to_the_server(guest: Client) -> None:
    """An error creates no output, even with output_written; a lost connection does."""
    make = op("add", input_a=1, input_b=1, output=New(9))
    _update(guest, FaultRule(operation="add", status="ZDNN_EXCEEDS_MDIS", output_written=True))
    (result,) = guest.run(make)
    assert result.zdnn_status == EXCEEDS_MDIS
    assert not result.outputs
    assert guest.used()[0] == 2
    _update(guest, FaultRule(operation="add", lose_connection="after"))
    with pytest.raises(grpc.RpcError):
        guest.run(make)
    assert guest.used()[0] == 3
    assert guest.array(9).tolist() == (DATA + DATA).reshape(-1).tolist()


def test_housekeeping_of_the_life_cycle_meets_no_fault(guest: Client) -> None:
    """Only life-cycle operations may be housekeeping, which meets no fault and has no number."""
    _update(guest, FaultRule(status="ZDNN_INVALID_BUFFER"))
    free = op("free_ztensor_buffer", ztensor=2)
    free.housekeeping = True
    assert [result.zdnn_status for result in guest.run(free)] == [0]
    add = op("add", input_a=1, input_b=1, output=1)
    add.housekeeping = True
    assert [result.zdnn_status for result in guest.run(add)] == [0x00100002]
    assert [fault.call for fault in guest.state().injected_faults] == [1]


def test_other_options_leave_rules_alone(guest: Client) -> None:
    """An update of another option keeps the rules and their counts; an empty mask sets both."""
    rule = FaultRule(operation="add", status="ZDNN_EXCEEDS_MDIS", nth=2)
    _update(guest, rule)
    guest.run(ADD)
    session = pb.Session(name=guest.session, precheck=True)
    updated = guest.stub.UpdateSession(pb.UpdateSessionRequest(session=session))
    assert list(updated.fault_rules) == [rule]
    assert [result.zdnn_status for result in guest.run(ADD)] == [EXCEEDS_MDIS]
    both = pb.Session(name=guest.session, precheck=True, fault_rules=[rule, FaultRule(note=True)])
    updated = guest.stub.UpdateSession(pb.UpdateSessionRequest(session=both))
    assert len(updated.fault_rules) == 2
    assert not _update(guest, paths=("fault_rules", "precheck")).fault_rules


def test_a_moved_guest_follows_its_session_home(guest: Client) -> None:
    """A session updated while its guest is away has the new machine when the guest returns."""
    _update(guest, FaultRule(operation="add", nth=1, move=FaultMove(machine="z15", calls=2)))
    guest.run(ADD)
    spec = pb.MachineSpec(model=pb.MACHINE_MODEL_TELUM1)
    session = pb.Session(name=guest.session, machine_spec=spec)
    updated = guest.stub.UpdateSession(pb.UpdateSessionRequest(session=session))
    assert updated.machine.name == "machines/z15"
    assert not guest.run(op("is_nnpa_installed"))[0].boolean
    assert guest.run(op("is_nnpa_installed"))[0].boolean
    assert guest.state().machine.name == "machines/telum1"


def test_too_many_rules(guest: Client) -> None:
    """A session has at most a thousand rules."""
    _update(guest, *[FaultRule(note=True)] * 1000)
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID", value=1001):
        _update(guest, *[FaultRule(note=True)] * 1001)


def test_a_bad_rule_changes_nothing(guest: Client) -> None:
    """A refused rule leaves the session's rules as they were."""
    rule = FaultRule(operation="add", status="ZDNN_EXCEEDS_MDIS")
    _update(guest, rule)
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID", field="session.fault_rules[1]"
                 ".operation"):  # fmt: skip
        _update(guest, rule, FaultRule(operation="zdnn_ad", note=True))
    assert list(guest.state().fault_rules) == [rule]


def test_deleting_a_session_ends_its_delay(allowing: Running) -> None:
    """A call that is delayed ends when its session is deleted, and holds nothing after that."""
    rule = FaultRule(operation="add", delay=FaultDelay(seconds=60))
    client = Client(allowing.channel, pb.Session(fault_rules=[rule]))
    client.run(*load(1, DATA), *load(2, DATA))
    codes: list[grpc.StatusCode] = []

    def call() -> None:
        with pytest.raises(grpc.RpcError) as caught:
            client.run(ADD)
        codes.append(read_error(caught.value).code)

    thread = threading.Thread(target=call)
    started = time.monotonic()
    thread.start()
    time.sleep(0.3)
    client.delete()
    thread.join(10)
    assert codes == [grpc.StatusCode.NOT_FOUND]
    assert time.monotonic() - started < 10


def test_metrics_count_what_was_answered(guest: Client, allowing: Running) -> None:
    """Operations are counted by the status injected, or by the code that ended the call."""
    metrics = allowing.server.metrics
    assert isinstance(metrics, Metrics)
    _update(guest, FaultRule(operation="min", status="ZDNN_INVALID_SHAPE", nth=1),
            FaultRule(operation="min", lose_connection="before", nth=2))  # fmt: skip
    least = op("min", input_a=1, input_b=1, output=2)
    guest.run(least)
    with pytest.raises(grpc.RpcError):
        guest.run(least)
    counted = metrics.read().operations
    assert counted["min", "telum2", "ZDNN_INVALID_SHAPE"] == 1
    assert counted["min", "telum2", "UNAVAILABLE"] == 1


def test_a_token_bounds_where_a_guest_is_moved() -> None:
    """A rule cannot move a guest to a machine that the token does not allow."""
    rule = FaultRule(move=FaultMove(machine="telum2"))
    set_caller(Token("bob", b"", frozenset({"telum1"}), 0.0, {}))
    try:
        with pytest.raises(CallRefused) as caught:
            read_rules([rule], allowed=True)
    finally:
        set_caller(None)
    assert caught.value.name == "MACHINE_NOT_ALLOWED"


def test_sessions_break_alone(guest: Client) -> None:
    """Rules of one session do not show in another one."""
    _update(guest, FaultRule(status="ZDNN_INVALID_SHAPE"))
    second_session = guest.open_session()
    assert [result.zdnn_status for result in second_session.run(*load(1, DATA))] == [0, 0, 0]
    assert not second_session.state().injected_faults
