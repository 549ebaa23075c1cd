# SPDX-License-Identifier: Apache-2.0
"""Faults from Python: every effect, when it applies, and how it is marked."""

import time
import warnings

import numpy as np
import numpy.typing as npt
import pytest
from nnpa_client import (
    ProgramCheck,
    Session,
    TransportError,
    ZdnnError,
    ZdnnWarning,
    Ztensor,
    connect,
    zdnn,
)
from nnpa_client.faults import FaultDelay, FaultMove

DATA = np.arange(8, dtype=np.float32).reshape(2, 4)


def _sticks(ztensor: Ztensor) -> npt.NDArray[np.uint8]:
    buffer = ztensor.buffer
    assert buffer is not None
    return buffer.copy()


def test_status_without_output(session: Session, a: Ztensor) -> None:
    """A status is raised for the nth call alone, and its output stays as it was."""
    out = zdnn.add(a, a)
    injected_status = zdnn.ZDNN_EXCEEDS_MDIS
    with session.faults(zdnn.mul, status=injected_status, nth=2) as faults:
        zdnn.mul(a, a, out)
        zdnn.add(a, a, out)
        with pytest.raises(ZdnnError) as caught:
            zdnn.mul(a, a, out)
        assert caught.value.status == injected_status
        assert caught.value.refusal is not None
        assert caught.value.refusal.constraint == "fault"
        zdnn.mul(a, a)
    assert out.numpy().tolist() == (DATA + DATA).tolist()
    ((operation, effect, detail),) = [(o.operation, o.effect, o.detail) for o in faults.injected]
    assert (operation, effect, detail) == ("mul", "status", "ZDNN_EXCEEDS_MDIS")
    zdnn.mul(a, a)
    zdnn.mul(a, a)


def test_status_with_output(session: Session, a: Ztensor) -> None:
    """A status may come although the output was written."""
    out = zdnn.sub(a, a)
    with (
        session.faults("zdnn_add", status="ZDNN_FUNC_RC_F000", output_written=True),
        pytest.raises(ZdnnError) as caught,
    ):
        zdnn.add(a, a, out)
    assert caught.value.status == zdnn.ZDNN_FUNC_RC_F000
    assert out.numpy().tolist() == (DATA + DATA).tolist()


def test_number_without_a_name(session: Session, a: Ztensor) -> None:
    """A response code that zDNN has no name for comes as its number."""
    with session.faults(zdnn.add, status=0x000C1234), pytest.raises(ZdnnError) as caught:
        zdnn.add(a, a)
    assert int(caught.value.status) == 0x000C1234


def test_warning(session: Session, a: Ztensor) -> None:
    """A warning's output is valid."""
    with (
        session.faults(zdnn.add, status=zdnn.ZDNN_ELEMENT_RANGE_VIOLATION),
        pytest.warns(ZdnnWarning),
    ):
        out = zdnn.add(a, a)
    assert out.numpy().tolist() == (DATA + DATA).tolist()


def test_range_violation(session: Session, a: Ztensor) -> None:
    """A rule turns two elements into no numbers, and the warning counts them."""
    with (
        session.faults(zdnn.add, range_violation=2, seed=5) as faults,
        pytest.warns(ZdnnWarning) as caught,
    ):
        out = zdnn.add(a, a)
    (warning,) = [record.message for record in caught if isinstance(record.message, ZdnnWarning)]
    assert warning.violation is not None
    assert warning.violation.operands[0].count == 2
    codes = _sticks(out).view("<u2").reshape(-1)
    assert np.count_nonzero(codes & 0x7FFF == 0x7FFF) == 2
    assert [fault.effect for fault in faults.injected] == ["range_violation"]


@pytest.mark.parametrize("kind", ["data", "access", "operation"])
def test_program_check(session: Session, a: Ztensor, kind: str) -> None:
    """A program check of any kind is raised, and the session lives on."""
    with session.faults(zdnn.add, program_check=kind), pytest.raises(ProgramCheck) as caught:
        zdnn.add(a, a)
    assert caught.value.kind == kind
    assert zdnn.add(a, a).numpy().tolist() == (DATA + DATA).tolist()


def test_program_check_as_a_status(target: str) -> None:
    """A session that wants a status for program checks gets one."""
    with connect(target, program_check="status") as session:
        a = session.ztensor(DATA)
        with session.faults(zdnn.add, program_check="data"), pytest.raises(ZdnnError) as caught:
            zdnn.add(a, a)
    assert caught.value.status == zdnn.ZDNN_UNSUPPORTED_AIU_EXCEPTION


@pytest.mark.parametrize("bits", [1, 7])
def test_wrong_bits(session: Session, a: Ztensor, bits: int) -> None:
    """A rule flips its number of bits in the elements, the same bits for the same seed."""
    right = _sticks(zdnn.add(a, a))
    wrong = []
    for _ in range(2):
        with session.faults(zdnn.add, flip_bits=bits, seed=11):
            wrong.append(_sticks(zdnn.add(a, a)))
    assert int(np.unpackbits(right ^ wrong[0]).sum()) == bits
    assert (wrong[0] == wrong[1]).all()
    assert _sticks(zdnn.add(a, a)).tobytes() == right.tobytes()


def test_wrong_bits_of_an_array(session: Session, a: Ztensor) -> None:
    """A rule flips a bit of the array that is read back, and leaves the sticks right."""
    with session.faults(zdnn.transform_origtensor, flip_bits=1, seed=3):
        wrong = a.numpy()
    difference = wrong.view(np.uint8) ^ DATA.view(np.uint8)
    assert int(np.unpackbits(difference).sum()) == 1
    assert a.numpy().tolist() == DATA.tolist()


def test_the_sanitizer_sees_what_functions_do(target: str) -> None:
    """Wrong bits are a fault of the rule, not a misuse that the sanitizer reports."""
    with connect(target, sanitize=True) as session:
        a = session.ztensor(DATA)
        with session.faults(zdnn.add, flip_bits=20), warnings.catch_warnings():
            warnings.simplefilter("error")
            zdnn.add(a, a)
        assert not session.reports


def test_wrong_weights_are_seen(session: Session) -> None:
    """A product sees the bits of its operand that flipped, although it knows the weights."""
    pre = zdnn.init_pre_transformed_desc(zdnn.ZDNN_2D, zdnn.FP32, 4, 4)
    tfrmd = zdnn.generate_transformed_desc(pre)
    x, w = (session.init_ztensor_with_malloc(pre, tfrmd) for _ in range(2))
    identity = np.eye(4, dtype=np.float32)
    zdnn.transform_ztensor(x, identity)
    zdnn.transform_ztensor(w, identity)
    bias = session.ztensor(np.zeros(4, np.float32))
    right = zdnn.matmul_op(x, w, bias, zdnn.MATMUL_OP_ADDITION).numpy()
    with session.faults(zdnn.transform_ztensor, flip_bits=40):
        zdnn.reset_ztensor(w)
        zdnn.transform_ztensor(w, identity)
    changed = zdnn.matmul_op(x, w, bias, zdnn.MATMUL_OP_ADDITION).numpy()
    assert not np.array_equal(right, changed, equal_nan=True)


def test_fixed_delay(session: Session, a: Ztensor) -> None:
    """A rule delays a call by its seconds, and does not change the answer."""
    with session.faults(zdnn.add, delay=0.3):
        start = time.monotonic()
        assert zdnn.add(a, a).numpy().tolist() == (DATA + DATA).tolist()
        assert time.monotonic() - start >= 0.3


@pytest.mark.parametrize("distribution", ["uniform", "normal", "exponential"])
def test_drawn_delay(session: Session, a: Ztensor, distribution: str) -> None:
    """Delays of a distribution differ, and come again with their seed."""
    delay = FaultDelay(seconds=0.004, spread=0.003, distribution=distribution)
    drawn = []
    for _ in range(2):
        with session.faults(zdnn.add, delay=delay, seed=9) as faults:
            for _ in range(5):
                zdnn.add(a, a)
        drawn.append([fault.detail for fault in faults.injected])
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 5


@pytest.mark.heavy
def test_a_client_that_gives_up_ends_a_delay(target: str) -> None:
    """A deadline passes in the middle of a delay, and the session is free again."""
    with connect(target, timeout=3) as session:
        a = session.ztensor(DATA)
        with session.faults(zdnn.add, delay=60, nth=1):
            with pytest.raises(TransportError, match="DEADLINE_EXCEEDED"):
                zdnn.add(a, a)
            zdnn.add(a, a)


def test_allocation_failure(session: Session) -> None:
    """Storage runs out where a tensor is allocated, under each name of the allocating function."""
    pre = zdnn.init_pre_transformed_desc(zdnn.ZDNN_1D, zdnn.FP32, 8)
    tfrmd = zdnn.generate_transformed_desc(pre)
    for name in ("zdnn_init_ztensor_with_malloc", "allochelper_ztensor"):
        with (
            session.faults(name, status=zdnn.ZDNN_ALLOCATION_FAILURE),
            pytest.raises(ZdnnError) as caught,
        ):
            session.init_ztensor_with_malloc(pre, tfrmd)
        assert caught.value.status == zdnn.ZDNN_ALLOCATION_FAILURE
    session.init_ztensor_with_malloc(pre, tfrmd)


@pytest.mark.parametrize(("moment", "ran"), [("before", False), ("after", True)])
def test_lost_connection(session: Session, a: Ztensor, moment: str, ran: bool) -> None:
    """A connection breaks before a function ran, or after: then it has taken effect."""
    out = zdnn.sub(a, a)
    with (
        session.faults(zdnn.add, lose_connection=moment) as faults,
        pytest.raises(TransportError) as caught,
    ):
        zdnn.add(a, a, out)
    assert (caught.value.code, caught.value.reason) == ("UNAVAILABLE", "")
    assert out.numpy().tolist() == ((DATA + DATA) if ran else (DATA - DATA)).tolist()
    assert [(fault.effect, fault.detail) for fault in faults.injected] == [
        ("lose_connection", moment)
    ]


def test_the_machine_disappears_and_comes_back(session: Session, a: Ztensor) -> None:
    """A guest on a machine without NNPA is refused, and keeps its query result until a refresh."""
    move = FaultMove(machine="telum2-nonnpa", calls=4)
    with session.faults(zdnn.add, move=move, nth=1) as faults:
        with pytest.raises(ZdnnError) as caught:
            zdnn.add(a, a)
        assert caught.value.status == zdnn.ZDNN_UNAVAILABLE_FUNCTION
        assert not session.is_nnpa_installed()
        assert session.get_nnpa_max_dim_idx_size() > 0
        with pytest.raises(ZdnnError):
            session.refresh_nnpa_query_result()
        assert session.is_nnpa_installed()
        assert zdnn.add(a, a).numpy().tolist() == (DATA + DATA).tolist()
    assert [fault.detail for fault in faults.injected] == ["telum2-nonnpa", "back"]


def test_an_older_machine(session: Session, a: Ztensor) -> None:
    """A guest that moves to a Telum I loses the functions of Telum II, and names its machine."""
    with session.faults(zdnn.add, move="z16"):
        zdnn.add(a, a)
        assert session.status().machine.name == "machines/telum1"
        with pytest.raises(ZdnnError):
            zdnn.gelu(a)
        session.update(precheck=True)
        assert session.status().machine.name == "machines/telum1"
    assert session.status().machine.name == "machines/telum2"
    zdnn.gelu(a)


def test_refresh_fails(session: Session) -> None:
    """A refresh of the query result fails as it does on a machine without NNPA."""
    with session.faults("zdnn_refresh_nnpa_query_result", status=zdnn.ZDNN_UNAVAILABLE_FUNCTION):
        with pytest.raises(ZdnnError) as caught:
            session.refresh_nnpa_query_result()
        assert session.is_nnpa_installed()
    assert caught.value.status == zdnn.ZDNN_UNAVAILABLE_FUNCTION
