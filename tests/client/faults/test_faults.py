# SPDX-License-Identifier: Apache-2.0
"""Faults from Python: every effect, when it applies, and how it is marked."""

import time
import warnings
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from nnpa.zdnn.v1.accelerator_pb2 import MACHINE_MODEL_TELUM1
from nnpa_client import (
    MachineSpec,
    ProgramCheck,
    Session,
    TransportError,
    ZdnnError,
    ZdnnWarning,
    Ztensor,
    connect,
    zdnn,
)
from nnpa_client.faults import FaultDelay, FaultMove, make_rule

from tests.client.server_process import serving

DATA = np.arange(8, dtype=np.float32).reshape(2, 4)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The socket of a server that allows faults."""
    socket = tmp_path_factory.mktemp("faults") / "nnpa.sock"
    with serving([f"unix:{socket}"], "--allow-faults") as targets:
        yield targets[0]


@pytest.fixture
def session(target: str) -> Iterator[Session]:
    """A session in which faults may be injected."""
    with connect(target) as one:
        yield one


@pytest.fixture
def a(session: Session) -> Ztensor:
    """A tensor of 0 to 7."""
    return session.ztensor(DATA)


def _sticks(ztensor: Ztensor) -> npt.NDArray[np.uint8]:
    buffer = ztensor.buffer
    assert buffer is not None
    return buffer.copy()


def test_status_without_output(session: Session, a: Ztensor) -> None:
    """A status is raised for the nth call alone, and its output stays as it was."""
    out = zdnn.add(a, a)
    wanted = zdnn.ZDNN_EXCEEDS_MDIS
    with session.faults(zdnn.mul, status=wanted, nth=2) as faults:
        zdnn.mul(a, a, out)
        zdnn.add(a, a, out)
        with pytest.raises(ZdnnError) as caught:
            zdnn.mul(a, a, out)
        assert caught.value.status == wanted
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
    """So many elements as asked for become no numbers, and the warning tells which."""
    with (
        session.faults(zdnn.add, range_violation=2, seed=5) as faults,
        pytest.warns(ZdnnWarning) as caught,
    ):
        out = zdnn.add(a, a)
    (warning,) = [one.message for one in caught if isinstance(one.message, ZdnnWarning)]
    assert warning.violation is not None
    assert warning.violation.operands[0].count == 2
    codes = _sticks(out).view("<u2").reshape(-1)
    assert np.count_nonzero(codes & 0x7FFF == 0x7FFF) == 2
    assert [one.effect for one in faults.injected] == ["range_violation"]


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
    """So many bits of the elements flip as asked for, the same ones for the same seed."""
    right = _sticks(zdnn.add(a, a))
    wrong = []
    for _ in range(2):
        with session.faults(zdnn.add, flip_bits=bits, seed=11):
            wrong.append(_sticks(zdnn.add(a, a)))
    assert int(np.unpackbits(right ^ wrong[0]).sum()) == bits
    assert (wrong[0] == wrong[1]).all()
    assert _sticks(zdnn.add(a, a)).tobytes() == right.tobytes()


def test_wrong_bits_of_an_array(session: Session, a: Ztensor) -> None:
    """What is read back may be wrong while the sticks are right."""
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
    one = np.eye(4, dtype=np.float32)
    zdnn.transform_ztensor(x, one)
    zdnn.transform_ztensor(w, one)
    bias = session.ztensor(np.zeros(4, np.float32))
    right = zdnn.matmul_op(x, w, bias, zdnn.MATMUL_OP_ADDITION).numpy()
    with session.faults(zdnn.transform_ztensor, flip_bits=40):
        zdnn.reset_ztensor(w)
        zdnn.transform_ztensor(w, one)
    changed = zdnn.matmul_op(x, w, bias, zdnn.MATMUL_OP_ADDITION).numpy()
    assert not np.array_equal(right, changed, equal_nan=True)


def test_fixed_delay(session: Session, a: Ztensor) -> None:
    """A call takes as much longer as the rule says, and answers as ever."""
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
        drawn.append([one.detail for one in faults.injected])
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
    """Storage runs out where a tensor is allocated, under any name of what allocates."""
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
    assert [(one.effect, one.detail) for one in faults.injected] == [("lose_connection", moment)]


def test_the_machine_disappears_and_comes_back(session: Session, a: Ztensor) -> None:
    """A guest without NNPA is refused, its query result stays until it is refreshed in vain."""
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
    assert [one.detail for one in faults.injected] == ["telum2-nonnpa", "back"]


def test_an_older_machine(session: Session, a: Ztensor) -> None:
    """A guest that moves to a Telum I loses what that has not, and says where it is."""
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


def _met(a: Ztensor, calls: int) -> list[int]:
    met: list[int] = []
    for number in range(1, calls + 1):
        try:
            zdnn.add(a, a)
        except ZdnnError:
            met.append(number)
    return met


def test_every(session: Session, a: Ztensor) -> None:
    """Every kth call is met."""
    with session.faults(zdnn.add, status="ZDNN_INVALID_SHAPE", every=3):
        assert _met(a, 10) == [3, 6, 9]


def test_probability(session: Session, a: Ztensor) -> None:
    """As many calls are met as the probability says, and the same ones for the same seed."""
    met: list[list[int]] = []
    for seed in (1, 1, 2):
        with session.faults(zdnn.add, status="ZDNN_INVALID_SHAPE", probability=0.5, seed=seed):
            met.append(_met(a, 60))
    assert met[0] == met[1] != met[2]
    assert 15 < len(met[0]) < 45


def test_shape(session: Session, a: Ztensor) -> None:
    """Only calls are met in which a tensor has the shape."""
    b = session.ztensor(np.ones((3, 5), np.float32))
    with session.faults(zdnn.add, status="ZDNN_INVALID_SHAPE", shape=(3, 5)):
        zdnn.add(a, a)
        with pytest.raises(ZdnnError):
            zdnn.add(b, b)


def test_machine(target: str) -> None:
    """Only calls on the machine are met, by its alias too; a custom one counts as its model."""
    rule = make_rule(zdnn.add, {"status": "ZDNN_INVALID_SHAPE", "machine": "z16"})
    custom = MachineSpec(model=MACHINE_MODEL_TELUM1, max_dim1=64)
    for machine, met in (("telum1", [1, 2]), (custom, [1, 2]), ("telum2", [])):
        with connect(target, machine) as session, session.faults(rules=[rule]):
            assert _met(session.ztensor(DATA), 2) == met


def test_call_numbers(session: Session, a: Ztensor) -> None:
    """Calls are numbered, however they are sent; what is freed for dropped tensors is none."""
    with session.faults(note=True) as faults:
        zdnn.add(a, a)
        with session.pipeline():
            b = zdnn.mul(a, a)
            zdnn.add(b, b)
        del b
        zdnn.sub(a, a)
        zdnn.sub(a, a)
    told = [(one.call, one.operation) for one in faults.injected]
    assert told == [(1, "add"), (2, "mul"), (3, "add"), (4, "sub"), (5, "sub")]


def test_large_tensors_are_calls(target: str) -> None:
    """A tensor that travels in chunks is one call, and may be met on both ways."""
    with connect(target) as session:
        big = np.ones((1, 1, 2200, 2200), np.float32)
        with session.faults(note=True) as faults:
            a = session.ztensor(big)
            a.numpy()
        told = [one.operation for one in faults.injected]
        assert told == ["allochelper_ztensor", "transform_ztensor", "transform_origtensor"]
        for name, moment in (("transform_ztensor", "after"), ("transform_origtensor", "before")):
            with (
                session.faults(name, lose_connection=moment),
                pytest.raises(TransportError, match="UNAVAILABLE"),
            ):
                session.ztensor(big).numpy()


def test_blocks_nest(session: Session, a: Ztensor) -> None:
    """An inner block's rules come and go; the outer one's counts go on."""
    with session.faults(zdnn.add, status="ZDNN_INVALID_SHAPE", nth=3) as outer:
        zdnn.add(a, a)
        with (
            session.faults(zdnn.mul, status="ZDNN_INVALID_TYPE") as inner,
            pytest.raises(ZdnnError),
        ):
            zdnn.mul(a, a)
        zdnn.mul(a, a)
        zdnn.add(a, a)
        with pytest.raises(ZdnnError):
            zdnn.add(a, a)
    assert [one.operation for one in inner.injected] == ["mul"]
    assert [one.operation for one in outer.injected] == ["add"]


def test_an_inner_delay_joins_a_status(session: Session, a: Ztensor) -> None:
    """Delays take place whatever else does."""
    start = time.monotonic()
    with (
        session.faults(zdnn.add, status="ZDNN_INVALID_SHAPE"),
        session.faults(zdnn.add, delay=0.2),
        pytest.raises(ZdnnError),
    ):
        zdnn.add(a, a)
    assert time.monotonic() - start >= 0.2


def test_queued_calls_belong_to_their_block(session: Session, a: Ztensor) -> None:
    """In a pipeline, calls of the block run under its rules, and others do not."""
    with session.pipeline() as pipeline:
        zdnn.add(a, a)
        with session.faults(zdnn.add, status=zdnn.ZDNN_ELEMENT_RANGE_VIOLATION):
            zdnn.add(a, a)
            with pytest.warns(ZdnnWarning):
                session.execute(())
        zdnn.add(a, a)
    assert [one.zdnn_status for one in pipeline.results] == [0, 0x20001, 0]


def test_refused_without_the_flag() -> None:
    """A server that was not started for faults takes none, and says which flag it lacks."""
    with connect() as session, pytest.raises(TransportError) as caught:
        session.faults(zdnn.add, note=True).__enter__()
    assert (caught.value.code, caught.value.reason) == ("PERMISSION_DENIED", "FAULTS_NOT_ALLOWED")
    assert caught.value.metadata["option"] == "--allow-faults"
    assert "with --allow-faults, in a suite of pytest by nnpa_server_flags" in str(caught.value)


def test_private_server() -> None:
    """A private server allows faults when asked for; a target's server cannot be asked."""
    with connect(allow_faults=True) as session:
        a = session.ztensor(DATA)
        with session.faults(status="ZDNN_INVALID_SHAPE"), pytest.raises(ZdnnError):
            zdnn.add(a, a)
    with pytest.raises(ValueError, match="allow_faults"):
        connect("unix:/nowhere", allow_faults=True)


@pytest.mark.parametrize(
    ("operation", "words", "told"),
    [
        ("zdnn_nothing", {"note": True}, "operation is 'zdnn_nothing', must be one of"),
        ("zdnn_add", {}, "effect is absent, must be one of"),
        ("zdnn_add", {"status": "ZDNN_NO"}, "status is 'ZDNN_NO', must be a name"),
        ("zdnn_add", {"status": 0}, "status is 'ZDNN_OK', must be a name"),
        ("zdnn_add", {"note": True, "machine": "z14"}, "machine is 'z14', must be one of"),
        ("zdnn_add", {"move": "z14"}, "move.machine is 'z14', must be one of"),
        ("zdnn_init", {"status": "ZDNN_INVALID_SHAPE"}, "must be a function that returns"),
        ("zdnn_exp", {"program_check": "no"}, "program_check is 'no', must be one of"),
        ("zdnn_exp", {"lose_connection": "now"}, "lose_connection is 'now', must be one of"),
        ("zdnn_exp", {"delay": 601}, "delay.seconds is 601.0, must be 0 to 600"),
        ("zdnn_exp", {"probability": 2, "note": True}, "probability is 2.0, must be 0 to 1"),
        ("zdnn_getrange_ztensor", {"flip_bits": 1}, "must be a function that writes"),
        ("zdnn_add", {"flip_bits": 0}, "flip_bits is 0, must be 1 to"),
        ("zdnn_add", {"note": True, "output_written": True}, "output_written is true, must be"),
        ("zdnn_add", {"note": True, "shape": (1, 2, 3, 4, 5)}, "shape is 5 dimensions"),
        ("zdnn_add", {"delay": FaultDelay(distribution="odd")}, "distribution is 'odd'"),
    ],
)
def test_bad_rules_are_refused(
    session: Session, operation: str, words: dict[str, object], told: str
) -> None:
    """A rule that could not be carried out is refused with field, value and limit."""
    with pytest.raises(TransportError) as caught:
        session.faults(rules=[make_rule(operation, words)]).__enter__()
    assert caught.value.reason == "FIELD_INVALID"
    assert told in caught.value.message
    assert {"field", "value", "limit"} <= set(caught.value.metadata)
