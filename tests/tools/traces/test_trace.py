# SPDX-License-Identifier: Apache-2.0
"""Traces of Python programs: recorded, read, replayed, compared, and looked at for waste."""

import contextlib
import json
import os
import re
import signal
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from click.testing import CliRunner, Result
from nnpa_client import Session, connect, trace, zdnn
from nnpa_client._server.methods import CREATE_SESSION
from nnpa_client._server.private_server import PrivateServer
from nnpa_client._server.transport import GrpcTransport, Method
from nnpa_client._values.ulp import codes_of, values_of
from nnpa_client.config import Endpoint, Recorder, program_environment, recorder
from nnpa_client.networks import NETWORKS, held_out
from nnpa_client.testing import assert_called
from nnpa_client.trace import format  # noqa: A004 - the module's name
from nnpa_client.trace.format import MAGIC
from nnpa_tools.cli import main
from nnpa_tools.traces.show import as_data, timeline

from tests.client.server_process import serving

Open = Callable[..., Session]
A = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
OK, RANGE, CONVERT = "ZDNN_OK", "ZDNN_ELEMENT_RANGE_VIOLATION", "ZDNN_CONVERT_FAILURE"
PROGRAM = """
import numpy as np
from nnpa_client import connect, zdnn

with connect() as session:
    a = session.ztensor(np.ones((2, 3), np.float32))
    print(zdnn.add(a, a).numpy().sum())
"""


def small_program(session: Session) -> None:
    """Add, take the logarithm of what is partly negative, and multiply what does not fit."""
    a = session.ztensor(A)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with session.pipeline():
            zdnn.log(zdnn.add(a, a))
    zdnn.add(a, a).numpy()


def names(found: trace.Trace) -> list[str]:
    """Return the names of what a program called, in order."""
    return [one.name for one in found.operations if not one.is_housekeeping]


SMALL = ["allochelper_ztensor", "transform_ztensor", "add", "log", "add", "transform_origtensor"]


@pytest.fixture
def recorded(session: Session, tmp_path: Path) -> trace.Trace:
    """The trace of the small program, with contents."""
    with session.trace(tmp_path / "recorded", contents=True) as recording:
        small_program(session)
    return recording.read()


def test_a_trace_has_what_the_program_did(recorded: trace.Trace) -> None:
    """Operations come in order, with status, call, operands, shapes and contents."""
    assert recorded.ending == ""
    assert names(recorded) == SMALL
    made = [one for one in recorded.operations if not one.is_housekeeping]
    assert [one.status for one in made] == [OK, OK, OK, RANGE, OK, OK]
    calls = [one.call for one in made]
    assert calls == sorted(calls)
    assert calls[1] < calls[2] == calls[3] < calls[4] < calls[5]
    add = made[2]
    assert [(one.name, one.is_output) for one in add.operands] == [
        ("input_a", False), ("input_b", False), ("output", True),
    ]  # fmt: skip
    output = add.operands[2].structure
    assert output is not None
    assert (output.pre_transformed_desc.dim2, output.pre_transformed_desc.dim1) == (2, 3)
    (array,) = made[5].contents
    assert recorded.bytes_of(array) == (A + A).tobytes()
    assert recorded.sessions[1].machine.name == "machines/telum2"


def test_only_the_block_is_recorded(session: Session, tmp_path: Path) -> None:
    """What runs before and after the block is not in the trace; a queued list is before it."""
    a = session.ztensor(A)
    with session.pipeline():
        zdnn.add(a, a)
        with session.trace(tmp_path / "t") as recording:
            zdnn.sub(a, a)
            session.execute([])
    zdnn.mul(a, a)
    assert names(recording.read()) == ["sub"]


def test_a_block_that_raises_is_recorded(session: Session, tmp_path: Path) -> None:
    """An exception leaves the block as it is, and the trace has what led to it."""

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
    """Of a file that lost its end the whole records are read, and it says what it lacks."""
    whole = (tmp_path / "recorded").read_bytes()
    cut = tmp_path / "cut"
    cut.write_bytes(whole[: max(len(MAGIC), int(len(whole) * share))])
    found = trace.read(cut)
    assert found.ending.startswith("interrupted")
    assert names(found) == names(recorded)[: len(names(found))]
    assert len(found.operations) < len(recorded.operations)


def test_what_is_written_can_be_read_before_the_end(
    tmp_path: Path, recorded: trace.Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that is killed leaves a file with what was flushed; its records are whole."""
    raw = zlib.decompress((tmp_path / "recorded").read_bytes()[len(MAGIC) :])
    monkeypatch.setattr(format, "_FLUSH_SECONDS", 0.0)
    writer = format.TraceWriter(tmp_path / "open")
    writer.write(raw[: len(raw) // 2])
    found = trace.read(tmp_path / "open")
    writer.close()
    assert found.start == recorded.start
    assert found.ending.startswith("interrupted")


def test_other_files_are_refused(tmp_path: Path) -> None:
    """A file that is no trace is refused by name; one whose records are none, too."""
    other = tmp_path / "other"
    other.write_bytes(b"PK\x03\x04 anything")
    with pytest.raises(ValueError, match=r"other: begins with b'PK.*expected b'NNPATRC1'"):
        trace.read(other)
    other.write_bytes(MAGIC + zlib.compress(b"\x02\xff\xff"))
    with pytest.raises(ValueError, match="a record that is none"):
        trace.read(other)
    other.write_bytes(MAGIC + zlib.compress(b"\xff\xff\xff\xff\x7f"))
    with pytest.raises(ValueError, match="a record of 34359738367 bytes"):
        trace.read(other)


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
        found = trace.read(tmp_path / "damaged")
        assert trace.diff(found, found).is_equal
        assert trace.lint(found).totals.calls == len(found.calls)
        operations = as_data(found)["operations"]
        assert isinstance(operations, list)
        assert len(operations) == len(found.operations)
        assert timeline(found, everything=True)


def test_a_trace_that_is_full_says_so(session: Session, tmp_path: Path) -> None:
    """At max_bytes the trace is cut and says so; the program ends as it would."""
    noise = np.random.default_rng(1).normal(size=(64, 64)).astype(np.float32)
    with session.trace(tmp_path / "t", contents=True, max_bytes=50_000) as recording:
        kept = [session.ztensor(noise + step) for step in range(8)]
        assert zdnn.add(kept[0], kept[7]).numpy().shape == (64, 64)
    found = recording.read()
    assert found.ending == "cut: it would have become larger than it may"
    assert 0 < len(found.operations) < 24


@pytest.mark.heavy
def test_a_lost_server_leaves_a_file_and_a_warning(tmp_path: Path) -> None:
    """Where the server is killed the file has what came, and a warning says that it is not all."""
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
    found = trace.read(tmp_path / "t")
    assert found.ending.startswith("interrupted")
    assert names(found) == ["is_nnpa_installed"]


def test_a_server_that_is_shut_down_says_so(tmp_path: Path) -> None:
    """A server that ends in order sends what it has, and the trace says why it ends."""
    server = PrivateServer()
    session = connect(server.target)
    with session.trace(tmp_path / "t") as recording:
        session.is_nnpa_installed()
        server.stop()
    session.close()
    found = recording.read()
    assert found.ending == "cut: the server was shut down"
    assert names(found) == ["is_nnpa_installed"]


def test_a_replay_gives_the_same(session: Session, recorded: trace.Trace) -> None:
    """On the same machine a replay has the same statuses, flags and bits."""
    found, again = trace.replay(recorded, session.transport)
    assert found.is_equal
    assert (found.statuses, found.unknown, found.by_contents) == (len(SMALL), 0, 0)
    assert found.values >= 5
    assert names(again) == SMALL


def test_a_replay_on_another_machine(session: Session, recorded: trace.Trace) -> None:
    """A machine without NNPA refuses the first operation, and that is the first difference."""
    found, again = trace.replay(recorded, session.transport, machine="z15")
    first = found.first("status")
    assert first is not None
    assert (first.name, first.left) == ("allochelper_ztensor", OK)
    assert first.right == "ZDNN_UNSUPPORTED_AIU_EXCEPTION"
    assert again.sessions[1].machine.name == "machines/z15"


def test_a_replay_with_another_library(session: Session, tmp_path: Path) -> None:
    """A function that the older library lacks is the first difference."""
    with session.trace(tmp_path / "t", contents=True) as recording:
        zdnn.gelu(session.ztensor(A))
    found, _ = trace.replay(recording.read(), session.transport, library="1.0.0")
    first = found.first("status")
    assert first is not None
    assert (first.name, first.right) == ("gelu", "FUNCTION_NOT_IN_LIBRARY")


def test_without_contents_statuses_are_compared(session: Session, tmp_path: Path) -> None:
    """What depends on contents is counted and not compared; other statuses still are."""
    with session.trace(tmp_path / "t") as recording:
        small_program(session)
    found, _ = trace.replay(recording.read(), session.transport)
    assert found.is_equal
    assert (found.by_contents, found.values) == (1, 0)
    assert found.unknown > 0
    found, _ = trace.replay(recording.read(), session.transport, machine="z15")
    assert found.first("status") is not None


def test_a_replay_has_tensors_from_before(session: Session, tmp_path: Path) -> None:
    """Tensors that the session had before the trace are there in the replay, with their values."""
    a, out = session.ztensor(A), np.empty_like(A)
    with session.trace(tmp_path / "t", contents=True) as recording:
        zdnn.transform_origtensor(zdnn.mul(a, a), out)
    found, again = trace.replay(recording.read(), session.transport)
    assert found.is_equal
    (back,) = again.operations[-1].contents
    assert again.bytes_of(back) == out.tobytes()


def test_program_checks_and_queries_replay(session: Session, tmp_path: Path) -> None:
    """A program check ends its call in the replay as well, and the session goes on."""
    from nnpa_client import ProgramCheck

    with session.trace(tmp_path / "t", contents=True) as recording:
        a = session.ztensor(A)
        with pytest.raises(ProgramCheck):
            zdnn.matmul_op(a, a, a, zdnn.MATMUL_OP_ADDITION)
        session.get_nnpa_max_dim_idx_size()
        zdnn.getrange_ztensor(a)
    found, again = trace.replay(recording.read(), session.transport)
    assert found.is_equal
    assert [one.status for one in again.operations][-3:] == ["PROGRAM_CHECK", OK, OK]


def test_a_file_cannot_name_memory(recorded: trace.Trace, session: Session) -> None:
    """Shared memory, faults, a lease and a session's name that a file has are not asked for."""
    for options in recorded.sessions.values():
        options.shared_memory.name, options.shared_memory.size = "somebody-elses", 4096
        options.name = "sessions/somebody-elses"
        options.fault_rules.add(operation="add", status="ZDNN_EXCEEDS_MDIS")
        options.lease = True
    asked: list[Any] = []
    unary = session.transport.unary

    def noted(method: Method[Any, Any], request: Any) -> Any:
        if method is CREATE_SESSION:
            asked.append(request.session)
        return unary(method, request)

    with mock.patch.object(session.transport, "unary", noted):
        found, _ = trace.replay(recorded, session.transport)
    assert found.is_equal
    (options,) = asked
    assert not options.HasField("shared_memory")
    assert not options.fault_rules
    assert not options.name
    assert not options.lease, "nobody would hold it"


def test_a_file_cannot_ask_for_any_memory(recorded: trace.Trace, session: Session) -> None:
    """Contents beyond what any machine holds are refused before storage is asked for."""
    for one in recorded.operations:
        for contents in one.contents:
            contents.size = 1 << 60
    with pytest.raises(ValueError, match="contents: 1152921504606846976 bytes, at most 4294967296"):
        trace.replay(recorded, session.transport)


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose messages are small, so that kilobytes are streamed."""
    socket = Path(tmp_path_factory.mktemp("narrow")) / "nnpa.sock"
    with serving([f"unix:{socket}"], "--max-message", "4MiB") as (target,):
        yield target


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
        found, again = trace.replay(recording.read(), session.transport)
    assert found.is_equal
    assert found.values >= 3
    kinds = [call.record.WhichOneof("stream") for call in again.calls]
    assert {"operation", "write", "read"} <= set(kinds)
    assert [one.machine.name for one in again.sessions.values()] == ["machines/telum2"]


def test_differences_in_values_are_found(open_session: Open, tmp_path: Path) -> None:
    """Where values differ the first element, both values and the distance are told."""
    found: list[trace.Trace] = []
    for number, value in enumerate((3.0, 3.0 + 2**-7)):
        session = open_session()
        with session.trace(tmp_path / str(number), contents=True) as recording:
            array = np.full((2, 70), 1, np.float32)
            array[1, 65] = value
            a = session.ztensor(array)
            zdnn.sub(a, session.ztensor(np.zeros((2, 70), np.float32))).numpy()
        found.append(recording.read())
    comparison = trace.diff(found[0], found[1])
    first = comparison.first("values")
    assert first is not None
    assert first.values is not None
    assert first.name == "transform_ztensor"
    assert first.values.at == (0, 0, 1, 65)
    assert (first.values.left, first.values.right) == (3.0, 3.0 + 2**-7)
    assert (first.values.count, first.values.size, first.values.ulp) == (1, 140, 2)
    assert [one.name for one in comparison.differences] == [
        "transform_ztensor", "sub", "transform_origtensor",
    ]  # fmt: skip
    assert trace.diff(found[0], found[1], ulp=2).is_equal
    assert not trace.diff(found[0], found[1], ulp=1).is_equal


def test_other_operations_are_a_difference(open_session: Open, tmp_path: Path) -> None:
    """Two programs that call different functions part there, and nothing behind is compared."""
    found: list[trace.Trace] = []
    for verb in (zdnn.add, zdnn.sub):
        session = open_session()
        with session.trace(tmp_path / verb.__name__) as recording:
            a = session.ztensor(A)
            zdnn.relu(verb(a, a), None)
        found.append(recording.read())
    (difference,) = trace.diff(found[0], found[1]).differences
    assert (difference.kind, difference.left, difference.right) == (
        "operation", "zdnn_add", "zdnn_sub",
    )  # fmt: skip


@pytest.mark.parametrize("network", NETWORKS, ids=lambda one: one.name)
def test_the_telums_agree_on_the_digits(open_session: Open, tmp_path: Path, network: Any) -> None:
    """The demo's networks have the same statuses and the same bits on both Telums."""
    images, found = held_out().images[:8], list[trace.Trace]()
    for machine in ("telum1", "telum2"):
        session = open_session(machine)
        with session.trace(tmp_path / machine, contents=True) as recording:
            x = session.ztensor(network.arrange(images), network.layout)
            for layer in network.load(session, len(images)):
                x = layer.run(x)
            x.numpy()
        found.append(recording.read())
    comparison = trace.diff(found[0], found[1])
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


def wasteful(session: Session) -> None:
    """Waste on purpose: each rule of lint has something to find."""
    thin = [session.ztensor(np.full((40, 1), step, np.float32)) for step in range(1, 41)]
    weights = np.eye(64, dtype=np.float32)
    bias = session.ztensor(np.zeros(64, np.float32))
    x = session.ztensor(weights * 2)
    for _ in range(3):
        x = zdnn.matmul_op(x, session.ztensor(weights), bias, zdnn.MATMUL_OP_ADDITION)
        x = session.ztensor(x.numpy())
    for one in thin:
        zdnn.relu(one, None)


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
    assert {one.rule for one in report.findings} == set(trace.RULES)
    by_rule = {one.rule: one for one in report.findings}
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
    assert {one.rule for one in report.findings} == set(trace.RULES) - {"padding", "zero-bias"}


def test_budgets_count(session: Session, tmp_path: Path) -> None:
    """A budget that is kept is silent, one that is not says by how much; totals are exact."""
    with session.trace(tmp_path / "t") as recording:
        a = session.ztensor(np.ones((2, 3), np.float32))
        zdnn.add(a, a).numpy()
    found = recording.read()
    totals = trace.lint(found).totals
    assert (totals.calls, totals.operations) == (len(found.calls), 4)
    assert totals.stickified_bytes == 4096
    assert (totals.array_bytes_in, totals.array_bytes_out) == (24, 24)
    assert totals.padding == 1 - 12 / 4096
    calls = totals.calls
    assert trace.lint(found, trace.Budget(calls, 4, 4096)).is_clean
    exceeded = trace.lint(found, trace.Budget(calls - 1, 3, 4095)).exceeded
    assert exceeded == (
        f"calls: {calls}, at most {calls - 1}",
        "operations: 4, at most 3",
        "stickified bytes: 4096, at most 4095",
    )


def test_assert_called(recorded: trace.Trace, tmp_path: Path) -> None:
    """A program that called just these operations passes, by trace or file, by either name."""
    assert_called(recorded, ["add", "log", "add"])
    assert_called(tmp_path / "recorded", ["zdnn_add", "zdnn_log", "zdnn_add"])
    assert_called(recorded, ["transform_ztensor", "add", "log", "zdnn_add"])


@pytest.mark.parametrize(
    ("wanted", "complaint"),
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
def test_assert_called_complains(recorded: trace.Trace, wanted: list[str], complaint: str) -> None:
    """Another operation, one too many or too few is named, with its place."""
    with pytest.raises(AssertionError, match=complaint):
        assert_called(recorded, wanted)


def test_assert_called_wants_names(recorded: trace.Trace) -> None:
    """A name that no function has is a mistake of the test's."""
    with pytest.raises(ValueError, match="operations: 'addd', expected names of zDNN's functions"):
        assert_called(recorded, ["addd"])


def test_assert_called_sees_what_fell_back(open_session: Open, tmp_path: Path) -> None:
    """An operation that the machine refused did not run on the accelerator."""
    session = open_session("telum1")
    with session.trace(tmp_path / "t") as recording:
        a = session.ztensor(A)
        with pytest.raises(Exception, match="ZDNN_UNAVAILABLE_FUNCTION"):
            zdnn.gelu(a)
    with pytest.raises(AssertionError, match=r"zdnn_gelu .* fell back, it answered ZDNN_UNAVAIL"):
        assert_called(recording.path, ["gelu"])


def nnpa(*arguments: object) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(main, ["trace", *map(str, arguments)])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `run`, a trace with contents that the command recorded."""
    folder = tmp_path_factory.mktemp("files")
    done = nnpa("record", "--contents", "-o", folder / "run", "--", sys.executable, "-c", PROGRAM)
    assert done.exit_code == 0, done.output
    assert re.search(r"1 session, \d+ calls, 4 operations\n$", done.output)
    return folder


def test_command_shows(files: Path) -> None:
    """The timeline has a line for each operation; JSON has the same, readable by programs."""
    shown = nnpa("show", files / "run").output
    for word in ("telum2, zDNN 1.2.0", "add", "2x3", "4 operations in "):
        assert word in shown
    assert "init_ztensor" not in shown
    assert "init_ztensor" in nnpa("show", "--all", files / "run").output
    told = json.loads(nnpa("show", "--json", files / "run").output)
    assert [one["operation"] for one in told["operations"] if not one["housekeeping"]] == [
        "allochelper_ztensor", "transform_ztensor", "add", "transform_origtensor",
    ]  # fmt: skip
    assert told["complete"]
    assert told["operations"][3]["ztensors"][2]["shape"] == [2, 3]


def test_command_replays_and_compares(files: Path) -> None:
    """Exit code 0 where everything is the same, 1 where something is not."""
    same = nnpa("replay", files / "run", "--machine", "telum1", "-o", files / "again")
    assert same.exit_code == 0, same.output
    assert "no difference" in same.output
    compared = nnpa("diff", files / "run", files / "again")
    assert compared.exit_code == 0
    assert "left: session 1: telum2" in compared.output
    assert "right: session 1: telum1" in compared.output
    other = nnpa("replay", files / "run", "--machine", "z15")
    assert other.exit_code == 1
    assert "first difference in status: operation 1, zdnn_allochelper_ztensor" in other.output
    told = json.loads(nnpa("diff", "--json", files / "run", files / "again").output)
    assert (told["equal"], told["differences"]) == (True, [])


@pytest.mark.heavy
def test_command_replays_several(files: Path, tmp_path: Path) -> None:
    """Any number of jobs gives the same report of several traces, in the order of the files."""
    several = [tmp_path / name for name in ("one", "two", "three")]
    for file in several:
        file.write_bytes((files / "run").read_bytes())
    alone, at_once = (nnpa("replay", *several, "--jobs", jobs) for jobs in (1, 3))
    assert alone.exit_code == 0, alone.output
    assert alone.output == at_once.output
    assert [line for line in alone.output.splitlines() if line.endswith(":")] == [
        f"{file}:" for file in several
    ]
    alone, at_once = (
        nnpa("replay", *several, "--machine", "z15", "--json", "--jobs", jobs) for jobs in (1, 3)
    )
    assert (alone.exit_code, at_once.exit_code) == (1, 1)
    assert alone.output == at_once.output
    assert [(document["file"], document["equal"]) for document in json.loads(alone.output)] == [
        (str(file), False) for file in several
    ]
    kept = nnpa("replay", *several, "-o", tmp_path / "again")
    assert kept.exit_code == 2
    assert "--output: one file for 3 traces" in kept.output


def test_command_lints(files: Path) -> None:
    """Exit code 1 for a budget that is exceeded, 0 for one that is kept."""
    assert nnpa("lint", files / "run", "--max-operations", 4).exit_code == 0
    budget = ("--max-operations", 3, "--max-stickified-bytes", 100)
    done = nnpa("lint", files / "run", *budget, "--json")
    assert done.exit_code == 1
    assert len(json.loads(done.output)["exceeded"]) == 2


def test_command_errors(files: Path, tmp_path: Path) -> None:
    """No trace, no server, no program, no session: each has its exit code and says why."""
    (tmp_path / "other").write_bytes(b"something else")
    assert nnpa("show", tmp_path / "other").exit_code == 2
    gone = nnpa("replay", files / "run", "--target", f"unix:{tmp_path}/nobody")
    assert gone.exit_code == 3
    assert "UNAVAILABLE" in gone.output
    none = nnpa("record", "-o", tmp_path / "t", "--", tmp_path / "no-such-program")
    assert none.exit_code == 2
    silent = nnpa("record", "-o", tmp_path / "t", "--", sys.executable, "-c", "")
    assert silent.exit_code == 1
    assert "no session was recorded" in silent.output


@pytest.mark.heavy
def test_a_killed_program_leaves_its_trace(tmp_path: Path) -> None:
    """What a program did before it was killed is in the trace; its end is the exit code."""
    killed = PROGRAM + "    import os, signal\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    done = nnpa("record", "-o", tmp_path / "t", "--", sys.executable, "-c", killed)
    assert done.exit_code == 128 + 9
    found = trace.read(tmp_path / "t")
    assert names(found)[-2:] == ["add", "transform_origtensor"]
    assert found.ending == ""


def test_the_environment_names_the_recorder() -> None:
    """Both variables together have a process recorded; either alone does not."""
    both = {"ZDNN_SERVER": "unix:/s", "ZDNN_TRACE": "traces/t"}
    assert recorder(both) == Recorder("unix:/s", "traces/t")
    for name in both:
        assert recorder({name: both[name]}) is None
    behind_a_proxy = Recorder("unix:/s", "traces/t", "MTI3LjAuMC4xOjE=")
    told = program_environment(behind_a_proxy, Path("/lib"))
    assert recorder(told) == behind_a_proxy
    assert told["LD_LIBRARY_PATH"].split(":")[0] == "/lib"


def test_other_servers_are_not_recorded(
    server_target: str, narrow: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session at another server than the recorder's is not recorded, and works."""
    transport = GrpcTransport(Endpoint(server_target))
    recording = trace.Recording(transport, tmp_path / "t")
    monkeypatch.setenv("ZDNN_SERVER", server_target)
    monkeypatch.setenv("ZDNN_TRACE", recording.name)
    with connect(narrow) as session:
        assert session.is_nnpa_installed()
        assert session.status().trace == ""
    with connect() as session:
        assert session.target == server_target
        assert session.status().trace == recording.name
    recording.stop()
    transport.close()
    assert len(recording.read().sessions) == 1


def test_the_environment_says_what_a_program_leaves_open(
    server_target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machine, library and sanitizer are libzdnn's variables, for a program that is recorded."""
    transport = GrpcTransport(Endpoint(server_target))
    recording = trace.Recording(transport, tmp_path / "t")
    monkeypatch.setenv("ZDNN_MACHINE", "telum1")
    monkeypatch.setenv("ZDNN_LIBRARY_VERSION", "1.1.2")
    monkeypatch.setenv("ZDNN_SANITIZE", "1")
    with connect(server_target) as session:
        assert session.status().machine.name == "machines/telum2"
    monkeypatch.setenv("ZDNN_SERVER", server_target)
    monkeypatch.setenv("ZDNN_TRACE", recording.name)
    with connect() as session:
        state = session.status()
        assert (state.machine.name, state.library_version) == ("machines/telum1", "1.1.2")
        assert state.sanitize
    with connect(machine="telum2", library="1.2.0") as session:
        state = session.status()
        assert (state.machine.name, state.library_version) == ("machines/telum2", "1.2.0")
    recording.stop()
    transport.close()
