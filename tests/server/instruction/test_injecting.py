# SPDX-License-Identifier: Apache-2.0
"""Fault rules at the level of the instruction: response codes, flags, interruptions, moves."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import grpc
import pytest
from nnpa.instruction.v1 import instruction_pb2 as pb
from nnpa.instruction.v1 import instruction_pb2_grpc
from nnpa.zdnn.v1 import accelerator_pb2
from nnpa.zdnn.v1.fault_pb2 import FaultMove, FaultRule

from tests.server.conftest import CONFIG, Running
from tests.server.instruction.instructions import ADD, ONE, PAGE, TWO, sticks, sums
from tests.server.wire import Client, refused

SUB, INVSQRT = 17, 34
SUM = sticks(TWO).tobytes()


@pytest.fixture(scope="module")
def allowing() -> Iterator[Running]:
    """A server that allows faults."""
    server = Running(replace(CONFIG, allow_faults=True))
    yield server
    server.stop()


class Faulty:
    """A session with fault rules that issues instructions."""

    def __init__(self, running: Running, *rules: FaultRule) -> None:
        self.client = Client(running.channel, accelerator_pb2.Session(fault_rules=rules))
        self.stub: Any = instruction_pb2_grpc.InstructionServiceStub(running.channel)

    def issue(self, code: int = ADD) -> pb.IssueResponse:
        """Issue a function of two operands, both one."""
        request = pb.IssueRequest(
            session=self.client.session,
            general_register_0=code,
            parameter_block=sums(),
            operands=[
                pb.Operand(role=pb.ROLE_INPUT_1, contents=sticks(ONE).tobytes()),
                pb.Operand(role=pb.ROLE_INPUT_2, contents=sticks(ONE).tobytes()),
                pb.Operand(role=pb.ROLE_OUTPUT_1, size=PAGE),
            ],
        )
        response: pb.IssueResponse = self.stub.Issue(request)
        return response

    def injected(self) -> list[tuple[str, str, str]]:
        """Return function, effect and detail of each injected fault."""
        faults = self.client.state().injected_faults
        return [(fault.operation, fault.effect, fault.detail) for fault in faults]


def test_a_response_code(allowing: Running) -> None:
    """A status of the hardware is its response code, for the function that the rule names."""
    rule = FaultRule(operation="NNPA_ADD", nth=2, status="ZDNN_EXCEEDS_MDIS")
    faulty = Faulty(allowing, rule)
    first, subtraction, second, third = (faulty.issue(code) for code in (ADD, SUB, ADD, ADD))
    assert [answer.condition_code for answer in (first, subtraction, second, third)] == [0, 0, 1, 0]
    assert second.general_register_0 == 0x0012 << 48 | ADD
    assert (len(second.outputs), second.refusal.constraint) == (0, "fault")
    assert (first.outputs[0].contents, third.outputs[0].contents) == (SUM, SUM)
    assert faulty.injected() == [("NNPA_ADD", "status", "ZDNN_EXCEEDS_MDIS")]


def test_outputs_that_are_written_all_the_same(allowing: Running) -> None:
    """A rule may have the output written with condition code 1."""
    faulty = Faulty(allowing, FaultRule(status="0x000CF009", output_written=True))
    answer = faulty.issue()
    assert (answer.condition_code, answer.general_register_0 >> 48) == (1, 0xF009)
    assert answer.outputs[0].contents == SUM


def test_the_exception_flag(allowing: Running) -> None:
    """The library's warning is the flag of a range violation; the output is there."""
    faulty = Faulty(allowing, FaultRule(status="ZDNN_ELEMENT_RANGE_VIOLATION"))
    answer = faulty.issue()
    assert (answer.condition_code, answer.general_register_0) == (0, 0x80 << 32 | ADD)
    assert answer.outputs[0].contents == SUM


@pytest.mark.parametrize(
    ("kind", "code", "address"), [("data", 7, 0), ("access", 4, 0x10000), ("operation", 1, 0)]
)
def test_interruptions(allowing: Running, kind: str, code: int, address: int) -> None:
    """A program check interrupts the program; an access exception has an address."""
    faulty = Faulty(allowing, FaultRule(call=2, program_check=kind))
    assert faulty.issue().outputs[0].contents == SUM
    interruption = faulty.issue().program_interruption
    assert (interruption.code, interruption.address) == (code, address)
    assert faulty.injected() == [("NNPA_ADD", "program_check", kind)]


def test_a_real_interruption_comes_first(allowing: Running) -> None:
    """An injected warning does not hide an interruption of the instruction itself."""
    faulty = Faulty(allowing, FaultRule(status="ZDNN_ELEMENT_RANGE_VIOLATION"))
    request = pb.IssueRequest(
        session=faulty.client.session, general_register_0=ADD, general_register_1=4
    )
    answer = faulty.stub.Issue(request)
    assert answer.program_interruption.code == pb.INTERRUPTION_CODE_SPECIFICATION
    assert answer.general_register_0 == ADD


def test_a_machine_that_changes(allowing: Running) -> None:
    """A moved guest lacks the other machine's missing functions, until it is back."""
    faulty = Faulty(allowing, FaultRule(nth=1, move=FaultMove(machine="telum1", calls=1)))
    codes = [faulty.issue(INVSQRT).general_register_0 >> 48 for _ in range(2)]
    assert codes == [0x0002, 0x0001]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_connection_that_is_lost(allowing: Running, moment: str) -> None:
    """A call that loses its connection has no answer; the session goes on."""
    faulty = Faulty(allowing, FaultRule(nth=1, lose_connection=moment))
    with pytest.raises(grpc.RpcError) as caught:
        faulty.issue()
    error: Any = caught.value
    assert error.code() == grpc.StatusCode.UNAVAILABLE
    assert faulty.issue().outputs[0].contents == SUM


@pytest.mark.parametrize(
    "rule",
    [
        FaultRule(operation="NNPA_NONE", note=True),
        FaultRule(operation="NNPA_ADD", status="ZDNN_INVALID_SHAPE"),
        FaultRule(operation="NNPA_ADD", flip_bits=1),
        FaultRule(operation="NNPA_ADD", range_violation=1),
    ],
)
def test_rules_that_do_not_fit(allowing: Running, rule: FaultRule) -> None:
    """A rule with an unknown function, or with an effect of no instruction, is refused."""
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID"):
        Faulty(allowing, rule)


def test_rules_of_the_library_leave_instructions_alone(allowing: Running) -> None:
    """A status that is no response code is for functions of the library only."""
    faulty = Faulty(allowing, FaultRule(status="ZDNN_INVALID_SHAPE"), FaultRule(flip_bits=1))
    assert faulty.issue().outputs[0].contents == SUM
    assert faulty.injected() == []
