# SPDX-License-Identifier: Apache-2.0
"""Session.sanitize: each misuse is reported with operation and sites, and nothing else is."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import pytest
from grpc_status import rpc_status
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import operation_pb2, sanitizer_pb2, tensor_pb2
from nnpa_emulator import Status
from nnpa_server.accelerator import AcceleratorService
from nnpa_server.config import Limits
from nnpa_server.sessions.store import Store

from tests.server.conftest import Running
from tests.server.wire import Client, New, Operation, chunks, desc, init, load, number, op, pre_desc

ONES = np.ones((1, 2, 2, 3), np.float32)
NINF = 0x7FFF
LAYOUT_4DS, LAYOUT_FICO = 7, 10  # of zdnn_data_layouts
Report = sanitizer_pb2.SanitizerReport
Site = sanitizer_pb2.SanitizerSite


@pytest.fixture
def client(running: Running) -> Iterator[Client]:
    """A session that sanitizes."""
    one = Client(running.channel, pb.Session(sanitize=True))
    yield one
    one.delete()


def at(site: str, operation: Operation) -> Operation:
    """Return an operation that says where the program makes the call."""
    operation.site = site
    return operation


def reports(*results: operation_pb2.OperationResult) -> list[Report]:
    """Return what the results report."""
    return [
        one.report for result in results for one in result.diagnostics if one.HasField("report")
    ]


def details(error: grpc.RpcError) -> list[Report]:
    """Return the reports in the status of an error."""
    call: Any = error
    status = rpc_status.from_call(call)
    assert status is not None
    found: list[Report] = []
    for detail in status.details[1:]:
        report = Report()
        assert detail.Unpack(report)
        found.append(report)
    return found


def allocated(tensor_id: int, *dims: int) -> list[Operation]:
    """Create a tensor with a buffer that `alloc.c:1` allocates."""
    made, with_buffer = init(tensor_id, *dims)
    return [made, at("alloc.c:1", with_buffer)]


def cells(client: Client, tensor_id: int) -> npt.NDArray[np.uint16]:
    """Return the cells of a tensor in memory order."""
    _, sticks = client.read(sticks=pb.ReadSticks(id=tensor_id))
    return np.frombuffer(sticks, "<u2")


def test_the_session_tells_that_it_sanitizes(running: Running) -> None:
    """The flag holds from creation on, is told, and cannot be changed."""
    one = Client(running.channel, pb.Session(sanitize=True))
    assert one.state().sanitize
    request = pb.UpdateSessionRequest(session=pb.Session(name=one.session, sanitize=False))
    request.update_mask.paths.append("sanitize")
    with pytest.raises(grpc.RpcError):
        one.stub.UpdateSession(request)
    one.delete()


def test_fresh_buffers_hold_the_pattern(client: Client) -> None:
    """Sticks that nothing has written are NINF in every cell, where they are zero otherwise."""
    client.run(*init(1, 1, 2, 2, 3))
    assert (cells(client, 1) == NINF).all()
    tensor = tensor_pb2.Ztensor(transformed_desc=desc(1, 2, 2, 3))
    client.write([client.sticks_header(id=2, new_ztensor=tensor)])
    assert (cells(client, 2) == NINF).all()
    plain = client.other()
    plain.run(*init(1, 1, 2, 2, 3))
    assert not cells(plain, 1).any()


def test_padding_holds_the_pattern(client: Client) -> None:
    """What transforms and operations write has NINF behind its dims, and its elements as ever."""
    client.run(*load(1, ONES), op("add", input_a=1, input_b=1, output=New(2)))
    plain = client.other()
    plain.run(*load(1, ONES), op("add", input_a=1, input_b=1, output=New(2)))
    for tensor_id in (1, 2):
        there, before = cells(client, tensor_id), cells(plain, tensor_id)
        assert np.count_nonzero(before) == 12
        assert np.array_equal(there[before != 0], before[before != 0])
        assert (there[before == 0] == NINF).all()


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
    assert report.text in [one.text for one in result.diagnostics]
    assert result.zdnn_status == Status.ZDNN_ELEMENT_RANGE_VIOLATION


@pytest.mark.parametrize("arm", ["transform_origtensor", "getrange_ztensor"])
def test_converting_sticks_that_nothing_has_written(client: Client, arm: str) -> None:
    """Reading back what was only allocated is reported beside the library's refusal."""
    *_, result = client.run(*allocated(1, 1, 2, 2, 3), op(arm, ztensor=1))
    assert [one.misuse for one in reports(result)] == [sanitizer_pb2.MISUSE_NEVER_WRITTEN]
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
    """A transform of a transformed tensor is reported with who wrote it, and refused as ever."""
    made = load(1, ONES)
    again = Operation()
    again.CopyFrom(made[-1])
    *_, result = client.run(*made[:-1], at("first.c:1", made[-1]), at("again.c:2", again))
    (report,) = reports(result)
    assert report.misuse == sanitizer_pb2.MISUSE_TRANSFORMED_TWICE
    assert report.use == Site(operation="transform_ztensor", at="again.c:2")
    assert report.other == Site(operation="transform_ztensor", at="first.c:1")
    assert result.zdnn_status == Status.ZDNN_INVALID_STATE
    reset, done = client.run(op("reset_ztensor", ztensor=1), again)
    assert not reports(reset, done)


def test_reshaping_into_what_is_transformed(client: Client) -> None:
    """A reshape into a transformed tensor is reported, and refused as ever."""
    *_, result = client.run(*load(1, ONES), *load(2, ONES), op("reshape_ztensor", src=1, dest=2))
    (report,) = reports(result)
    assert (report.misuse, report.operand) == (sanitizer_pb2.MISUSE_TRANSFORMED_TWICE, "dest")
    assert result.zdnn_status == Status.ZDNN_INVALID_STATE


def test_an_id_that_was_freed(client: Client) -> None:
    """The error for a freed id says, in its details, who allocated and who freed the tensor."""
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
    """A list that uses what it has freed before is refused as ever, and told where it freed it."""
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
    """A structure whose id is told to be freed is reported, also when the machine ends the call."""
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
    assert [one.misuse for one in details(caught.value)] == [sanitizer_pb2.MISUSE_USE_AFTER_FREE]


def test_what_only_a_client_knows_of_a_tensor(client: Client) -> None:
    """A client that holds its sticks tells what happened to them; the server reports it."""
    structure = tensor_pb2.Ztensor(
        transformed_desc=desc(1, 1, 1, 3), sticks=bytes(4096), is_transformed=True
    )
    output = tensor_pb2.Ztensor(transformed_desc=desc(1, 1, 1, 3))
    operation = at("use.c:9", op("exp", input=structure, output=output))
    assert not reports(*client.run(operation))
    known = operation.exp.input.provenance
    known.never_written = True
    known.allocation.CopyFrom(Site(operation="allochelper_ztensor", at="a.c:1"))
    known.free.CopyFrom(Site(operation="free_ztensor_buffer", at="f.c:2"))
    known.concurrent.CopyFrom(Site(operation="relu", at="t.c:3"))
    found = reports(*client.run(operation))
    assert {one.misuse: one.other.at for one in found} == {
        sanitizer_pb2.MISUSE_NEVER_WRITTEN: "",
        sanitizer_pb2.MISUSE_USE_AFTER_FREE: "f.c:2",
        sanitizer_pb2.MISUSE_CONCURRENT_USE: "t.c:3",
    }
    assert {(one.use.at, one.allocation.at, one.tensor) for one in found} == {
        ("use.c:9", "a.c:1", 0)
    }


def _bidirectional_output(client: Client) -> None:
    """Make tensor 1 what a bidirectional layer of 3 units returns: 64 columns per direction."""
    pre = pre_desc(2, 2, 1, 3, layout=LAYOUT_4DS)
    made = op(
        "init_ztensor", ztensor=1, pre_transformed_desc=pre, transformed_desc=desc(2, 1, 1, 128)
    )
    sticks = np.zeros((2, 2, 32, 64), "<u2")
    sticks[:, :, 0, :3] = 0x3E00
    client.run(made, op("allochelper_ztensor", ztensor=1))
    client.write(
        [
            client.sticks_header(
                id=1, total_bytes=sticks.nbytes, is_transformed=True, site="layer.c:1"
            ),
            *chunks(sticks.tobytes()),
        ]
    )


def test_a_result_that_depends_on_padding(client: Client) -> None:
    """A softmax over a bidirectional layer's output counts the columns between the directions."""
    _bidirectional_output(client)
    (result,) = client.run(at("use.c:2", op("softmax", input=1, act_func=0, output=New(2))))
    (report,) = reports(result)
    assert report.misuse == sanitizer_pb2.MISUSE_PADDING_READ
    assert (report.operand, report.tensor) == ("input", 1)
    assert report.use == Site(operation="softmax", at="use.c:2")
    assert report.other == Site(operation="write_sticks", at="layer.c:1")
    assert result.zdnn_status == 0


def test_padding_that_no_result_depends_on(client: Client) -> None:
    """An element by element function of the same tensor, in place or not, reads no padding."""
    _bidirectional_output(client)
    results = client.run(
        op("tanh", input=1, output=New(2)), op("add", input_a=1, input_b=2, output=1)
    )
    assert not reports(*results)


def test_descriptors_that_do_not_belong_together(client: Client) -> None:
    """Gaps are looked for where the user's descriptor tells them, and nowhere else."""
    gates = desc(1, 1, 1, 3)
    gates.layout = number(LAYOUT_FICO)
    client.run(
        op("init_ztensor", ztensor=1, pre_transformed_desc=pre_desc(0), transformed_desc=gates),
        op("allochelper_ztensor", ztensor=1),
    )
    client.write([client.sticks_header(id=1, total_bytes=4096), *chunks(bytes(4096))])
    (result,) = client.run(op("exp", input=1, output=1))
    assert (result.zdnn_status, reports(result)) == (0, [])


def test_the_input_whose_padding_matters_is_named(client: Client) -> None:
    """Of two inputs with padding only the one is reported on which the result depends."""
    _bidirectional_output(client)
    client.run(
        *load(2, np.ones((2, 1, 128, 3), np.float32)), *load(3, np.ones((2, 1, 1, 3), np.float32))
    )
    (result,) = client.run(
        op("matmul_op", input_a=1, input_b=2, input_c=3, op_type=0, output=New(4))
    )
    (report,) = reports(result)
    assert (report.misuse, report.operand) == (sanitizer_pb2.MISUSE_PADDING_READ, "input_a")


def test_jittered_results_stay_what_they_are(running: Running) -> None:
    """Looking for padding takes nothing from the sequence of perturbed results."""
    data = np.linspace(0.1, 2, 12, dtype=np.float32).reshape(1, 2, 2, 3)
    seen: list[npt.NDArray[np.float32]] = []
    for sanitize in (False, True):
        options = pb.Session(sanitize=sanitize, numerics=pb.NUMERICS_JITTER, jitter_seed=5)
        one = Client(running.channel, options)
        results = one.run(
            *load(1, data), op("exp", input=1, output=New(2)), op("exp", input=2, output=New(3))
        )
        assert not reports(*results)
        seen.append(one.array(3))
        one.delete()
    assert np.array_equal(seen[0], seen[1])


class Waiting:
    """A call that does something while it runs, and says when it has come to wait for its turn."""

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
        """Return what follows the answer: nothing."""
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
    found: list[Report] = []
    context = Waiting()

    def request(*operations: Operation) -> pb.ExecuteRequest:
        return pb.ExecuteRequest(session=name, operations=operations)

    def call() -> None:
        one = at("two.c:2", op(second[0], **second[1]))
        found.extend(reports(*service.Execute(request(one), context).results))

    thread = threading.Thread(target=call)

    def meanwhile() -> None:
        thread.start()
        assert context.waits.wait(30)

    service.Execute(request(*load(1, ONES), *load(2, ONES), *load(3, ONES)), Waiting())
    one = at("one.c:1", op(first[0], **first[1]))
    answer = service.Execute(request(one, op("is_nnpa_installed")), Waiting(meanwhile))
    assert not reports(*answer.results)
    thread.join()
    assert [(report.operand, report.tensor) for report in found] == (
        [(operand, 2)] if operand else []
    )
    for report in found:
        assert report.misuse == sanitizer_pb2.MISUSE_CONCURRENT_USE
        assert report.use == Site(operation=second[0], at="two.c:2")
        assert report.other == Site(operation=first[0], at="one.c:1")
    assert not reports(*service.Execute(request(op(second[0], **second[1])), Waiting()).results)
    service.store.close()


def test_a_stream_that_meets_a_call() -> None:
    """A tensor that is filled by a stream while another call reads it is reported."""
    service = AcceleratorService(Store(Limits()))
    asked = pb.CreateSessionRequest(session=pb.Session(sanitize=True))
    name = service.CreateSession(asked, Waiting()).name
    made = [*load(1, ONES), op("reset_ztensor", ztensor=1), *load(2, ONES)]
    service.Execute(pb.ExecuteRequest(session=name, operations=made), Waiting())
    found: list[Report] = []
    context = Waiting()
    arrays = pb.WriteArrays(
        operation=at("two.c:2", op("transform_ztensor", ztensor=1)), array_bytes=[ONES.nbytes]
    )
    header = pb.WriteTensorHeader(session=name, arrays=arrays)

    def write() -> None:
        messages = [pb.WriteTensorRequest(header=header), *chunks(ONES.tobytes())]
        found.extend(reports(service.WriteTensor(iter(messages), context).result))

    thread = threading.Thread(target=write)

    def meanwhile() -> None:
        thread.start()
        assert context.waits.wait(30)

    read = [at("one.c:1", op("exp", input=1, output=2)), op("is_nnpa_installed")]
    service.Execute(pb.ExecuteRequest(session=name, operations=read), Waiting(meanwhile))
    thread.join()
    (report,) = found
    assert (report.misuse, report.operand) == (sanitizer_pb2.MISUSE_CONCURRENT_USE, "ztensor")
    assert (report.use.at, report.other.at) == ("two.c:2", "one.c:1")
    service.store.close()


def test_reports_survive_the_end_of_their_call(client: Client) -> None:
    """What was found before a program check, and whose answer is lost, comes with the error."""
    client.run(*allocated(1, 1, 2, 2, 3), *load(2, np.ones((1, 1, 1, 3), np.float32)))
    with pytest.raises(grpc.RpcError) as caught:
        client.run(
            at("use.c:2", op("exp", input=1, output=New(3))),
            op("add", input_a=3, input_b=2, output=New(4)),
        )
    (report,) = details(caught.value)
    assert (report.misuse, report.use.at) == (sanitizer_pb2.MISUSE_NEVER_WRITTEN, "use.c:2")


def test_reports_of_an_error_fit_its_trailers(client: Client) -> None:
    """Many reports with sites as long as can be are cut to what gRPC carries beside an error."""
    long = "é" * 5000
    client.run(*allocated(1, 1, 2, 2, 3), *load(2, np.ones((1, 1, 1, 3), np.float32)))
    uses = [at(long, op("exp", input=1, output=New(new))) for new in range(10, 30)]
    with pytest.raises(grpc.RpcError) as caught:
        client.run(*uses, op("add", input_a=10, input_b=2, output=New(4)))
    call: Any = caught.value
    assert call.code() == grpc.StatusCode.ABORTED
    found = details(caught.value)
    assert found
    assert sum(one.ByteSize() for one in found) <= 2048
    assert found[0].use.at == "é" * 128


def test_a_call_has_a_thousand_reports_at_most(client: Client) -> None:
    """A list that misuses a tensor without end gets no answer without end, nor does the next."""
    client.run(*allocated(1, 1, 1, 1, 1), *load(2, np.ones((1, 1, 1, 1), np.float32)))
    use = op("exp", input=1, output=2)
    assert len(reports(*client.run(*[use] * 1100))) == 1000
    assert len(reports(*client.run(use))) == 1


def test_a_session_without_the_flag_reports_nothing(running: Running) -> None:
    """Without the flag, sites and what clients tell of tensors are not looked at."""
    one = Client(running.channel)
    operation = at("use.c:2", op("add", input_a=1, input_b=2, output=New(3)))
    operation.add.input_a.provenance.never_written = True
    results = one.run(*load(1, ONES), *init(2, 1, 2, 2, 3), operation)
    assert not reports(*results)
    assert results[-1].zdnn_status == 0
    one.delete()


def test_copies_are_made_within_the_quota(start: Callable[..., Running]) -> None:
    """Where the quota has no room for copies nothing is looked for, and the operation runs."""
    running = start()
    one = Client(running.channel, pb.Session(sanitize=True))
    large = np.ones((1, 64, 32, 64), np.float32)  # 256 KiB of sticks, a quarter of the quota
    results = one.run(*init(1, *large.shape), *init(2, *large.shape))
    data = [large.astype("<f4").tobytes()]
    results += one.run(op("transform_ztensor", ztensor=1, data=data))
    results += one.run(op("exp", input=1, output=2))
    assert [result.zdnn_status for result in results] == [0] * 6
    one.delete()
