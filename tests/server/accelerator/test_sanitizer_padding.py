# SPDX-License-Identifier: Apache-2.0
"""Session.sanitize: padding that results depend on, descriptors, jitter, limits of reports."""

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import sanitizer_pb2

from tests.server.accelerator.sanitizing import ONES, Site, allocated, at, details, reports
from tests.server.conftest import Running
from tests.server.wire import Client, New, chunks, desc, init, load, number, op, pre_desc

LAYOUT_4DS, LAYOUT_FICO = 7, 10  # of zdnn_data_layouts


@pytest.fixture
def client(running: Running) -> Iterator[Client]:
    """A session that sanitizes."""
    session = Client(running.channel, pb.Session(sanitize=True))
    yield session
    session.delete()


def _bidirectional_output(client: Client) -> None:
    """Make tensor 1 the output of a bidirectional layer of 3 units: 64 columns per direction."""
    pre = pre_desc(2, 2, 1, 3, layout=LAYOUT_4DS)
    create = op(
        "init_ztensor", ztensor=1, pre_transformed_desc=pre, transformed_desc=desc(2, 1, 1, 128)
    )
    sticks = np.zeros((2, 2, 32, 64), "<u2")
    sticks[:, :, 0, :3] = 0x3E00
    client.run(create, op("allochelper_ztensor", ztensor=1))
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
    """The sanitizer looks for gaps only where the user's descriptor has them."""
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
        session = Client(running.channel, options)
        results = session.run(
            *load(1, data), op("exp", input=1, output=New(2)), op("exp", input=2, output=New(3))
        )
        assert not reports(*results)
        seen.append(session.array(3))
        session.delete()
    assert np.array_equal(seen[0], seen[1])


def test_reports_of_an_error_fit_its_trailers(client: Client) -> None:
    """Many reports with the longest sites are cut to the size that gRPC carries with an error."""
    long = "é" * 5000
    client.run(*allocated(1, 1, 2, 2, 3), *load(2, np.ones((1, 1, 1, 3), np.float32)))
    uses = [at(long, op("exp", input=1, output=New(new))) for new in range(10, 30)]
    with pytest.raises(grpc.RpcError) as caught:
        client.run(*uses, op("add", input_a=10, input_b=2, output=New(4)))
    call: Any = caught.value
    assert call.code() == grpc.StatusCode.ABORTED
    found_reports = details(caught.value)
    assert found_reports
    assert sum(report.ByteSize() for report in found_reports) <= 2048
    assert found_reports[0].use.at == "é" * 128


def test_a_call_has_a_thousand_reports_at_most(client: Client) -> None:
    """A list that misuses a tensor without end gets no answer without end, nor does the next."""
    client.run(*allocated(1, 1, 1, 1, 1), *load(2, np.ones((1, 1, 1, 1), np.float32)))
    use = op("exp", input=1, output=2)
    assert len(reports(*client.run(*[use] * 1100))) == 1000
    assert len(reports(*client.run(use))) == 1


def test_a_session_without_the_flag_reports_nothing(running: Running) -> None:
    """Without the flag the server ignores sites and provenance of tensors."""
    session = Client(running.channel)
    operation = at("use.c:2", op("add", input_a=1, input_b=2, output=New(3)))
    operation.add.input_a.provenance.never_written = True
    results = session.run(*load(1, ONES), *init(2, 1, 2, 2, 3), operation)
    assert not reports(*results)
    assert results[-1].zdnn_status == 0
    session.delete()


def test_copies_are_made_within_the_quota(start: Callable[..., Running]) -> None:
    """Where the quota has no room for copies nothing is looked for, and the operation runs."""
    running = start()
    session = Client(running.channel, pb.Session(sanitize=True))
    large = np.ones((1, 64, 32, 64), np.float32)  # 256 KiB of sticks, a quarter of the quota
    results = session.run(*init(1, *large.shape), *init(2, *large.shape))
    data = [large.astype("<f4").tobytes()]
    results += session.run(op("transform_ztensor", ztensor=1, data=data))
    results += session.run(op("exp", input=1, output=2))
    assert [result.zdnn_status for result in results] == [0] * 6
    session.delete()
