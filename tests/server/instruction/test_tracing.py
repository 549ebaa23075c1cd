# SPDX-License-Identifier: Apache-2.0
"""Instructions in traces: their records, and how a trace is shown."""

import io
from pathlib import Path
from typing import Any

import pytest
from nnpa.instruction.v1 import instruction_pb2 as pb
from nnpa.instruction.v1 import instruction_pb2_grpc
from nnpa.zdnn.v1 import trace_pb2
from nnpa_client.trace.format import TraceWriter
from nnpa_client.trace.history import read
from nnpa_server.instruction import tracing
from nnpa_tools.traces.show import as_data, timeline
from rich.console import Console

from tests.server.accelerator.test_trace import FAILED, Open
from tests.server.conftest import Running
from tests.server.instruction.instructions import ADD, NOT_A_NUMBER, ONE, PAGE, QAF, sticks, sums
from tests.server.wire import Client, load

NONE, AT = 99, 0x8000


class Traced:
    """A session in a trace that issues instructions."""

    def __init__(self, running: Running, client: Client) -> None:
        self.stub: Any = instruction_pb2_grpc.InstructionServiceStub(running.channel)
        self.session = client.session
        self.trace = Open(running.channel)
        assert self.trace.join(client) == self.trace.name

    def issue(self, code: int, parameter_block: bytes, cell: int = ONE, at: int = AT) -> None:
        """Issue an instruction on two operands and an output of a page each."""
        operands = [
            pb.Operand(role=pb.ROLE_INPUT_1, contents=sticks(cell).tobytes()),
            pb.Operand(role=pb.ROLE_INPUT_2, contents=sticks(ONE).tobytes()),
            pb.Operand(role=pb.ROLE_OUTPUT_1, size=PAGE),
        ]
        self.stub.Issue(
            pb.IssueRequest(
                session=self.session,
                general_register_0=code,
                general_register_1=at,
                parameter_block=parameter_block,
                operands=operands,
            )
        )


def test_records_have_registers_block_and_end(running: Running, client: Client) -> None:
    """A record has both registers, the block's first bytes, and how the instruction ended."""
    traced = Traced(running, client)
    traced.issue(QAF, bytes(256))
    traced.issue(ADD, sums(2), NOT_A_NUMBER)
    traced.issue(NONE, sums())
    traced.issue(ADD, sums(65))
    records = traced.trace.end()
    assert (records[-1].end.calls, records[-1].WhichOneof("record")) == (4, "end")
    instructions = [
        record.instruction for record in records if record.WhichOneof("record") == "instruction"
    ]
    assert [instruction.general_register_0 for instruction in instructions] == [QAF, ADD, NONE, ADD]
    assert {
        (instruction.session, instruction.general_register_1) for instruction in instructions
    } == {(1, AT)}
    assert [instruction.parameter_block for instruction in instructions] == [
        b"",
        sums(2)[:512],
        sums()[:512],
        sums(65)[:512],
    ]
    assert [instruction.general_register_0_after for instruction in instructions] == [
        QAF,
        0x80 << 32 | ADD,
        0x0002 << 48 | NONE,
        ADD,
    ]
    assert [instruction.condition_code for instruction in instructions] == [0, 0, 1, 0]
    assert [
        (instruction.interruption_code, instruction.address) for instruction in instructions
    ] == [
        (0, 0),
        (0, 0),
        (0, 0),
        (4, 0x10000 + PAGE),
    ]
    assert [instruction.HasField("refusal") for instruction in instructions] == [
        False,
        False,
        True,
        True,
    ]
    starts = [instruction.start_ns for instruction in instructions]
    assert starts == sorted(starts)
    assert all(instruction.duration_ns for instruction in instructions)


def test_a_trace_shows_a_line_per_instruction(
    running: Running, client: Client, tmp_path: Path
) -> None:
    """A trace of instructions has a line for each; one of both kinds shows both."""
    traced = Traced(running, client)
    traced.issue(ADD, sums(2))
    traced.issue(ADD, sums(2), NOT_A_NUMBER)
    traced.issue(NONE, sums())
    traced.issue(ADD, sums(), at=4)
    alone = _written(tmp_path / "alone", traced.trace.end())
    text = _text(alone)
    assert "NNPA_ADD" in text
    assert "1x1x1x2 1x1x1x2 > 1x1x1x2" in text
    assert "4 instructions" in text
    assert "ztensors" not in text
    for end in ("ok, flags 0x80", "function 99", "response code 0002", "specification exception"):
        assert end in text
    (first, *_, last) = _instructions(as_data(read(alone)))
    assert (first["function"], first["inputs"], first["outputs"], first["end"]) == (
        "NNPA_ADD",
        [[1, 1, 1, 2], [1, 1, 1, 2]],
        [[1, 1, 1, 2]],
        "ok",
    )
    assert (last["done"], "parameter block" in str(last["why"])) == (False, True)
    traced = Traced(running, client)
    client.run(*load(1, sticks(ONE).view("<f4")[:4].reshape(2, 2)))
    traced.issue(ADD, sums(2))
    both = _text(_written(tmp_path / "both", traced.trace.end()))
    assert "transform_ztensor" in both
    assert "NNPA_ADD" in both


def test_a_defect_of_ours_is_none_of_the_programs(
    running: Running, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instruction that cannot be recorded ends well, and its trace is cut."""
    traced = Traced(running, client)

    def fail(*_arguments: object) -> None:
        raise ArithmeticError

    monkeypatch.setattr(tracing, "_put", fail)
    traced.issue(ADD, sums(2))
    assert traced.trace.rest()[-1].end.reason == FAILED


def _written(path: Path, records: list[trace_pb2.TraceRecord]) -> Path:
    writer = TraceWriter(path)
    for record in records:
        raw = record.SerializeToString()
        size = len(raw)
        prefix = bytearray()
        while size >= 0x80:
            prefix.append(size & 0x7F | 0x80)
            size >>= 7
        writer.write(bytes(prefix) + bytes((size,)) + raw)
    writer.close()
    return path


def _text(path: Path) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(timeline(read(path)))
    return console.export_text()


def _instructions(data: dict[str, Any]) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = data["instructions"]
    return listed
