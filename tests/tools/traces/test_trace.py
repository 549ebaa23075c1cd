# SPDX-License-Identifier: Apache-2.0
"""Traces of Python programs: recorded, read, replayed, compared, and linted for waste."""

import contextlib
import os
import signal
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from nnpa_client import Session, connect, trace, zdnn
from nnpa_client._server.private_server import PrivateServer
from nnpa_client.testing import assert_called
from nnpa_client.trace import format  # noqa: A004 - the module's name
from nnpa_client.trace.format import MAGIC
from nnpa_tools.traces.show import as_data, timeline

from tests.tools.traces.programs import OK, RANGE, SMALL, A, Open, names


def test_a_trace_has_what_the_program_did(recorded: trace.Trace) -> None:
    """Operations come in order, with status, call, operands, shapes and contents."""
    assert recorded.ending == ""
    assert names(recorded) == SMALL
    operations = [operation for operation in recorded.operations if not operation.is_housekeeping]
    assert [operation.status for operation in operations] == [OK, OK, OK, RANGE, OK, OK]
    calls = [operation.call for operation in operations]
    assert calls == sorted(calls)
    assert calls[1] < calls[2] == calls[3] < calls[4] < calls[5]
    add = operations[2]
    assert [(operand.name, operand.is_output) for operand in add.operands] == [
        ("input_a", False), ("input_b", False), ("output", True),
    ]  # fmt: skip
    output = add.operands[2].structure
    assert output is not None
    assert (output.pre_transformed_desc.dim2, output.pre_transformed_desc.dim1) == (2, 3)
    (array,) = operations[5].contents
    assert recorded.bytes_of(array) == (A + A).tobytes()
    assert recorded.sessions[1].machine.name == "machines/telum2"


def test_only_the_block_is_recorded(session: Session, tmp_path: Path) -> None:
    """Calls before and after the block are not in the trace; a list queued before it is before."""
    a = session.ztensor(A)
    with session.pipeline():
        zdnn.add(a, a)
        with session.trace(tmp_path / "t") as recording:
            zdnn.sub(a, a)
            session.execute([])
    zdnn.mul(a, a)
    assert names(recording.read()) == ["sub"]


def test_a_block_that_raises_is_recorded(session: Session, tmp_path: Path) -> None:
    """An exception passes through the block, and the trace has the calls before it."""

    def fail() -> None:
        with session.trace(tmp_path / "t"):
            session.is_nnpa_installed()
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        fail()
    assert names(trace.read(tmp_path / "t")) == ["is_nnpa_installed"]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_cut_file_is_read_up_to_the_cut(
    recorded: trace.Trace, tmp_path: Path, share: float
) -> None:
    """The whole records of a cut file are read, and its ending says that it is cut."""
    whole = (tmp_path / "recorded").read_bytes()
    cut = tmp_path / "cut"
    cut.write_bytes(whole[: max(len(MAGIC), int(len(whole) * share))])
    partial = trace.read(cut)
    assert partial.ending.startswith("interrupted")
    assert names(partial) == names(recorded)[: len(names(partial))]
    assert len(partial.operations) < len(recorded.operations)


def test_what_is_written_can_be_read_before_the_end(
    tmp_path: Path, recorded: trace.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed program leaves a file of the records that were flushed, each of them whole."""
    raw = zlib.decompress((tmp_path / "recorded").read_bytes()[len(MAGIC) :])
    monkeypatch.setattr(format, "_FLUSH_SECONDS", 0.0)
    writer = format.TraceWriter(tmp_path / "open")
    writer.write(raw[: len(raw) // 2])
    partial = trace.read(tmp_path / "open")
    writer.close()
    assert partial.start == recorded.start
    assert partial.ending.startswith("interrupted")


def test_other_files_are_refused(tmp_path: Path) -> None:
    """A file that is no trace, or has invalid records, is refused by name."""
    foreign = tmp_path / "other"
    foreign.write_bytes(b"PK\x03\x04 anything")
    with pytest.raises(ValueError, match=r"other: begins with b'PK.*expected b'NNPATRC1'"):
        trace.read(foreign)
    foreign.write_bytes(MAGIC + zlib.compress(b"\x02\xff\xff"))
    with pytest.raises(ValueError, match="a record that is none"):
        trace.read(foreign)
    foreign.write_bytes(MAGIC + zlib.compress(b"\xff\xff\xff\xff\x7f"))
    with pytest.raises(ValueError, match="a record of 34359738367 bytes"):
        trace.read(foreign)


@pytest.mark.parametrize("seed", range(40))
def test_damaged_files_do_no_harm(recorded: trace.Trace, tmp_path: Path, seed: int) -> None:
    """Whatever bytes a file has, reading ends with a trace or a ValueError."""
    assert recorded.operations
    random = np.random.default_rng(seed)
    raw = bytearray(zlib.decompress((tmp_path / "recorded").read_bytes()[len(MAGIC) :]))
    for _ in range(5):
        raw[random.integers(len(raw))] = random.integers(256)
    (tmp_path / "damaged").write_bytes(MAGIC + zlib.compress(bytes(raw)))
    with contextlib.suppress(ValueError):
        damaged = trace.read(tmp_path / "damaged")
        assert trace.diff(damaged, damaged).is_equal
        assert trace.lint(damaged).totals.calls == len(damaged.calls)
        operations = as_data(damaged)["operations"]
        assert isinstance(operations, list)
        assert len(operations) == len(damaged.operations)
        assert timeline(damaged, everything=True)


def test_a_trace_that_is_full_says_so(session: Session, tmp_path: Path) -> None:
    """At max_bytes the trace is cut and says so; the program runs on."""
    noise = np.random.default_rng(1).normal(size=(64, 64)).astype(np.float32)
    with session.trace(tmp_path / "t", contents=True, max_bytes=50_000) as recording:
        kept = [session.ztensor(noise + step) for step in range(8)]
        assert zdnn.add(kept[0], kept[7]).numpy().shape == (64, 64)
    recorded = recording.read()
    assert recorded.ending == "cut: it would have become larger than it may"
    assert 0 < len(recorded.operations) < 24


@pytest.mark.heavy
def test_a_lost_server_leaves_a_file_and_a_warning(tmp_path: Path) -> None:
    """If the server is killed the file has the records so far, and a warning says it is not all."""
    server = PrivateServer()
    session = connect(server.target)

    def lose() -> None:
        with session.trace(tmp_path / "t"):
            session.is_nnpa_installed()
            deadline = time.monotonic() + 30
            while not trace.read(tmp_path / "t").calls and time.monotonic() < deadline:
                time.sleep(0.05)
            os.kill(server.pid, signal.SIGKILL)

    with pytest.warns(UserWarning, match="t: the trace is not complete"):
        lose()
    session.close()
    server.stop()
    recorded = trace.read(tmp_path / "t")
    assert recorded.ending.startswith("interrupted")
    assert names(recorded) == ["is_nnpa_installed"]


def test_a_server_that_is_shut_down_says_so(tmp_path: Path) -> None:
    """A server that ends in order sends the remaining records, and the trace says why it ends."""
    server = PrivateServer()
    session = connect(server.target)
    with session.trace(tmp_path / "t") as recording:
        session.is_nnpa_installed()
        server.stop()
    session.close()
    recorded = recording.read()
    assert recorded.ending == "cut: the server was shut down"
    assert names(recorded) == ["is_nnpa_installed"]


def wasteful(session: Session) -> None:
    """Waste on purpose: each rule of lint has something to find."""
    thin = [session.ztensor(np.full((40, 1), step, np.float32)) for step in range(1, 41)]
    weights = np.eye(64, dtype=np.float32)
    bias = session.ztensor(np.zeros(64, np.float32))
    x = session.ztensor(weights * 2)
    for _ in range(3):
        x = zdnn.matmul_op(x, session.ztensor(weights), bias, zdnn.MATMUL_OP_ADDITION)
        x = session.ztensor(x.numpy())
    for ztensor in thin:
        zdnn.relu(ztensor, None)


def thrifty(session: Session) -> None:
    """Do the same without the waste."""
    weights = np.eye(64, dtype=np.float32)
    with session.pipeline():
        thin = session.ztensor(np.tile(np.arange(1, 41, dtype=np.float32), (40, 1)))
        fixed, bias = session.ztensor(weights), session.ztensor(np.ones(64, np.float32))
        x = session.ztensor(weights * 2)
        for _ in range(3):
            x = zdnn.matmul_op(x, fixed, bias, zdnn.MATMUL_OP_ADDITION)
        zdnn.relu(thin, None)


def test_lint_finds_each_waste(session: Session, tmp_path: Path) -> None:
    """Every rule finds its waste in a wasteful program, and nothing in a thrifty one."""
    with session.trace(tmp_path / "bad") as bad:
        wasteful(session)
    with session.trace(tmp_path / "good") as good:
        thrifty(session)
    report = trace.lint(bad.read())
    assert {finding.rule for finding in report.findings} == set(trace.RULES)
    by_rule = {finding.rule: finding for finding in report.findings}
    assert len(by_rule["equal-bytes"].operations) >= 3
    assert report.totals.padding > 0.75
    clean = trace.lint(good.read())
    assert clean.is_clean, clean.findings
    assert clean.totals.calls < 5


def test_a_rule_can_be_ignored(session: Session, tmp_path: Path) -> None:
    """An ignored rule finds nothing, the others go on."""
    with session.trace(tmp_path / "t") as recording:
        wasteful(session)
    report = trace.lint(recording.read(), ignore=["padding", "zero-bias"])
    rules = {finding.rule for finding in report.findings}
    assert rules == set(trace.RULES) - {"padding", "zero-bias"}


def test_a_budget_that_is_exceeded_is_named(session: Session, tmp_path: Path) -> None:
    """A budget that is kept is silent, one that is not says by how much; totals are exact."""
    with session.trace(tmp_path / "t") as recording:
        a = session.ztensor(np.ones((2, 3), np.float32))
        zdnn.add(a, a).numpy()
    recorded = recording.read()
    totals = trace.lint(recorded).totals
    assert (totals.calls, totals.operations) == (len(recorded.calls), 4)
    assert totals.stickified_bytes == 4096
    assert (totals.array_bytes_in, totals.array_bytes_out) == (24, 24)
    assert totals.padding == 1 - 12 / 4096
    calls = totals.calls
    assert trace.lint(recorded, trace.Budget(calls, 4, 4096)).is_clean
    exceeded = trace.lint(recorded, trace.Budget(calls - 1, 3, 4095)).exceeded
    assert exceeded == (
        f"calls: {calls}, at most {calls - 1}",
        "operations: 4, at most 3",
        "stickified bytes: 4096, at most 4095",
    )


def test_assert_called_takes_traces_and_files(recorded: trace.Trace, tmp_path: Path) -> None:
    """A program that called just these operations passes, by trace or file, by either name."""
    assert_called(recorded, ["add", "log", "add"])
    assert_called(tmp_path / "recorded", ["zdnn_add", "zdnn_log", "zdnn_add"])
    assert_called(recorded, ["transform_ztensor", "add", "log", "zdnn_add"])


@pytest.mark.parametrize(
    ("expected", "complaint"),
    [
        (["add", "add", "log"], r"call 2: zdnn_log \(operation 4 .*expected zdnn_add"),
        (["add", "log"], r"call 3: zdnn_add .*expected nothing more"),
        (
            ["add", "log", "add", "exp"],
            (
                r"call 4: nothing, expected zdnn_exp\n"
                r"expected: 1 add, 2 log, 3 add, 4 exp\ncalled:   1 add, 2 log, 3 add$"
            ),
        ),
        ([], r"call 1: zdnn_add .*expected nothing more"),
    ],
)
def test_assert_called_complains(
    recorded: trace.Trace, expected: list[str], complaint: str
) -> None:
    """A different, additional or missing operation is named, with its place."""
    with pytest.raises(AssertionError, match=complaint):
        assert_called(recorded, expected)


def test_assert_called_refuses_unknown_names(recorded: trace.Trace) -> None:
    """A name that no function has is refused as a mistake in the test."""
    with pytest.raises(ValueError, match="operations: 'addd', expected names of zDNN's functions"):
        assert_called(recorded, ["addd"])


def test_assert_called_sees_what_fell_back(open_session: Open, tmp_path: Path) -> None:
    """An operation that the machine refused counts as not called, and its status is named."""
    session = open_session("telum1")
    with session.trace(tmp_path / "t") as recording:
        a = session.ztensor(A)
        with pytest.raises(Exception, match="ZDNN_UNAVAILABLE_FUNCTION"):
            zdnn.gelu(a)
    with pytest.raises(AssertionError, match=r"zdnn_gelu .* fell back, it answered ZDNN_UNAVAIL"):
        assert_called(recording.path, ["gelu"])
