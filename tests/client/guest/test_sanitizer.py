# SPDX-License-Identifier: Apache-2.0
"""connect(sanitize=True): misused ztensors are warned of where they are misused, clean ones not."""

import inspect
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from nnpa.zdnn.v1 import accelerator_pb2
from nnpa_client import (
    NnpaError,
    ProgramCheck,
    SanitizerWarning,
    Session,
    TransportError,
    ZdnnError,
    Ztensor,
    zdnn,
)
from nnpa_client._server.transport import Request, Response
from nnpa_server.sessions.store import Store

from tests.client.conftest import Open
from tests.client.in_process import InProcessTransport

HERE = str(Path(__file__))
ONES = np.ones((2, 3), np.float32)
LARGE = np.ones((1, 64, 512, 64), np.float32)  # 8 MiB, which travels in chunks


@pytest.fixture
def session(open_session: Open) -> Session:
    """A session that sanitizes."""
    return open_session(sanitize=True)


def here(offset: int = 0) -> str:
    """Return the place of the caller's line, or of the line `offset` lines after it."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{HERE}:{frame.f_back.f_lineno + offset} in {frame.f_back.f_code.co_name}"


def allocated(session: Session, *shape: int, layout: int = zdnn.ZDNN_2D) -> Ztensor:
    """Return a ztensor that was only allocated."""
    pre = zdnn.init_pre_transformed_desc(layout, zdnn.FP32, *shape)
    return session.init_ztensor_with_malloc(pre, zdnn.generate_transformed_desc(pre))


def said(caught: pytest.WarningsRecorder | list[warnings.WarningMessage]) -> list[SanitizerWarning]:
    """Return the sanitizer's warnings among those that were caught."""
    return [record.message for record in caught if isinstance(record.message, SanitizerWarning)]


def test_sticks_that_nothing_has_written(session: Session) -> None:
    """The warning is at the line that reads them, and its report names the line of allocation."""
    a, where = session.ztensor(ONES), here(1)
    b = session.init_ztensor_with_malloc(a.pre_transformed_desc, a.transformed_desc)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        place = here(1)
        zdnn.add(a, b)
    (warning,) = said(caught)
    assert (warning.misuse, warning.op) == ("NEVER_WRITTEN", "add")
    assert (warning.report.operand, warning.report.use.at) == ("input_b", place)
    assert (warning.report.allocation.operation, warning.report.allocation.at) == (
        "allochelper_ztensor",
        where,
    )
    line = next(record for record in caught if record.message is warning)
    assert f"{line.filename}:{line.lineno} in " in f"{place} "
    assert session.reports == (warning.report,)


def test_a_warning_that_is_an_error(session: Session) -> None:
    """With -W error the failure names the operation and both places."""
    a = session.ztensor(ONES)
    where = here(1)
    b = session.init_ztensor_with_malloc(a.pre_transformed_desc, a.transformed_desc)
    use = here(2)
    with pytest.raises(SanitizerWarning) as caught:
        zdnn.add(a, b)
    text = str(caught.value)
    assert text.startswith(f"zdnn_add at {use}: input_b (tensor ")
    assert text.endswith(f"never been written; allocated by zdnn_allochelper_ztensor at {where}")


def test_calls_of_a_pipeline_have_their_own_places(session: Session) -> None:
    """A misuse that runs when a pipeline ends is reported at the line of its call."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with session.pipeline():
            where = here(1)
            a = allocated(session, 2, 3)
            use = here(1)
            zdnn.exp(a)
    (warning,) = said(caught)
    assert warning.report.use.at == use
    assert warning.report.allocation.at.rpartition(" in ")[2] == "allocated"
    assert where.startswith(HERE)


def test_transforming_what_is_transformed(session: Session) -> None:
    """The second transform is warned of with the first one's place, before its status is raised."""
    first = here(1)
    a = session.ztensor(ONES)
    second = here(2)
    with pytest.warns(SanitizerWarning) as caught, pytest.raises(ZdnnError, match="INVALID_STATE"):
        zdnn.transform_ztensor(a, ONES)
    (warning,) = said(caught)
    assert (warning.misuse, warning.report.use.at) == ("TRANSFORMED_TWICE", second)
    assert (warning.report.other.operation, warning.report.other.at) == ("transform_ztensor", first)


def test_a_result_that_depends_on_padding(session: Session) -> None:
    """A softmax over a bidirectional layer's output counts the columns between directions."""
    hn = _bidirectional(session)
    assert session.reports == ()
    assert not said(_quietly(lambda: zdnn.tanh(hn)))
    (warning,) = said(_quietly(lambda: zdnn.softmax(hn, None, zdnn.SOFTMAX_ACT_NONE)))
    assert (warning.misuse, warning.report.operand) == ("PADDING_READ", "input")
    assert warning.report.other.operation == "lstm"


def _quietly(call: Callable[[], object]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return caught


def _bidirectional(session: Session) -> Ztensor:
    """Return the output of an LSTM of 3 units in both directions: 64 columns per direction."""

    def plain(layout: int, *shape: int) -> Ztensor:
        return session.ztensor(np.full(shape, 0.5, np.float32), layout)

    def gates(usage: int, layout: int, *shape: int) -> Ztensor:
        info = zdnn.RNN_TYPE_LSTM | zdnn.PREV_LAYER_UNI | usage
        pre = zdnn.init_pre_transformed_desc(layout, zdnn.FP32, *shape)
        tfrmd = zdnn.generate_transformed_desc_concatenated(pre, info)
        data = np.full(shape, 0.25, np.float32)
        ztensor = session.init_ztensor_with_malloc(pre, tfrmd)
        return zdnn.transform_ztensor(ztensor, data, data, data, data)

    pre = zdnn.init_pre_transformed_desc(zdnn.ZDNN_4DS, zdnn.FP32, 2, 2, 1, 3)
    hn = session.init_ztensor_with_malloc(pre, zdnn.generate_transformed_desc(pre))
    pre = zdnn.init_pre_transformed_desc(zdnn.ZDNN_4DS, zdnn.FP32, 1, 2, 1, 3)
    cf = session.init_ztensor_with_malloc(pre, zdnn.generate_transformed_desc(pre))
    zdnn.lstm(
        plain(zdnn.ZDNN_3DS, 2, 1, 4),
        plain(zdnn.ZDNN_3DS, 2, 1, 3),
        plain(zdnn.ZDNN_3DS, 2, 1, 3),
        gates(zdnn.USAGE_WEIGHTS, zdnn.ZDNN_3DS, 2, 4, 3),
        gates(zdnn.USAGE_BIASES, zdnn.ZDNN_2DS, 2, 3),
        gates(zdnn.USAGE_HIDDEN_WEIGHTS, zdnn.ZDNN_3DS, 2, 3, 3),
        gates(zdnn.USAGE_HIDDEN_BIASES, zdnn.ZDNN_2DS, 2, 3),
        zdnn.BIDIR,
        None,
        hn,
        cf,
    )
    return hn


USES: dict[str, tuple[Callable[[Ztensor], object], type[NnpaError]]] = {
    "exp": (zdnn.exp, ProgramCheck),
    "transform_origtensor": (zdnn.transform_origtensor, ZdnnError),
    "free_ztensor_buffer": (zdnn.free_ztensor_buffer, ZdnnError),
    "transform_ztensor": (lambda a: zdnn.transform_ztensor(a, ONES), ZdnnError),
}


@pytest.mark.parametrize("op", USES)
def test_use_after_free(session: Session, op: str) -> None:
    """Each use of a freed ztensor warns with the line that freed it, and raises its error."""
    use, error = USES[op]
    a = session.ztensor(ONES)
    number, where = a.id, here(1)
    zdnn.free_ztensor_buffer(a)
    with pytest.warns(SanitizerWarning) as caught, pytest.raises(error):
        use(a)
    (warning,) = said(caught)
    assert (warning.misuse, warning.op) == ("USE_AFTER_FREE", op)
    assert (warning.report.tensor, warning.report.other.at) == (number, where)
    assert warning.report.allocation.operation == "allochelper_ztensor"


def test_use_after_free_in_one_list(session: Session) -> None:
    """A pipeline that frees a ztensor and uses it is refused, and warned with both lines."""
    a = session.ztensor(ONES)
    places: list[str] = []

    def free_and_use() -> None:
        with session.pipeline():
            places.append(here(1))
            zdnn.free_ztensor_buffer(a)
            places.append(here(1))
            zdnn.exp(a)

    with pytest.warns(SanitizerWarning) as caught, pytest.raises(TransportError) as refused:
        free_and_use()
    assert refused.value.reason == "TENSOR_NOT_FOUND"
    (warning,) = said(caught)
    assert warning.misuse == "USE_AFTER_FREE"
    assert [warning.report.other.at, warning.report.use.at] == places
    assert len(session.reports) == 1


def test_a_freed_ztensor_that_is_allocated_again(session: Session) -> None:
    """A ztensor with new sticks does not count as freed; until a write it is never written."""
    a = session.ztensor(ONES)
    zdnn.free_ztensor_buffer(a)
    zdnn.reset_ztensor(a)
    zdnn.allochelper_ztensor(a)
    assert not said(_quietly(lambda: zdnn.transform_ztensor(a, ONES)))
    assert not said(_quietly(lambda: zdnn.exp(a)))


class Blocked(InProcessTransport):
    """A server in process whose answer to one list of operations waits."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.arrived, self.released = threading.Event(), threading.Event()
        self.blocks = ""

    def execute(self, request: Request) -> Response:
        """Run operations; the first list with the blocking operation waits before it runs."""
        names = [operation.WhichOneof("operation") for operation in request.message.operations]
        if self.blocks in names:
            self.blocks = ""
            self.arrived.set()
            assert self.released.wait(30)
        return super().execute(request)


@pytest.mark.parametrize(
    ("first", "second", "operand"),
    [("exp", "tanh", "input"), ("tanh", "exp", "output"), ("tanh", "log", "")],
    ids=["reads what is written", "writes what is read", "both read"],
)
def test_two_threads_on_one_ztensor(store: Store, first: str, second: str, operand: str) -> None:
    """A call warns if another thread's call uses its ztensor and one of the two writes."""
    blocked = Blocked(store)
    with Session(blocked, accelerator_pb2.Session(sanitize=True)) as session:
        a, b = session.ztensor(ONES), session.ztensor(ONES)
        spare = [allocated(session, 2, 3), allocated(session, 2, 3)]
        calls: dict[str, Callable[[], object]] = {
            "exp": lambda: zdnn.exp(a, b),
            "tanh": lambda: zdnn.tanh(b, spare[0]),
            "log": lambda: zdnn.log(b, spare[1]),
        }
        blocked.blocks = first
        first_thread = threading.Thread(target=calls[first])
        first_thread.start()
        assert blocked.arrived.wait(30)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            second_thread = threading.Thread(target=calls[second])
            second_thread.start()
            watch = a.guest.watch
            assert watch is not None
            while watch.under_way < 4:
                threading.Event().wait(0.001)
            blocked.released.set()
            for thread in (first_thread, second_thread):
                thread.join()
        assert watch.under_way == 0
    met = said(caught)
    assert [(warning.misuse, warning.op, warning.report.operand) for warning in met] == (
        [("CONCURRENT_USE", second, operand)] if operand else []
    )
    for warning in met:
        assert warning.report.other.operation == first
        assert warning.report.allocation.operation == "allochelper_ztensor"


def test_large_ztensors(session: Session) -> None:
    """Data that travels in chunks is watched like data in messages."""
    a = allocated(session, *LARGE.shape, layout=zdnn.ZDNN_NHWC)
    with pytest.warns(SanitizerWarning) as caught, pytest.raises(ZdnnError):
        zdnn.transform_origtensor(a)
    assert [warning.misuse for warning in said(caught)] == ["NEVER_WRITTEN"]
    first = here(1)
    zdnn.transform_ztensor(a, LARGE)
    second = here(2)
    with pytest.warns(SanitizerWarning) as caught, pytest.raises(ZdnnError):
        zdnn.transform_ztensor(a, LARGE)
    (warning,) = said(caught)
    assert (warning.report.use.at, warning.report.other.at) == (second, first)
    sticks = a.buffer
    where = here(1)
    a.write_sticks(np.zeros_like(sticks))
    with pytest.warns(SanitizerWarning) as caught, pytest.raises(ZdnnError):
        zdnn.transform_ztensor(a, LARGE)
    (warning,) = said(caught)
    assert (warning.report.other.operation, warning.report.other.at) == ("write_sticks", where)
