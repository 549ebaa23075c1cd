# SPDX-License-Identifier: Apache-2.0
"""Traces replayed and compared: values, statuses, machines, libraries."""

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from nnpa_client import Session, connect, trace, zdnn
from nnpa_client._server.methods import CREATE_SESSION
from nnpa_client._server.transport import Method
from nnpa_client._values.ulp import codes_of, values_of
from nnpa_client.networks import NETWORKS, held_out

from tests.tools.traces.programs import OK, SMALL, A, Open, names, small_program


def test_a_replay_gives_the_same(session: Session, recorded: trace.Trace) -> None:
    """On the same machine a replay has the same statuses, flags and bits."""
    comparison, replayed = trace.replay(recorded, session.transport)
    assert comparison.is_equal
    assert (comparison.statuses, comparison.unknown, comparison.by_contents) == (len(SMALL), 0, 0)
    assert comparison.values >= 5
    assert names(replayed) == SMALL


def test_a_replay_on_another_machine(session: Session, recorded: trace.Trace) -> None:
    """A machine without NNPA refuses the first operation, and that is the first difference."""
    comparison, replayed = trace.replay(recorded, session.transport, machine="z15")
    first = comparison.first("status")
    assert first is not None
    assert (first.name, first.left) == ("allochelper_ztensor", OK)
    assert first.right == "ZDNN_UNSUPPORTED_AIU_EXCEPTION"
    assert replayed.sessions[1].machine.name == "machines/z15"


def test_a_replay_with_another_library(session: Session, tmp_path: Path) -> None:
    """A function that the older library lacks is the first difference."""
    with session.trace(tmp_path / "t", contents=True) as recording:
        zdnn.gelu(session.ztensor(A))
    comparison, _ = trace.replay(recording.read(), session.transport, library="1.0.0")
    first = comparison.first("status")
    assert first is not None
    assert (first.name, first.right) == ("gelu", "FUNCTION_NOT_IN_LIBRARY")


def test_without_contents_statuses_are_compared(session: Session, tmp_path: Path) -> None:
    """Statuses that depend on contents are counted; all others are compared."""
    with session.trace(tmp_path / "t") as recording:
        small_program(session)
    comparison, _ = trace.replay(recording.read(), session.transport)
    assert comparison.is_equal
    assert (comparison.by_contents, comparison.values) == (1, 0)
    assert comparison.unknown > 0
    comparison, _ = trace.replay(recording.read(), session.transport, machine="z15")
    assert comparison.first("status") is not None


def test_a_replay_has_tensors_from_before(session: Session, tmp_path: Path) -> None:
    """The replay has the tensors of the session from before the trace, with their values."""
    a, out = session.ztensor(A), np.empty_like(A)
    with session.trace(tmp_path / "t", contents=True) as recording:
        zdnn.transform_origtensor(zdnn.mul(a, a), out)
    comparison, replayed = trace.replay(recording.read(), session.transport)
    assert comparison.is_equal
    (back,) = replayed.operations[-1].contents
    assert replayed.bytes_of(back) == out.tobytes()


def test_program_checks_and_queries_replay(session: Session, tmp_path: Path) -> None:
    """A program check ends its call in the replay as well, and the session goes on."""
    from nnpa_client import ProgramCheck

    with session.trace(tmp_path / "t", contents=True) as recording:
        a = session.ztensor(A)
        with pytest.raises(ProgramCheck):
            zdnn.matmul_op(a, a, a, zdnn.MATMUL_OP_ADDITION)
        session.get_nnpa_max_dim_idx_size()
        zdnn.getrange_ztensor(a)
    comparison, replayed = trace.replay(recording.read(), session.transport)
    assert comparison.is_equal
    assert [operation.status for operation in replayed.operations][-3:] == ["PROGRAM_CHECK", OK, OK]


def test_a_file_cannot_name_memory(recorded: trace.Trace, session: Session) -> None:
    """A replay requests no shared memory, faults, lease or session's name of the file's."""
    for options in recorded.sessions.values():
        options.shared_memory.name, options.shared_memory.size = "somebody-elses", 4096
        options.name = "sessions/somebody-elses"
        options.fault_rules.add(operation="add", status="ZDNN_EXCEEDS_MDIS")
        options.lease = True
    requested: list[Any] = []
    unary = session.transport.unary

    def noted(method: Method[Any, Any], request: Any) -> Any:
        if method is CREATE_SESSION:
            requested.append(request.session)
        return unary(method, request)

    with mock.patch.object(session.transport, "unary", noted):
        comparison, _ = trace.replay(recorded, session.transport)
    assert comparison.is_equal
    (options,) = requested
    assert not options.HasField("shared_memory")
    assert not options.fault_rules
    assert not options.name
    assert not options.lease, "nobody would hold it"


def test_a_file_cannot_ask_for_any_memory(recorded: trace.Trace, session: Session) -> None:
    """Contents beyond what any machine holds are refused before storage is asked for."""
    for operation in recorded.operations:
        for contents in operation.contents:
            contents.size = 1 << 60
    with pytest.raises(ValueError, match="contents: 1152921504606846976 bytes, at most 4294967296"):
        trace.replay(recorded, session.transport)


def test_streamed_tensors_replay(narrow: str, tmp_path: Path) -> None:
    """Arrays and sticks that came and went in chunks replay, moves and all."""
    noise = np.random.default_rng(2).normal(size=(1024, 400)).astype(np.float32)
    with connect(narrow) as session:
        with session.trace(tmp_path / "t", contents=True) as recording:
            a = session.ztensor(noise)
            sticks = a.read_sticks()
            session.update(machine="telum1")
            session.init()
            a.write_sticks(np.roll(sticks, 128))
            zdnn.add(a, a).numpy()
        comparison, replayed = trace.replay(recording.read(), session.transport)
    assert comparison.is_equal
    assert comparison.values >= 3
    kinds = [call.record.WhichOneof("stream") for call in replayed.calls]
    assert {"operation", "write", "read"} <= set(kinds)
    assert [session.machine.name for session in replayed.sessions.values()] == ["machines/telum2"]


def test_differences_in_values_are_found(open_session: Open, tmp_path: Path) -> None:
    """A difference in values gives the first element, both values and the distance."""
    traces: list[trace.Trace] = []
    for number, value in enumerate((3.0, 3.0 + 2**-7)):
        session = open_session()
        with session.trace(tmp_path / str(number), contents=True) as recording:
            array = np.full((2, 70), 1, np.float32)
            array[1, 65] = value
            a = session.ztensor(array)
            zdnn.sub(a, session.ztensor(np.zeros((2, 70), np.float32))).numpy()
        traces.append(recording.read())
    comparison = trace.diff(traces[0], traces[1])
    first = comparison.first("values")
    assert first is not None
    assert first.values is not None
    assert first.name == "transform_ztensor"
    assert first.values.at == (0, 0, 1, 65)
    assert (first.values.left, first.values.right) == (3.0, 3.0 + 2**-7)
    assert (first.values.count, first.values.size, first.values.ulp) == (1, 140, 2)
    assert [difference.name for difference in comparison.differences] == [
        "transform_ztensor", "sub", "transform_origtensor",
    ]  # fmt: skip
    assert trace.diff(traces[0], traces[1], ulp=2).is_equal
    assert not trace.diff(traces[0], traces[1], ulp=1).is_equal


def test_other_operations_are_a_difference(open_session: Open, tmp_path: Path) -> None:
    """A different function is the difference, and no operation after it is compared."""
    traces: list[trace.Trace] = []
    for verb in (zdnn.add, zdnn.sub):
        session = open_session()
        with session.trace(tmp_path / verb.__name__) as recording:
            a = session.ztensor(A)
            zdnn.relu(verb(a, a), None)
        traces.append(recording.read())
    (difference,) = trace.diff(traces[0], traces[1]).differences
    assert (difference.kind, difference.left, difference.right) == (
        "operation", "zdnn_add", "zdnn_sub",
    )  # fmt: skip


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
def test_the_telums_agree_on_the_digits(open_session: Open, tmp_path: Path, network: Any) -> None:
    """The demo's networks have the same statuses and the same bits on both Telums."""
    images, traces = held_out().images[:8], list[trace.Trace]()
    for machine in ("telum1", "telum2"):
        session = open_session(machine)
        with session.trace(tmp_path / machine, contents=True) as recording:
            x = session.ztensor(network.arrange(images), network.layout)
            for layer in network.load(session, len(images)):
                x = layer.run(x)
            x.numpy()
        traces.append(recording.read())
    comparison = trace.diff(traces[0], traces[1])
    assert comparison.is_equal
    assert comparison.values > 10
    assert comparison.unknown == 0


def test_codes_stand_for_values() -> None:
    """Every DLFLOAT16 code has the value of the format's definition, and values their codes."""
    codes = np.arange(1 << 16)
    sign, exponent, fraction = codes >> 15, (codes >> 9) & 63, codes & 511
    expected = (-1.0) ** sign * 2.0 ** (exponent - 31.0) * (1 + fraction / 512)
    expected[codes & 0x7FFF == 0] = 0
    numbers = codes & 0x7FFF != 0x7FFF
    values = values_of(codes)
    assert np.array_equal(values[numbers], expected[numbers])
    assert np.isnan(values[~numbers]).all()
    assert np.array_equal(codes_of(values[numbers]), codes[numbers])
