# SPDX-License-Identifier: Apache-2.0
"""Traces of unchanged C programs, recorded with each way that sticks travel, and replayed."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from nnpa_client import trace
from nnpa_client._server.transport import GrpcTransport
from nnpa_client.config import Endpoint
from nnpa_client.testing import assert_called
from nnpa_tools.cli import main

from tests.libzdnn import toolchain
from tests.libzdnn.toolchain import ROOT, TRANSFERS, Prefix
from tests.server.process import serving

PROGRAMS = Path(__file__).parent / "programs"
EXAMPLES = ROOT / "client/libzdnn/examples"
TRAP = """
#include <zdnn.h>

int main(void) {
  zdnn_tensor_desc pre, desc, other_pre, other;
  zdnn_ztensor a, b;
  float data[6] = {1, 2, 3, 4, 5, 6};
  zdnn_init_pre_transformed_desc(ZDNN_2D, FP32, &pre, 2u, 3u);
  zdnn_generate_transformed_desc(&pre, &desc);
  zdnn_init_pre_transformed_desc(ZDNN_2D, FP32, &other_pre, 3u, 2u);
  zdnn_generate_transformed_desc(&other_pre, &other);
  zdnn_init_ztensor_with_malloc(&pre, &desc, &a);
  zdnn_init_ztensor_with_malloc(&other_pre, &other, &b);
  zdnn_transform_ztensor(&a, data);
  zdnn_transform_ztensor(&b, data);
  zdnn_add(&a, &b, &a);
  return 0;
}
"""
Record = Callable[..., trace.Trace]


def nnpa(*arguments: object, **environment: str) -> Result:
    """Run `nnpa trace` in this process; the program that it runs inherits the environment."""
    return CliRunner().invoke(main, ["trace", *map(str, arguments)], env=environment)


@pytest.fixture
def record(prefix: Prefix, server: str, tmp_path: Path) -> Record:
    """A function that compiles a program, runs it under `nnpa trace record`, and reads the file."""

    def run(
        source: Path, name: str, *arguments: object, target: str = server, code: int = 0,
        **environment: str,
    ) -> trace.Trace:  # fmt: skip
        program, file = tmp_path / source.stem, tmp_path / name
        if not program.exists():
            toolchain.compiled(source, program, prefix, "-lm")
        options = ("--contents", "--target", target, "-o", file, "--", program, *arguments)
        done = nnpa("record", *options, **environment)
        assert done.exit_code == code, done.output
        return trace.read(file)

    return run


def names(recorded: trace.Trace) -> list[str]:
    """Return the names of what a program called, in order."""
    return [operation.name for operation in recorded.operations if not operation.is_housekeeping]


def replayed(recorded: trace.Trace, target: str, machine: str | None = None) -> trace.Comparison:
    """Run a trace again at a server."""
    transport = GrpcTransport(Endpoint(target))
    try:
        return trace.replay(recorded, transport, machine=machine)[0]
    finally:
        transport.close()


@pytest.mark.parametrize("transfer", TRANSFERS)
def test_a_c_program_is_recorded(record: Record, server: str, transfer: str) -> None:
    """An example of the API Reference shows what it called, and replays on the other Telum."""
    recorded = record(EXAMPLES / "add.c", transfer, ZDNN_TRANSFER=transfer)
    assert recorded.ending == ""
    assert names(recorded) == [*["transform_ztensor"] * 2, "add", "transform_origtensor"]
    assert_called(recorded, ["zdnn_add"])
    comparison = replayed(recorded, server, "telum1")
    assert comparison.is_equal
    assert (comparison.statuses, comparison.values, comparison.unknown) == (4, 4, 0)


def test_transfers_leave_the_same_trace(record: Record) -> None:
    """A trace has the same contents whether sticks are sent, named, or in shared memory."""
    program = PROGRAMS / "repeat.c"
    recordings = [record(program, mode, 64, 8, ZDNN_TRANSFER=mode) for mode in TRANSFERS]
    assert names(recordings[0]) == ["transform_ztensor", *["add"] * 8, "transform_origtensor"]
    for recorded in recordings[1:]:
        pair = (recordings[0], recorded)
        comparison = trace.diff(*pair)
        assert comparison.is_equal
        assert (comparison.values, comparison.unknown) == (10, 0)
        brought = [[contents.digest for contents in each.operations[3].contents] for each in pair]
        assert brought[0] == brought[1]


def test_tensors_beyond_a_message_replay(record: Record, tmp_path: Path) -> None:
    """A call that only shared memory can carry at once replays in chunks, with the same bits."""
    flags = ("--listen", f"unix:{tmp_path}/s", "--max-message", "4MiB", "--shared-memory")
    with serving(tmp_path, *flags) as small:
        recorded = record(PROGRAMS / "repeat.c", "t", 1024, 3, target=small.address,
                       ZDNN_TRANSFER="shm")  # fmt: skip
        assert names(recorded) == ["transform_ztensor", *["add"] * 3, "transform_origtensor"]
        largest = max(contents.size for each in recorded.operations for contents in each.contents)
        assert largest > 1 << 20
        comparison = replayed(recorded, small.address)
    assert comparison.is_equal
    assert (comparison.values, comparison.unknown) == (5, 0)


def test_a_trap_is_recorded(record: Record, tmp_path: Path, server: str) -> None:
    """The trace of a program that dies of a program check ends there, with its signal."""
    source = tmp_path / "trap.c"
    source.write_text(TRAP, encoding="utf-8")
    recorded = record(source, "t", code=128 + 4)
    assert names(recorded) == ["transform_ztensor", "transform_ztensor", "add"]
    assert recorded.operations[-1].status == "PROGRAM_CHECK"
    assert replayed(recorded, server).is_equal
    with pytest.raises(AssertionError, match=r"zdnn_add .* fell back, it answered PROGRAM_CHECK"):
        assert_called(recorded, ["add"])
    recorded = record(source, "s", ZDNN_PROGRAM_CHECK="status")
    assert recorded.operations[-1].status == "ZDNN_INVALID_SHAPE"


def test_children_are_recorded(record: Record) -> None:
    """Each process of a program that forks is a session of the trace."""
    recorded = record(PROGRAMS / "forks.c", "t")
    assert len(recorded.sessions) >= 5
    assert {operation.session for operation in recorded.operations} == set(recorded.sessions)
    assert all(operation.is_valid for operation in recorded.operations)


def test_a_name_that_is_not_open_does_no_harm(prefix: Prefix, server: str, tmp_path: Path) -> None:
    """A ZDNN_TRACE that names a closed trace changes nothing, and nothing is printed."""
    program = toolchain.compiled(EXAMPLES / "add.c", tmp_path / "add", prefix)
    plain = toolchain.run([str(program)], ZDNN_SERVER=server)
    assert toolchain.run([str(program)], ZDNN_SERVER=server, ZDNN_TRACE="traces/gone") == plain
    assert "ZDNN_TRACE" not in os.environ
