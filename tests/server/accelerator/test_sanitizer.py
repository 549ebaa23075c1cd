# SPDX-License-Identifier: Apache-2.0
"""Session.sanitize: each misuse is reported with operation and sites, and nothing else is."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import sanitizer_pb2, tensor_pb2
from nnpa_emulator import Status
from nnpa_server.accelerator import AcceleratorService
from nnpa_server.config import Limits
from nnpa_server.sessions.store import Store

from tests.server.accelerator.sanitizing import ONES, Report, Site, allocated, at, details, reports
from tests.server.conftest import Running
from tests.server.wire import Client, New, Operation, chunks, desc, init, load, op, pre_desc

NINF = 0x7FFF


@pytest.fixture
def client(running: Running) -> Iterator[Client]:
    """A session that sanitizes."""
    session = Client(running.channel, pb.Session(sanitize=True))
    yield session
    session.delete()


def cells(client: Client, tensor_id: int) -> npt.NDArray[np.uint16]:
    """Return the cells of a tensor in memory order."""
    _, sticks = client.read(sticks=pb.ReadSticks(id=tensor_id))
    return np.frombuffer(sticks, "<u2")


def test_the_session_tells_that_it_sanitizes(running: Running) -> None:
    """The flag holds from creation on; the session's state has it, and no update changes it."""
    session = Client(running.channel, pb.Session(sanitize=True))
    assert session.state().sanitize
    request = pb.UpdateSessionRequest(session=pb.Session(name=session.session, sanitize=False))
    request.update_mask.paths.append("sanitize")
    with pytest.raises(grpc.RpcError):
        session.stub.UpdateSession(request)
    session.delete()


def test_fresh_buffers_hold_the_pattern(client: Client) -> None:
    """Sticks that nothing has written are NINF in every cell, where they are zero otherwise."""
    client.run(*init(1, 1, 2, 2, 3))
    assert (cells(client, 1) == NINF).all()
    tensor = tensor_pb2.Ztensor(transformed_desc=desc(1, 2, 2, 3))
    client.write([client.sticks_header(id=2, new_ztensor=tensor)])
    assert (cells(client, 2) == NINF).all()
    plain = client.open_session()
    plain.run(*init(1, 1, 2, 2, 3))
    assert not cells(plain, 1).any()


def test_padding_holds_the_pattern(client: Client) -> None:
    """Transforms and operations write NINF behind the dims, and leave the elements as they are."""
    client.run(*load(1, ONES), op("add", input_a=1, input_b=1, output=New(2)))
    plain = client.open_session()
    plain.run(*load(1, ONES), op("add", input_a=1, input_b=1, output=New(2)))
    for tensor_id in (1, 2):
        sanitized, unsanitized = cells(client, tensor_id), cells(plain, tensor_id)
        assert np.count_nonzero(unsanitized) == 12
        assert np.array_equal(sanitized[unsanitized != 0], unsanitized[unsanitized != 0])
        assert (sanitized[unsanitized == 0] == NINF).all()


def test_reading_sticks_that_nothing_has_written(client: Client) -> None:
    """An operation on a tensor that was only allocated is reported with both sites, and runs."""
    *_, result = client.run(
        *load(1, ONES),
        *allocated(2, 1, 2, 2, 3),
        at("use.c:2", op("add", input_a=1, input_b=2, output=New(3))),
    )
    (report,) = reports(result)
    assert report.misuse == sanitizer_pb2.MISUSE_NEVER_WRITTEN
    assert (report.operand, report.tensor) == ("input_b", 2)
    assert report.use == Site(operation="add", at="use.c:2")
    assert report.allocation == Site(operation="allochelper_ztensor", at="alloc.c:1")
    assert not report.HasField("other")
    assert report.text == (
        "zdnn_add at use.c:2: input_b (tensor 2) has sticks that have never been written; "
        "allocated by zdnn_allochelper_ztensor at alloc.c:1"
    )
    assert report.text in [diagnostic.text for diagnostic in result.diagnostics]
    assert result.zdnn_status == Status.ZDNN_ELEMENT_RANGE_VIOLATION


@pytest.mark.parametrize("arm", ["transform_origtensor", "getrange_ztensor"])
def test_converting_sticks_that_nothing_has_written(client: Client, arm: str) -> None:
    """Reading a tensor that was only allocated is reported beside the library's refusal."""
    *_, result = client.run(*allocated(1, 1, 2, 2, 3), op(arm, ztensor=1))
    assert [report.misuse for report in reports(result)] == [sanitizer_pb2.MISUSE_NEVER_WRITTEN]
    assert result.zdnn_status == Status.ZDNN_INVALID_STATE


def test_sticks_that_a_client_brings_are_written(client: Client) -> None:
    """Contents by WriteTensor count as written; a buffer made without contents does not."""
    client.run(*allocated(1, 1, 2, 2, 3))
    client.write([client.sticks_header(id=1, total_bytes=8192), *chunks(bytes(8192))])
    tensor = tensor_pb2.Ztensor(
        transformed_desc=desc(1, 2, 2, 3), pre_transformed_desc=pre_desc(1, 2, 2, 3)
    )
    client.write([client.sticks_header(id=2, new_ztensor=tensor, site="put.c:3")])
    (result,) = client.run(op("add", input_a=1, input_b=2, output=New(3)))
    (report,) = reports(result)
    assert (report.tensor, report.misuse) == (2, sanitizer_pb2.MISUSE_NEVER_WRITTEN)
    assert report.allocation == Site(operation="write_sticks", at="put.c:3")
    assert "allocated by write_sticks at put.c:3" in report.text


def test_transforming_what_is_transformed(client: Client) -> None:
    """A transform of a transformed tensor is refused, and the report names its last writer."""
    loading = load(1, ONES)
    transform = Operation()
    transform.CopyFrom(loading[-1])
    *_, result = client.run(*loading[:-1], at("first.c:1", loading[-1]), at("again.c:2", transform))
    (report,) = reports(result)
    assert report.misuse == sanitizer_pb2.MISUSE_TRANSFORMED_TWICE
    assert report.use == Site(operation="transform_ztensor", at="again.c:2")
    assert report.other == Site(operation="transform_ztensor", at="first.c:1")
    assert result.zdnn_status == Status.ZDNN_INVALID_STATE
    reset, done = client.run(op("reset_ztensor", ztensor=1), transform)
    assert not reports(reset, done)


def test_reshaping_into_what_is_transformed(client: Client) -> None:
    """A reshape into a transformed tensor is reported, and refused as ever."""
    *_, result = client.run(*load(1, ONES), *load(2, ONES), op("reshape_ztensor", src=1, dest=2))
    (report,) = reports(result)
    assert (report.misuse, report.operand) == (sanitizer_pb2.MISUSE_TRANSFORMED_TWICE, "dest")
    assert result.zdnn_status == Status.ZDNN_INVALID_STATE


def test_an_id_that_was_freed(client: Client) -> None:
    """The error for a freed id has the sites that allocated and freed the tensor in its details."""
    client.run(*allocated(1, 1, 2, 2, 3), at("free.c:2", op("free_ztensor_buffer", ztensor=1)))
    with pytest.raises(grpc.RpcError) as caught:
        client.run(at("use.c:3", op("exp", input=1, output=New(2))))
    (report,) = details(caught.value)
    assert report.misuse == sanitizer_pb2.MISUSE_USE_AFTER_FREE
    assert report.use == Site(operation="exp", at="use.c:3")
    assert (report.operand, report.tensor) == ("input", 1)
    assert report.allocation == Site(operation="allochelper_ztensor", at="alloc.c:1")
    assert report.other == Site(operation="free_ztensor_buffer", at="free.c:2")


def test_an_id_that_the_same_list_frees(client: Client) -> None:
    """A list that uses a tensor after freeing it is refused; the report names the free."""
    client.run(*load(1, ONES))
    with pytest.raises(grpc.RpcError) as caught:
        client.run(
            at("free.c:2", op("free_ztensor_buffer", ztensor=1)),
            op("exp", input=1, output=New(2)),
        )
    (report,) = details(caught.value)
    assert report.other == Site(operation="free_ztensor_buffer", at="free.c:2")
    assert report.allocation.operation == "allochelper_ztensor"


def test_an_id_that_never_was(client: Client) -> None:
    """An id that names nothing, and never did, is an error without a report."""
    with pytest.raises(grpc.RpcError) as caught:
        client.run(op("exp", input=77, output=New(2)))
    assert details(caught.value) == []


def test_an_id_used_anew_is_not_freed(client: Client) -> None:
    """A tensor that has the id of a freed one is another tensor."""
    client.run(*load(1, ONES), op("free_ztensor_buffer", ztensor=1))
    assert not reports(*client.run(*load(1, ONES), op("exp", input=1, output=New(2))))


def test_a_freed_tensor_that_travels(client: Client) -> None:
    """A structure marked as freed is reported, also when the machine ends the call."""
    client.run(*load(1, ONES), at("free.c:2", op("free_ztensor_buffer", ztensor=1)))
    structure = tensor_pb2.Ztensor(
        transformed_desc=desc(1, 2, 2, 3), pre_transformed_desc=pre_desc(1, 2, 2, 3),
        null_buffer=True,
    )  # fmt: skip
    freed = op("getrange_ztensor", ztensor=structure)
    freed.getrange_ztensor.ztensor.provenance.freed_id = 1
    (result,) = client.run(freed)
    (report,) = reports(result)
    assert report.misuse == sanitizer_pb2.MISUSE_USE_AFTER_FREE
    assert (report.tensor, report.other.at) == (1, "free.c:2")
    structure.is_transformed = True
    ended = op("exp", input=structure, output=structure)
    ended.exp.input.provenance.freed_id = 1
    with pytest.raises(grpc.RpcError) as caught:
        client.run(ended)
    assert [report.misuse for report in details(caught.value)] == [
        sanitizer_pb2.MISUSE_USE_AFTER_FREE
    ]


def test_what_only_a_client_knows_of_a_tensor(client: Client) -> None:
    """The server reports the misuses that a client with its own sticks tells it."""
    structure = tensor_pb2.Ztensor(
        transformed_desc=desc(1, 1, 1, 3), sticks=bytes(4096), is_transformed=True
    )
    output = tensor_pb2.Ztensor(transformed_desc=desc(1, 1, 1, 3))
    operation = at("use.c:9", op("exp", input=structure, output=output))
    assert not reports(*client.run(operation))
    provenance = operation.exp.input.provenance
    provenance.never_written = True
    provenance.allocation.CopyFrom(Site(operation="allochelper_ztensor", at="a.c:1"))
    provenance.free.CopyFrom(Site(operation="free_ztensor_buffer", at="f.c:2"))
    provenance.concurrent.CopyFrom(Site(operation="relu", at="t.c:3"))
    found_reports = reports(*client.run(operation))
    assert {report.misuse: report.other.at for report in found_reports} == {
        sanitizer_pb2.MISUSE_NEVER_WRITTEN: "",
        sanitizer_pb2.MISUSE_USE_AFTER_FREE: "f.c:2",
        sanitizer_pb2.MISUSE_CONCURRENT_USE: "t.c:3",
    }
    assert {(report.use.at, report.allocation.at, report.tensor) for report in found_reports} == {
        ("use.c:9", "a.c:1", 0)
    }


class Waiting:
    """A call that acts while it runs, and signals when it waits for its turn."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self._meanwhile = meanwhile
        self.waits = threading.Event()

    def is_active(self) -> bool:
        """Do it: this is asked between two operations."""
        self._meanwhile()
        return True

    def time_remaining(self) -> float | None:
        """Say that the call waits: this is asked when its tensors are known."""
        self.waits.set()
        return None

    def peer(self) -> str:
        """Return where the client is."""
        return "in-process"

    def trailing_metadata(self) -> Any:
        """Return the trailing metadata: none."""
        return None

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        """Leave it at that."""


@pytest.mark.parametrize(
    ("first", "second", "operand"),
    [
        (("exp", {"input": 1, "output": 2}), ("tanh", {"input": 2, "output": 3}), "input"),
        (("tanh", {"input": 2, "output": 3}), ("exp", {"input": 1, "output": 2}), "output"),
        (("exp", {"input": 1, "output": 2}), ("tanh", {"input": 1, "output": 3}), ""),
    ],
    ids=["reads what is written", "writes what is read", "both read"],
)
def test_calls_that_meet_on_one_tensor(
    first: tuple[str, dict[str, int]], second: tuple[str, dict[str, int]], operand: str
) -> None:
    """Of two calls under way on a tensor that one writes, the second hears of the first."""
    service = AcceleratorService(Store(Limits()))
    name = service.CreateSession(
        pb.CreateSessionRequest(session=pb.Session(sanitize=True)), Waiting()
    ).name
    found_reports: list[Report] = []
    context = Waiting()

    def request(*operations: Operation) -> pb.ExecuteRequest:
        return pb.ExecuteRequest(session=name, operations=operations)

    def call() -> None:
        operation = at("two.c:2", op(second[0], **second[1]))
        found_reports.extend(reports(*service.Execute(request(operation), context).results))

    thread = threading.Thread(target=call)

    def meanwhile() -> None:
        thread.start()
        assert context.waits.wait(30)

    service.Execute(request(*load(1, ONES), *load(2, ONES), *load(3, ONES)), Waiting())
    operation = at("one.c:1", op(first[0], **first[1]))
    answer = service.Execute(request(operation, op("is_nnpa_installed")), Waiting(meanwhile))
    assert not reports(*answer.results)
    thread.join()
    assert [(report.operand, report.tensor) for report in found_reports] == (
        [(operand, 2)] if operand else []
    )
    for report in found_reports:
        assert report.misuse == sanitizer_pb2.MISUSE_CONCURRENT_USE
        assert report.use == Site(operation=second[0], at="two.c:2")
        assert report.other == Site(operation=first[0], at="one.c:1")
    assert not reports(*service.Execute(request(op(second[0], **second[1])), Waiting()).results)
    service.store.close()


def test_a_stream_that_meets_a_call() -> None:
    """A tensor that is filled by a stream while another call reads it is reported."""
    service = AcceleratorService(Store(Limits()))
    creation = pb.CreateSessionRequest(session=pb.Session(sanitize=True))
    name = service.CreateSession(creation, Waiting()).name
    loading = [*load(1, ONES), op("reset_ztensor", ztensor=1), *load(2, ONES)]
    service.Execute(pb.ExecuteRequest(session=name, operations=loading), Waiting())
    found_reports: list[Report] = []
    context = Waiting()
    arrays = pb.WriteArrays(
        operation=at("two.c:2", op("transform_ztensor", ztensor=1)), array_bytes=[ONES.nbytes]
    )
    header = pb.WriteTensorHeader(session=name, arrays=arrays)

    def write() -> None:
        messages = [pb.WriteTensorRequest(header=header), *chunks(ONES.tobytes())]
        found_reports.extend(reports(service.WriteTensor(iter(messages), context).result))

    thread = threading.Thread(target=write)

    def meanwhile() -> None:
        thread.start()
        assert context.waits.wait(30)

    read = [at("one.c:1", op("exp", input=1, output=2)), op("is_nnpa_installed")]
    service.Execute(pb.ExecuteRequest(session=name, operations=read), Waiting(meanwhile))
    thread.join()
    (report,) = found_reports
    assert (report.misuse, report.operand) == (sanitizer_pb2.MISUSE_CONCURRENT_USE, "ztensor")
    assert (report.use.at, report.other.at) == ("two.c:2", "one.c:1")
    service.store.close()


def test_reports_survive_the_end_of_their_call(client: Client) -> None:
    """Reports of operations before a program check come with the error, as no answer has them."""
    client.run(*allocated(1, 1, 2, 2, 3), *load(2, np.ones((1, 1, 1, 3), np.float32)))
    with pytest.raises(grpc.RpcError) as caught:
        client.run(
            at("use.c:2", op("exp", input=1, output=New(3))),
            op("add", input_a=3, input_b=2, output=New(4)),
        )
    (report,) = details(caught.value)
    assert (report.misuse, report.use.at) == (sanitizer_pb2.MISUSE_NEVER_WRITTEN, "use.c:2")
