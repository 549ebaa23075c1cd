# SPDX-License-Identifier: Apache-2.0
"""Errors and warnings say what went wrong, where, and what to do."""

import logging
import pickle
import subprocess
import sys

import numpy as np
import pytest
from nnpa.zdnn.v1 import status_pb2
from nnpa.zdnn.v1.operation_pb2 import (
    DIAGNOSTIC_STREAM_STDERR,
    DIAGNOSTIC_STREAM_STDOUT,
    Add,
    Diagnostic,
    Exp,
    Operation,
)
from nnpa.zdnn.v1.tensor_pb2 import TensorRef
from nnpa_client import (
    MachineSpec,
    NnpaError,
    ProgramCheck,
    Session,
    SessionLostError,
    Status,
    TransportError,
    ZdnnError,
    ZdnnWarning,
    connect,
    zdnn,
)
from nnpa_client._server.transport import Request, Response
from nnpa_client._values.advice import ADVICE, NOTHING_HAS_RUN
from nnpa_server.config import Limits
from nnpa_server.sessions.store import Store

from tests.client.conftest import Open
from tests.client.in_process import InProcessTransport

ONES = np.ones(3, np.float32)


def test_the_tree() -> None:
    """Everything raised on purpose is an NnpaError; the warning is a UserWarning."""
    for kind in (ZdnnError, ProgramCheck, TransportError):
        assert issubclass(kind, NnpaError)
    assert issubclass(ZdnnWarning, UserWarning)


def test_zdnn_error_carries_the_answer(session: Session) -> None:
    """A refusal has status, name, message, op, and field, value, limit, constraint."""
    ztensor = session.ztensor(ONES)
    with pytest.raises(ZdnnError) as caught:
        zdnn.transform_ztensor(ztensor, ONES)
    error = caught.value
    assert error.status is Status.ZDNN_INVALID_STATE
    assert int(error.status) == 0x00100004
    assert error.name == "ZDNN_INVALID_STATE"
    assert error.message == "ZDNN_INVALID_STATE: Invalid zTensor state."
    assert error.op == "transform_ztensor"
    assert error.operation_index is None
    assert error.refusal is not None
    assert error.refusal.field
    assert error.refusal.text in str(error)
    assert error.result is not None


def test_precheck_makes_a_status_of_a_program_check(open_session: Open) -> None:
    """Operands that contradict each other end the program, or are refused with precheck."""
    for precheck in (False, True):
        session = open_session(precheck=precheck)
        a, b = session.ztensor(ONES), session.ztensor(np.ones(4, np.float32))
        with pytest.raises(ZdnnError if precheck else ProgramCheck) as caught:
            zdnn.add(a, b)
        error: NnpaError = caught.value
        if isinstance(error, ZdnnError):
            assert error.status == Status.ZDNN_INVALID_SHAPE
        if isinstance(error, ProgramCheck):
            assert (error.kind, error.op) == ("data", "add")
            assert error.precheck_status == Status.ZDNN_INVALID_SHAPE
            assert "With precheck the status would have been ZDNN_INVALID_SHAPE" in str(error)
        np.testing.assert_array_equal(zdnn.add(a, a).numpy(), 2 * ONES)


def test_program_check_as_a_status(open_session: Open) -> None:
    """With program_check="status" a program check becomes precheck's status."""
    session = open_session(program_check="status")
    with pytest.raises(ZdnnError, match="ZDNN_INVALID_SHAPE"):
        zdnn.add(session.ztensor(ONES), session.ztensor(np.ones(4, np.float32)))


def test_convert_failure_keeps_the_data(open_session: Open) -> None:
    """ZDNN_CONVERT_FAILURE writes out_buf nevertheless, and the violation names elements."""
    session = open_session("telum1")
    with pytest.warns(ZdnnWarning):
        ztensor = zdnn.log(session.ztensor(np.array([1, -2], np.float32)))
    out = np.zeros(2, np.float32)
    with pytest.raises(ZdnnError, match="ZDNN_CONVERT_FAILURE") as caught:
        zdnn.transform_origtensor(ztensor, out)
    assert np.isnan(out[1])
    assert caught.value.violation is not None


@pytest.mark.parametrize("rows", [1, 600])
def test_convert_failure_of_arrays(open_session: Open, rows: int) -> None:
    """An infinite value in user data is ZDNN_CONVERT_FAILURE, inline and in chunks."""
    session = open_session("telum1")
    array = np.ones((rows, 1024), np.float32)
    array[-1, -1] = np.inf
    with pytest.raises(ZdnnError, match="ZDNN_CONVERT_FAILURE"):
        session.ztensor(array)


def test_failed_allocation_leaves_a_plain_ztensor(session: Session) -> None:
    """A ztensor whose allocation is refused has no buffer and may try again."""
    pre = zdnn.init_pre_transformed_desc(zdnn.ZDNN_1D, zdnn.FP32, 0)
    ztensor = session.init_ztensor(pre, zdnn.generate_transformed_desc(pre))
    for _ in range(2):
        with pytest.raises(ZdnnError, match="zdnn_allochelper_ztensor: ZDNN_INVALID_SHAPE"):
            zdnn.allochelper_ztensor(ztensor)
    assert ztensor.buffer is None


def test_an_operand_without_a_buffer(session: Session) -> None:
    """A ztensor without a buffer as an operand is an access exception; for transforms a status."""
    pre = zdnn.init_pre_transformed_desc(zdnn.ZDNN_1D, zdnn.FP32, 3)
    blank = session.init_ztensor(pre, zdnn.generate_transformed_desc(pre))
    with pytest.raises(ProgramCheck) as caught:
        zdnn.add(session.ztensor(ONES), blank)
    assert caught.value.kind == "access"
    with pytest.raises(ZdnnError, match="ZDNN_INVALID_BUFFER"):
        zdnn.transform_ztensor(blank, ONES)
    with pytest.raises(ZdnnError, match="ZDNN_INVALID_BUFFER"):
        zdnn.transform_origtensor(blank)


def test_unknown_names_are_refused(open_session: Open) -> None:
    """An unknown machine or library version is a TransportError that says what to do."""
    with pytest.raises(TransportError) as machine:
        open_session("telum9")
    assert machine.value.reason == "MACHINE_NOT_FOUND"
    assert "nnpa info" in machine.value.advice
    with pytest.raises(TransportError) as library:
        open_session(library_version="9.9.9")
    assert library.value.reason == "LIBRARY_VERSION_UNKNOWN"
    assert "9.9.9" in str(library.value)


def test_functions_of_later_libraries_do_not_exist(open_session: Open) -> None:
    """A function newer than the library is FUNCTION_NOT_IN_LIBRARY, as it would not link."""
    session = open_session(library_version="1.0.0")
    assert session.library == "1.0.0"
    assert (zdnn.get_library_version(), zdnn.get_library_version_str()) == (0x010000, "1.0.0")
    with pytest.raises(TransportError) as caught:
        zdnn.sqrt(session.ztensor(ONES))
    assert caught.value.reason == "FUNCTION_NOT_IN_LIBRARY"


def test_custom_machine(open_session: Open) -> None:
    """A MachineSpec makes a smaller machine, whose limits hold."""
    session = open_session(MachineSpec(max_dim1=64))
    assert zdnn.get_max_for_dim(1) == 64
    assert "custom" in repr(session)
    with pytest.raises(ZdnnError, match="ZDNN_INVALID_SHAPE"):
        session.ztensor(np.ones(65, np.float32))


def test_update_moves_the_guest(session: Session) -> None:
    """After a move the library answers from its old query result until it is refreshed."""
    assert zdnn.is_nnpa_function_installed(1, zdnn.NNPA_SQRT)
    session.update("telum1", precheck=True)
    assert session.machine.name == "machines/telum1"
    assert zdnn.is_nnpa_function_installed(1, zdnn.NNPA_SQRT)
    zdnn.refresh_nnpa_query_result()
    assert not zdnn.is_nnpa_function_installed(1, zdnn.NNPA_SQRT)
    with pytest.raises(ZdnnError, match="ZDNN_INVALID_SHAPE"):
        zdnn.add(session.ztensor(ONES), session.ztensor(np.ones(4, np.float32)))


def test_unknown_options_are_named(session: Session) -> None:
    """An option's unknown word is refused with the words that are known."""
    with pytest.raises(ValueError, match="accumulate: 'fp8', expected one of fp32, fp64"):
        session.update(accumulate="fp8")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - the test


def test_a_closed_session_says_so(session: Session) -> None:
    """A call after close is an error of the package, not of gRPC."""
    ztensor = session.ztensor(ONES)
    session.close()
    with pytest.raises(TransportError, match=r"connect again|closed"):
        zdnn.add(ztensor, ztensor)


def test_nobody_listens() -> None:
    """A target without a server is UNAVAILABLE, names the target and what to check."""
    with pytest.raises(TransportError) as caught:
        connect("unix:/nonexistent/nnpa.sock")
    assert caught.value.code == "UNAVAILABLE"
    assert "unix:/nonexistent/nnpa.sock" in str(caught.value)
    assert "nnpa-server" in caught.value.advice


def test_every_reason_has_advice() -> None:
    """Every ErrorReason of the contract has advice, and all advice is for an ErrorReason."""
    reasons = {
        name.removeprefix("ERROR_REASON_")
        for name in status_pb2.ErrorReason.keys()  # noqa: SIM118 - an enum wrapper is no mapping
    } - {"UNSPECIFIED"}
    assert set(ADVICE) == reasons
    assert reasons > NOTHING_HAS_RUN


def test_raw_operations_are_not_judged(session: Session) -> None:
    """`session.execute` returns answers as they are, errors included."""
    ztensor = session.ztensor(-ONES)
    target = session.new_id()
    results = session.execute(
        [
            Operation(exp=Exp(input=ztensor.ref(), output=TensorRef(new_id=target))),
            Operation(
                add=Add(input_a=ztensor.ref(), input_b=ztensor.ref(), output=TensorRef(id=target)),
                buffer_misaligned=True,
            ),
        ]
    )
    assert [result.zdnn_status for result in results] == [0, Status.ZDNN_MISALIGNED_TENSOR]


def test_indexes_count_the_callers_operations(session: Session) -> None:
    """Freeing dropped ztensors in front of a list does not move the indexes in its errors."""
    kept = session.ztensor(ONES)
    for _ in range(3):
        session.ztensor(ONES)
    with pytest.raises(TransportError) as caught:
        session.execute(
            [
                Operation(exp=Exp(input=kept.ref(), output=TensorRef(new_id=session.new_id()))),
                Operation(exp=Exp(input=TensorRef(id=10**9), output=kept.ref())),
            ]
        )
    assert caught.value.metadata["operation_index"] == "1"
    assert "operations[1].exp.input" in str(caught.value)


class Talking(InProcessTransport):
    """A transport whose answers carry what the library would print."""

    def execute(self, request: Request) -> Response:
        """Run operations; add a line on each stream to the last answer."""
        answer = super().execute(request)
        for stream, text in ((DIAGNOSTIC_STREAM_STDOUT, "out"), (DIAGNOSTIC_STREAM_STDERR, "err")):
            answer.results[-1].diagnostics.append(Diagnostic(stream=stream, text=text))
        return answer


def test_what_the_library_prints_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Diagnostics of an answer go to the logger nnpa_client.zdnn, by stream."""
    caplog.set_level(logging.INFO, "nnpa_client.zdnn")
    with Session(Talking(Store(Limits()))) as session:
        session.init()
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("INFO", "out"),
        ("ERROR", "err"),
    ]


def test_an_error_is_printed_once() -> None:
    """A program that does not set up logging gets the exception, and no log line beside it."""
    program = """
import numpy as np
from nnpa_client import ZdnnError, connect, zdnn

with connect(machine="z16") as session:
    try:
        zdnn.transform_ztensor(session.ztensor(np.ones(4, np.float32)), np.ones(4, np.float32))
    except ZdnnError as error:
        print(error)
"""
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert "ZDNN_INVALID_STATE" in answer.stdout
    assert answer.stderr == ""


def test_quota_frees_what_was_dropped_first() -> None:
    """A session at its limit of tensors goes on after Python objects were dropped."""
    session = Session(InProcessTransport(Store(Limits(max_session_tensors=3))))
    held = [session.ztensor(ONES) for _ in range(3)]
    with pytest.raises(TransportError) as caught:
        session.ztensor(ONES)
    assert caught.value.reason == "TENSOR_QUOTA_EXCEEDED"
    held.clear()
    del caught
    assert session.ztensor(ONES).is_transformed


@pytest.mark.parametrize("kind", [TransportError, SessionLostError])
def test_transport_errors_reach_another_process(kind: type[TransportError]) -> None:
    """A pickled error has the type, the words and the fields of the first."""
    error = kind("UNAVAILABLE", "gone", "SERVER_DRAINING", {"field": "x"}, "Try again.")
    error.retry_delay = 1.5
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (kind, str(error))
    assert (copy.code, copy.message, copy.reason) == ("UNAVAILABLE", "gone", "SERVER_DRAINING")
    assert (copy.metadata, copy.advice, copy.retry_delay) == ({"field": "x"}, "Try again.", 1.5)
