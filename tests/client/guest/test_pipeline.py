# SPDX-License-Identifier: Apache-2.0
"""Pipelines: one message for many calls, with the same results, errors and warnings."""

import gc
import warnings

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nnpa.zdnn.v1.operation_pb2 import FreeZtensorBuffer, Operation
from nnpa_client import NnpaError, ProgramCheck, Session, ZdnnError, ZdnnWarning, Ztensor, zdnn
from nnpa_server.config import Limits
from nnpa_server.sessions.store import Store

from tests.client.conftest import Open
from tests.client.in_process import InProcessTransport

STEPS = ("add", "sub", "mul", "min", "max", "exp", "sqrt")
Array = npt.NDArray[np.float32]


def walk(session: Session, array: Array, steps: list[tuple[str, int, int]]) -> list[Ztensor]:
    """Run steps over a growing list of ztensors; each step uses two ztensors of the list."""
    tensors = [session.ztensor(array), session.ztensor(array[::-1] / 2)]
    for name, first, second in steps:
        a, b = tensors[first % len(tensors)], tensors[second % len(tensors)]
        verb = getattr(zdnn, name)
        tensors.append(verb(a) if name in ("exp", "sqrt") else verb(a, b))
    return tensors


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9), st.integers(0, 9)), max_size=8)
)
def test_pipeline_equals_one_by_one(session: Session, steps: list[tuple[str, int, int]]) -> None:
    """A pipeline's results equal the results of the same calls one by one, bit for bit."""
    array = np.linspace(-3, 5, 70, dtype=np.float32).reshape(2, 35)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZdnnWarning)
        single = walk(session, array, steps)
        with session.pipeline():
            listed = walk(session, array, steps)
    for expected, queued in zip(single, listed, strict=True):
        np.testing.assert_array_equal(expected.read_sticks(), queued.read_sticks())
        assert repr(expected) == repr(queued)


def counting_session() -> tuple[Session, InProcessTransport]:
    """Return a session in process, and its transport, which counts calls."""
    transport = InProcessTransport(Store(Limits()))
    return Session(transport), transport


def test_one_execute_per_pipeline() -> None:
    """A whole call sequence, reading back included, is one call."""
    session, transport = counting_session()
    array, out = np.ones((2, 3), np.float32), np.empty((2, 3), np.float32)
    before = transport.calls
    with session.pipeline() as pipeline:
        a = session.ztensor(array)
        zdnn.transform_origtensor(zdnn.add(a, a), out)
        assert transport.calls == before
    assert transport.calls == before + 1
    np.testing.assert_array_equal(out, 2 * array)
    assert len(pipeline.results) == 5


def test_a_value_runs_what_is_queued() -> None:
    """A verb whose value is needed sends the list so far, with itself at its end."""
    session, transport = counting_session()
    before = transport.calls
    with session.pipeline():
        a = session.ztensor(np.ones(3, np.float32))
        assert zdnn.getrange_ztensor(a) == (-0.0, 1.0)
        assert transport.calls == before + 1
        zdnn.add(a, a)
    assert transport.calls == before + 2


def test_descriptors_are_known_when_asked_for(session: Session) -> None:
    """Reading an output's descriptors inside a pipeline runs the list so far."""
    with session.pipeline():
        out = zdnn.exp(session.ztensor(np.ones((2, 3), np.float32)))
        assert out.transformed_desc.dim1 == 3


def test_an_error_tells_its_place(session: Session) -> None:
    """The error of a list has the failing call's index; outputs before exist, after do not."""
    a, sums = session.ztensor(np.ones(3, np.float32)), list[Ztensor]()
    with pytest.raises(ZdnnError) as caught, session.pipeline() as pipeline:  # noqa: PT012 - a list
        sums.append(zdnn.add(a, a))
        zdnn.transform_ztensor(a, np.ones(3, np.float32))
        sums.append(zdnn.add(a, a))
    assert (caught.value.op, caught.value.operation_index) == ("transform_ztensor", 1)
    assert "operation 1, zdnn_transform_ztensor" in str(caught.value)
    assert len(pipeline.results) == 2
    np.testing.assert_array_equal(sums[0].numpy(), np.full(3, 2, np.float32))
    with pytest.raises(NnpaError, match="does not exist, the list of operations ended before"):
        sums[1].numpy()
    assert "ended before" in repr(sums[1])


def test_a_warning_does_not_end_the_list(session: Session) -> None:
    """A range violation warns once for each call that has it, and later calls run."""
    a = session.ztensor(np.array([-1, 1], np.float32))
    with pytest.warns(ZdnnWarning, match="zdnn_log") as caught, session.pipeline():  # noqa: PT031 - a list
        zdnn.log(a)
        out = zdnn.add(a, a)
    assert len(caught) == 1
    np.testing.assert_array_equal(out.numpy(), [-2, 2])


def test_a_program_check_leaves_what_ran(session: Session) -> None:
    """After a program check in a list, each ztensor shows whether its call ran."""
    pre = zdnn.init_pre_transformed_desc(zdnn.ZDNN_1D, zdnn.FP32, 3)
    out = session.init_ztensor_with_malloc(pre, zdnn.generate_transformed_desc(pre))
    a, b = session.ztensor(np.ones(3, np.float32)), session.ztensor(np.ones(4, np.float32))
    lost = list[Ztensor]()
    with pytest.raises(ProgramCheck) as caught, session.pipeline():  # noqa: PT012 - a list
        zdnn.add(a, a, out)
        lost.append(zdnn.add(a, b))
    assert (caught.value.op, caught.value.operation_index) == ("add", 1)
    assert out.is_transformed
    np.testing.assert_array_equal(out.numpy(), [2, 2, 2])
    with pytest.raises(NnpaError, match="does not exist"):
        lost[0].numpy()


def test_an_exception_drops_the_list(session: Session) -> None:
    """Leaving the block by an exception runs nothing, and later calls work."""
    a = session.ztensor(np.ones(3, np.float32))
    before, lost = session.status().tensor_count, list[Ztensor]()
    with pytest.raises(KeyError), session.pipeline():  # noqa: PT012 - a list
        lost.append(zdnn.add(a, a))
        raise KeyError
    assert session.status().tensor_count == before
    with pytest.raises(NnpaError, match="left by an exception"):
        lost[0].numpy()
    np.testing.assert_array_equal(zdnn.add(a, a).numpy(), [2, 2, 2])


def test_pipelines_nest() -> None:
    """A pipeline inside another joins it: one call at the end of the outer one."""
    session, transport = counting_session()
    a = session.ztensor(np.ones(3, np.float32))
    before = transport.calls
    with session.pipeline():
        with session.pipeline():
            b = zdnn.add(a, a)
        assert transport.calls == before
        c = zdnn.add(b, b)
    assert transport.calls == before + 1
    np.testing.assert_array_equal(c.numpy(), [4, 4, 4])


def test_operands_live_until_the_list_runs(session: Session) -> None:
    """An operand whose object is dropped inside the block is still there when the list runs."""
    array = np.ones(3, np.float32)
    with session.pipeline():
        out = zdnn.add(session.ztensor(array), zdnn.exp(session.ztensor(array * 0)))
        gc.collect()
        zdnn.add(out, out)
    np.testing.assert_array_equal(out.numpy(), [2, 2, 2])


def test_large_data_keeps_its_place(session: Session) -> None:
    """Data that streams inside a pipeline goes between the calls before it and after it."""
    array = np.ones((600, 1024), np.float32)
    out = np.empty_like(array)
    with session.pipeline():
        a = session.ztensor(array)
        zdnn.transform_origtensor(zdnn.add(a, a), out)
    np.testing.assert_array_equal(out, 2 * array)


def test_a_list_that_is_sent_again_has_its_arrays(session: Session) -> None:
    """A list that fails because a dropped ztensor is gone already is sent again, with arrays."""
    stale = session.ztensor(np.ones((2, 3), np.float32))
    free = Operation(free_ztensor_buffer=FreeZtensorBuffer(ztensor=stale.ref()))
    assert session.execute([free])[0].zdnn_status == 0
    del stale
    gc.collect()
    array = np.arange(1 << 16, dtype=np.float32).reshape(256, 256) % 1000
    outs = [np.empty_like(array) for _ in range(3)]
    with session.pipeline():
        for factor, out in enumerate(outs):
            zdnn.transform_origtensor(session.ztensor(factor + array), out)
    for factor, out in enumerate(outs):
        assert np.array_equal(out, factor + array)


def test_a_list_beyond_one_message_is_split(open_session: Open) -> None:
    """Queued data beyond the server's limit of a message goes in several messages."""
    session = open_session()
    array = np.ones((127, 1024), np.float32)
    limit = session.limits.max_message_bytes
    count = limit // array.nbytes + 2
    with session.pipeline():
        tensors = [session.ztensor(array) for _ in range(count)]
    assert all(tensor.is_transformed for tensor in tensors)
