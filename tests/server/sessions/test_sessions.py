# SPDX-License-Identifier: Apache-2.0
"""Sessions: isolation, options, listings, limits of their number, and their end."""

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from unittest.mock import Mock

import grpc
import numpy as np
import pytest
from google.protobuf import field_mask_pb2
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1.trace_pb2 import RecordTraceRequest
from nnpa.zdnn.v1.trace_pb2_grpc import TraceServiceStub
from nnpa_emulator import MACHINES, Guest
from nnpa_server.config import Limits
from nnpa_server.sessions.quota import Quota
from nnpa_server.sessions.store import Counts, Session, Store

from tests.server.conftest import LIMITS, Running
from tests.server.process import PATIENCE, wait_until
from tests.server.wire import Client, New, Operation, begun, init, load, number, op, refused

CODE = grpc.StatusCode
DATA = np.ones((1, 1, 2, 3), np.float32)


def test_tensors_are_invisible_to_other_sessions(client: Client) -> None:
    """Ids belong to a session: the same number is another tensor, or none, elsewhere."""
    second_session = client.open_session()
    client.run(*load(1, DATA), *load(2, DATA))
    second_session.run(*load(1, 5 * DATA))
    with refused(CODE.NOT_FOUND, "TENSOR_NOT_FOUND", tensor=2):
        second_session.run(op("exp", input=2, output=1))
    assert np.array_equal(client.array(1), DATA.ravel())
    listed = second_session.stub.ListTensors(pb.ListTensorsRequest(session=second_session.session))
    assert [tensor.id for tensor in listed.tensors] == [1]


def test_names_cannot_be_guessed(client: Client) -> None:
    """Names carry 192 random bits, and share nothing but the prefix."""
    names = {client.session, *(client.open_session().session for _ in range(5))}
    assert len({name[:14] for name in names}) == 6
    assert all(len(name) == len("sessions/") + 32 for name in names)


def test_defaults_and_limits_are_told(client: Client) -> None:
    """CreateSession answers machine, library, limits, version and times."""
    state = client.state()
    assert state.machine.name == "machines/telum2"
    assert state.library_version == "1.2.0"
    assert state.limits.max_tensors == LIMITS.max_session_tensors
    assert state.limits.max_bytes == LIMITS.max_session_bytes
    assert state.limits.idle_timeout.seconds == LIMITS.idle_timeout
    assert state.server_version
    assert state.expire_time.seconds > state.create_time.seconds


@pytest.mark.parametrize("name", ["telum1", "telum2", "z15", "telum1-nonnpa", "telum2-nonnpa"])
def test_machines_by_model(client: Client, name: str) -> None:
    """A session runs on the model that it chose, with the facts of GetMachine."""
    model = pb.MachineModel.Value(f"MACHINE_MODEL_{name.upper().replace('-', '_')}")
    session = client.open_session(pb.Session(machine_spec=pb.MachineSpec(model=model)))
    machine = session.stub.GetMachine(pb.GetMachineRequest(name=f"machines/{name}"))
    assert session.state().machine == machine
    assert len(machine.qaf_block) == 256
    (installed,) = session.run(op("is_nnpa_installed"))
    assert installed.boolean == machine.nnpa_installed == ("telum" in name and "non" not in name)


def test_aliases_and_pages_of_machines(client: Client) -> None:
    """Aliases name the same machine, and pages of any size list all machines once."""
    stub = client.stub
    z16 = stub.GetMachine(pb.GetMachineRequest(name="machines/z16"))
    assert z16.name == "machines/telum1"
    assert z16.functions_vector == z16.qaf_block[:32]
    assert z16.parmblk_formats_mask.to_bytes(4, "big") == z16.qaf_block[32:36]
    names: list[str] = []
    token = ""
    while True:
        page = stub.ListMachines(pb.ListMachinesRequest(page_size=2, page_token=token))
        names += [machine.name for machine in page.machines]
        token = page.next_page_token
        if not token:
            break
    whole = stub.ListMachines(pb.ListMachinesRequest(page_size=5000))
    assert names == [machine.name for machine in whole.machines]
    assert len(set(names)) == 5


def test_custom_machine(client: Client) -> None:
    """Overrides show in the state, which then has no machine's name, and bound operations."""
    spec = pb.MachineSpec(max_dim1=8, removed_functions=[number(33)], parmblk_formats_mask=1 << 31)
    session = client.open_session(pb.Session(machine_spec=spec))
    machine = session.state().machine
    assert (machine.name, machine.max_dim1, machine.parmblk_formats_mask) == ("", 8, 1 << 31)
    assert machine.model == pb.MACHINE_MODEL_TELUM2
    assert 33 not in machine.functions
    *_, exp = session.run(*load(1, DATA), op("exp", input=1, output=New(2)))
    assert exp.zdnn_status == 0x000C0002
    *_, refusal = session.run(*init(2, 9))
    assert refusal.refusal.limit


def test_moving_a_guest_leaves_the_librarys_copy(client: Client) -> None:
    """After a move queries answer from the old copy until the library asks the machine again."""
    client.run(*load(1, DATA))
    request = pb.UpdateSessionRequest(
        session=pb.Session(
            name=client.session, machine_spec=pb.MachineSpec(model=pb.MACHINE_MODEL_TELUM1)
        ),
        update_mask=field_mask_pb2.FieldMask(paths=["machine_spec"]),
    )
    assert client.stub.UpdateSession(request).machine.name == "machines/telum1"
    has_sqrt = op("is_nnpa_function_installed", function_codes=[34])
    before, _, after = client.run(has_sqrt, op("refresh_nnpa_query_result"), has_sqrt)
    assert (before.boolean, after.boolean) == (True, False)
    assert client.used()[0] == 1


def test_update_takes_masks_as_aip_134_says(client: Client) -> None:
    """A named field that is absent gets its default; an empty mask names all present fields."""

    def update(session: pb.Session, *paths: str) -> pb.Session:
        session.name = client.session
        mask = field_mask_pb2.FieldMask(paths=paths)
        request = pb.UpdateSessionRequest(session=session, update_mask=mask)
        updated: pb.Session = client.stub.UpdateSession(request)
        return updated

    changed = update(pb.Session(precheck=True, jitter_seed=7, status_diag=0), "precheck")
    assert (changed.precheck, changed.jitter_seed) == (True, 0)
    changed = update(pb.Session(jitter_seed=7, status_diag=262145))
    assert (changed.precheck, changed.jitter_seed, changed.status_diag) == (True, 7, 262145)
    changed = update(pb.Session(), "precheck", "status_diag")
    assert not changed.precheck
    assert not changed.HasField("status_diag")
    assert changed.jitter_seed == 7
    for path in ("library_version", "machine_spec.model", "limits", "nonsense"):
        with refused(CODE.INVALID_ARGUMENT, "FIELD_INVALID", value=path):
            update(pb.Session(), path)


def test_pages_of_tensors(client: Client) -> None:
    """Tensors are listed by ascending id, each once, whatever the page size."""
    ids = [31, 5, 2**63, 17, 8]
    client.run(*(init(tensor_id, 4)[0] for tensor_id in ids))
    seen: list[int] = []
    token = ""
    while True:
        page = client.stub.ListTensors(
            pb.ListTensorsRequest(session=client.session, page_size=2, page_token=token)
        )
        seen += [tensor.id for tensor in page.tensors]
        token = page.next_page_token
        if not token:
            break
    assert seen == sorted(ids)
    assert page.tensors[0].ztensor.null_buffer


def test_sessions_are_bounded(client: Client) -> None:
    """A session beyond the limit is refused, and a session that ends makes room."""
    neighbours = [client.open_session() for _ in range(LIMITS.max_sessions - 1)]
    with refused(CODE.RESOURCE_EXHAUSTED, "SESSION_QUOTA_EXCEEDED", limit=LIMITS.max_sessions):
        client.open_session()
    client.opened.remove(neighbours[0])
    neighbours[0].delete()
    client.open_session()


@pytest.mark.heavy
def test_idle_sessions_expire(start: Callable[..., Running]) -> None:
    """A session without a call ends and frees everything; a call makes its time start anew."""
    running = start(limits=Limits(idle_timeout=3.0))
    idle, busy = running.client(), running.client()
    idle.run(*load(1, DATA))
    busy.run(*load(1, DATA))
    deadline = time.monotonic() + 30
    while running.server.store.counts().sessions == 2 and time.monotonic() < deadline:
        busy.state()
        time.sleep(0.05)
    with refused(CODE.NOT_FOUND, "SESSION_NOT_FOUND"):
        idle.state()
    assert running.server.store.counts() == Counts(1, 1, 4096, 0)
    busy.delete()
    assert running.server.store.counts() == Counts()


def long_list(client: Client) -> list[Operation]:
    """Return a list that takes seconds, and creates tensor 98 at its end."""
    client.run(*load(1, np.ones((1, 32, 32, 64), np.float32)))
    return [*[op("exp", input=1, output=1)] * 40_000, *init(98, 4)]


def idle_again(client: Client) -> None:
    """Wait until nothing runs in a session: an empty list gets its turn."""
    client.run(timeout=30)


def test_deadline_is_honoured_between_operations(client: Client) -> None:
    """A list ends soon after its deadline; earlier operations stay, later ones never run."""
    request = client.request(*long_list(client))
    began = time.monotonic()
    with pytest.raises(grpc.RpcError) as caught:
        client.stub.Execute(request, timeout=0.3)
    assert "DEADLINE_EXCEEDED" in str(caught.value)
    idle_again(client)
    assert time.monotonic() - began < 5
    assert client.used()[0] == 1


def test_cancellation_is_honoured_between_operations(client: Client) -> None:
    """A list ends soon after its client gave up."""
    call = begun(client, *long_list(client))
    began = time.monotonic()
    call.cancel()
    idle_again(client)
    assert time.monotonic() - began < 5
    assert client.used()[0] == 2


def test_deleting_a_session_ends_what_runs_in_it(running: Running, client: Client) -> None:
    """DeleteSession cancels the running list and frees its tensors when that has ended."""
    session = client.open_session()
    call = begun(session, *long_list(session))
    client.opened.remove(session)
    session.delete()
    with refused(CODE.NOT_FOUND, "SESSION_NOT_FOUND"):
        call.result()
    assert running.server.store.counts() == Counts(1)


def test_calls_of_one_session_at_a_time_are_bounded(start: Callable[..., Running]) -> None:
    """One session cannot take all threads: calls beyond its share are refused at once."""
    running = start(workers=8)
    client, neighbour = running.client(), running.client()
    calls = [begun(client, *long_list(client))]
    calls += [client.stub.Execute.future(client.request(), timeout=20) for _ in range(6)]
    neighbour.run(op("is_nnpa_installed"), timeout=5)
    time.sleep(0.2)
    calls[0].cancel()
    codes = [call.code() for call in calls[1:]]
    assert CODE.RESOURCE_EXHAUSTED in codes
    assert CODE.OK in codes


def test_streams_are_bounded_and_leave_room_for_calls(start: Callable[..., Running]) -> None:
    """Open streams take half of the threads at most; unary calls are answered all the while."""
    running = start(workers=4)
    client = running.client()
    traces = TraceServiceStub(client.channel)
    request = RecordTraceRequest()
    first = iter(traces.RecordTrace(request))
    next(first)
    with refused(CODE.RESOURCE_EXHAUSTED, "CALL_QUOTA_EXCEEDED", field="max_streams", limit=1):
        next(iter(traces.RecordTrace(request)))
    apart = grpc.insecure_channel(running.address, [("grpc.use_local_subchannel_pool", 1)])
    second_traces = TraceServiceStub(apart)
    second = iter(second_traces.RecordTrace(request))
    next(second)
    with refused(CODE.RESOURCE_EXHAUSTED, "CALL_QUOTA_EXCEEDED", field="max_streams", limit=2):
        next(iter(second_traces.RecordTrace(request)))
    apart.close()
    client.run(op("is_nnpa_installed"), timeout=5)


def test_conversations_are_bounded_apart(start: Callable[..., Running]) -> None:
    """The streams of lists are bounded by the limit of sessions, whatever the threads for calls.

    They leave uploads and unary calls alone.
    """
    running = start(workers=4, limits=Limits(max_sessions=5))
    client, ended = running.client(), threading.Event()

    def forever() -> Iterator[pb.ExecuteRequest]:
        yield client.request()
        ended.wait()

    streams = [client.stub.ExecuteStream(forever()) for _ in range(5)]
    for stream in streams:
        next(stream)
    with refused(
        CODE.RESOURCE_EXHAUSTED, "CALL_QUOTA_EXCEEDED", field="max_conversations", limit=5
    ):
        next(client.stub.ExecuteStream(forever()))
    client.run(*init(1, 4), timeout=5)
    header = client.arrays_header(op("transform_ztensor", ztensor=1), 16)
    assert client.write([header, pb.WriteTensorRequest(chunk=bytes(16))]).zdnn_status == 0
    ended.set()
    for stream in streams:
        stream.cancel()


@pytest.mark.heavy
def test_idle_streams_are_cancelled(start: Callable[..., Running]) -> None:
    """A stream without a message for as long as a session may be idle is ended."""
    running = start(limits=Limits(idle_timeout=2.0))
    client, ended = running.client(), threading.Event()

    def silent() -> Iterator[pb.ExecuteRequest]:
        yield client.request()
        ended.wait()

    stream = client.stub.ExecuteStream(silent(), timeout=PATIENCE)
    next(stream)
    with pytest.raises(grpc.RpcError) as caught:
        next(stream)
    ended.set()
    assert "CANCELLED" in str(caught.value)


@pytest.mark.heavy
def test_ended_sessions_leave_no_cycles(running: Running) -> None:
    """Neither a session that ended nor a stream that was cut off leaves a cycle of objects."""
    gc.collect()
    gc.disable()
    try:
        session, ended = running.client(), threading.Event()
        session.run(*load(1, DATA))

        def silent() -> Iterator[pb.ExecuteRequest]:
            yield session.request()
            ended.wait()

        stream = session.stub.ExecuteStream(silent(), timeout=PATIENCE)
        next(stream)
        last_busy = running.server.interceptor.last_busy
        wait_until(lambda: last_busy() < time.monotonic() - 0.05)
        cut = time.monotonic()
        stream.cancel()
        ended.set()
        wait_until(lambda: last_busy() > cut)
        session.delete()
        wait_until(lambda: not left_over())
    finally:
        gc.enable()


def left_over() -> list[object]:
    """Return sessions that ended, and errors of gRPC's server with the frames that met them."""
    return [
        each
        for each in gc.get_objects()
        if (type(each) is Session and each.closed)
        or (type(each) is grpc.RpcError and each.__traceback__ is not None)
    ]


@pytest.mark.heavy
def test_a_long_list_of_a_stream_is_not_idle(start: Callable[..., Running]) -> None:
    """A stream gets its answer also if its list runs longer than a stream may be idle."""
    running = start(limits=Limits(idle_timeout=2.0))
    client = running.client()
    client.run(*load(1, np.ones((1, 32, 32, 64), np.float32)))
    request = client.request(*[op("exp", input=1, output=1)] * 12_000)
    began = time.monotonic()
    answers = [len(answer.results) for answer in client.stub.ExecuteStream(iter([request]))]
    assert time.monotonic() - began > 2.6, "it runs for long"
    assert answers == [12_000]


@pytest.mark.heavy
def test_memory_that_a_session_freed_goes_back() -> None:
    """The server gives memory back to the system once a living session has freed a gigabyte."""
    gave_back, seen = threading.Event(), list[int]()

    class Watched(Store):
        def counts(self) -> Counts:
            counts = super().counts()
            seen.append(counts.stored_bytes)
            return counts

    store = Watched(Limits(idle_timeout=2.0), give_back=gave_back.set)
    name = store.create(Guest(MACHINES["telum2"]), pb.Session()).name
    with store.using(name) as session:  # so it does not expire
        session.stored_bytes = 3 << 29
        wait_until(lambda: session.stored_bytes in seen)
        assert not gave_back.is_set()
        session.stored_bytes = 1 << 28
        assert gave_back.wait(10)
    store.close()


def test_a_session_returns_its_place_where_its_end_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A holding that cannot be closed takes no place from later sessions."""
    with closing(Store(replace(LIMITS, max_sessions=1))) as store:
        session = store.create(Guest(MACHINES["telum2"]), pb.Session())
        with monkeypatch.context() as patch:
            patch.setattr(session, "clear", Mock(side_effect=OSError("no space")))
            with pytest.raises(OSError, match="no space"):
                store.delete(session.name)
        store.create(Guest(MACHINES["telum2"]), pb.Session())


def test_a_place_that_was_not_taken_returns_to_nobody() -> None:
    """More returns than places leave the bounds as they are."""
    quota = Quota(1)
    quota.give("a")
    assert [quota.take("a", 1), quota.take("a", 1)] == ["", "server"]
