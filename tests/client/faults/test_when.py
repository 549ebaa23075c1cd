# SPDX-License-Identifier: Apache-2.0
"""When a fault rule applies: counts, chances, shapes, machines, blocks."""

import time

import numpy as np
import pytest
from nnpa.zdnn.v1.accelerator_pb2 import MACHINE_MODEL_TELUM1
from nnpa_client import (
    MachineSpec,
    Session,
    TransportError,
    ZdnnError,
    ZdnnWarning,
    Ztensor,
    connect,
    zdnn,
)
from nnpa_client.faults import FaultDelay, make_rule

from tests.client.faults.test_faults import DATA


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
    """A rule meets the share of calls that its probability says, the same ones for a seed."""
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
    """Calls are numbered, however they are sent; freeing a dropped tensor is not a call."""
    with session.faults(note=True) as faults:
        zdnn.add(a, a)
        with session.pipeline():
            b = zdnn.mul(a, a)
            zdnn.add(b, b)
        del b
        zdnn.sub(a, a)
        zdnn.sub(a, a)
    calls = [(fault.call, fault.operation) for fault in faults.injected]
    assert calls == [(1, "add"), (2, "mul"), (3, "add"), (4, "sub"), (5, "sub")]


def test_large_tensors_are_calls(target: str) -> None:
    """A tensor that travels in chunks is one call, and may be met on both ways."""
    with connect(target) as session:
        big = np.ones((1, 1, 2200, 2200), np.float32)
        with session.faults(note=True) as faults:
            a = session.ztensor(big)
            a.numpy()
        operations = [fault.operation for fault in faults.injected]
        assert operations == ["allochelper_ztensor", "transform_ztensor", "transform_origtensor"]
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
    assert [fault.operation for fault in inner.injected] == ["mul"]
    assert [fault.operation for fault in outer.injected] == ["add"]


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
    assert [result.zdnn_status for result in pipeline.results] == [0, 0x20001, 0]


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
    ("operation", "words", "message"),
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
    session: Session, operation: str, words: dict[str, object], message: str
) -> None:
    """A rule that could not be carried out is refused with field, value and limit."""
    with pytest.raises(TransportError) as caught:
        session.faults(rules=[make_rule(operation, words)]).__enter__()
    assert caught.value.reason == "FIELD_INVALID"
    assert message in caught.value.message
    assert {"field", "value", "limit"} <= set(caught.value.metadata)
