# SPDX-License-Identifier: Apache-2.0
"""The instruction over gRPC: operands inline and in shared memory, answers, errors of requests."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from nnpa.instruction.v1 import instruction_pb2 as pb
from nnpa.instruction.v1 import instruction_pb2_grpc
from nnpa.zdnn.v1 import accelerator_pb2, tensor_pb2
from nnpa_emulator.parameter_block import Role
from nnpa_server.app import Server
from nnpa_server.sessions.store import Counts

from tests.server.conftest import CONFIG, OPTIONS
from tests.server.instruction.instructions import (
    ADD,
    INPUT_1,
    INPUT_2,
    NOT_A_NUMBER,
    ONE,
    OUTPUT_1,
    PAGE,
    QAF,
    TWO,
    block,
    memory_file,
    sticks,
    sums,
)
from tests.server.plain import Plain
from tests.server.wire import Client, refused

FOUR = 0x4200
BLOCK_ADDRESS = 0x8000
INVALID = grpc.StatusCode.INVALID_ARGUMENT


class Issuer:
    """A session, and the instructions that it issues."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client = client
        self.path = folder / "nnpa.sock.plain"
        self.stub: Any = instruction_pb2_grpc.InstructionServiceStub(client.channel)

    def request(
        self, code: int, parameter_block: bytes, *operands: pb.Operand, at: int = BLOCK_ADDRESS
    ) -> pb.IssueRequest:
        """Return a request."""
        return pb.IssueRequest(
            session=self.client.session,
            general_register_0=code,
            general_register_1=at,
            parameter_block=parameter_block,
            operands=operands,
        )

    def issue(
        self, code: int, parameter_block: bytes, *operands: pb.Operand, at: int = BLOCK_ADDRESS
    ) -> pb.IssueResponse:
        """Issue an instruction."""
        response: pb.IssueResponse = self.stub.Issue(
            self.request(code, parameter_block, *operands, at=at)
        )
        return response


@pytest.fixture
def issuer(tmp_path: Path) -> Iterator[Issuer]:
    """A session of a server that takes shared memory; nothing is left of it."""
    address = f"unix:{tmp_path}/nnpa.sock"
    server = Server(replace(CONFIG, listen=(address,), shared_memory=True))
    server.start()
    with grpc.insecure_channel(address, OPTIONS) as channel:
        client = Client(channel)
        yield Issuer(client, tmp_path)
        client.delete()
    assert server.store.counts() == Counts()
    server.drain()


def input_page(role: "pb.Role.ValueType", *cells: int) -> pb.Operand:
    """Return an input of one page."""
    return pb.Operand(role=role, contents=sticks(*cells).tobytes())


OUTPUT = pb.Operand(role=pb.ROLE_OUTPUT_1, size=PAGE)
INPUTS = input_page(pb.ROLE_INPUT_1, ONE, TWO), input_page(pb.ROLE_INPUT_2, ONE, TWO)
STICKS = sticks(TWO, FOUR).tobytes()


def test_inline(issuer: Issuer) -> None:
    """A sum of operands in the message comes back in the message, and no more than was stored."""
    more = pb.Operand(role=pb.ROLE_OUTPUT_1, size=3 * PAGE)
    answer = issuer.issue(ADD, sums(2), *INPUTS, more)
    assert answer == pb.IssueResponse(
        general_register_0=ADD, outputs=[pb.Operand(role=pb.ROLE_OUTPUT_1, contents=STICKS)]
    )


def test_qaf(issuer: Issuer) -> None:
    """QAF stores the contract's block for the session's machine, raw."""
    answer = issuer.issue(QAF, bytes(256))
    assert answer.parameter_block == issuer.client.state().machine.qaf_block
    assert (len(answer.parameter_block), len(answer.outputs)) == (256, 0)


def test_exception_flags(issuer: Issuer) -> None:
    """Bits 24-31 of register 0 flag a value that is no number."""
    operands = input_page(pb.ROLE_INPUT_1, NOT_A_NUMBER), input_page(pb.ROLE_INPUT_2, ONE)
    answer = issuer.issue(ADD, sums(), *operands, OUTPUT)
    assert answer.general_register_0 == 0x80 << 32 | ADD
    assert answer.outputs[0].contents[:2] == NOT_A_NUMBER.to_bytes(2)


def test_condition_code_1(issuer: Issuer) -> None:
    """A response code comes with a refusal for people, and without outputs."""
    answer = issuer.issue(ADD, block({}, version=7), *INPUTS, OUTPUT)
    assert (answer.condition_code, answer.general_register_0) == (1, 0x0001 << 48 | ADD)
    assert (len(answer.outputs), answer.HasField("program_interruption")) == (0, False)
    assert answer.refusal.field == "parameter block version"


@pytest.mark.parametrize(
    ("code", "parameter_block", "at", "interruption", "address"),
    [
        (ADD, sums(2), 0x8001, pb.INTERRUPTION_CODE_SPECIFICATION, 0),
        (ADD, sums(2)[:-1], 0x8000, pb.INTERRUPTION_CODE_PROTECTION, 0x8FFF),
        (ADD, sums(65), 0x8000, pb.INTERRUPTION_CODE_PROTECTION, 0x10000 + PAGE),
        (QAF, b"", 0xFFFFFFFFFFFFFFF8, pb.INTERRUPTION_CODE_PROTECTION, 0xFFFFFFFFFFFFFFF8),
        (QAF, bytes(8), 0xFFFFFFFFFFFFFFF8, pb.INTERRUPTION_CODE_PROTECTION, 0),
    ],
)
def test_program_interruptions(
    issuer: Issuer, code: int, parameter_block: bytes, at: int, interruption: int, address: int
) -> None:
    """An interruption has its code, the address for an access, and why; register 0 stays."""
    register = 0xABCD << 48 | code
    answer = issuer.issue(register, parameter_block, *INPUTS, OUTPUT, at=at)
    program_interruption = answer.program_interruption
    assert (program_interruption.code, program_interruption.address) == (interruption, address)
    assert (answer.general_register_0, answer.condition_code) == (register, 0)
    assert (len(answer.outputs), bool(answer.refusal.text)) == (0, True)


def test_shared_memory(issuer: Issuer) -> None:
    """Operands in memory that the session shares are read there, and outputs written there."""
    file = memory_file(4 * PAGE)
    for place, cells in enumerate(((ONE, TWO), (ONE, TWO), (ONE, ONE))):
        os.pwrite(file, sticks(*cells).tobytes(), place * PAGE)
    with Plain(issuer.path, descriptors=(file,)) as plain:
        assert plain.ask(issuer.client.request()).results == []
        extents = [tensor_pb2.Extent(offset=place * PAGE, size=PAGE) for place in range(3)]
        roles = pb.ROLE_INPUT_1, pb.ROLE_INPUT_2, pb.ROLE_OUTPUT_1
        operands = [
            pb.Operand(role=role, shared=extent)
            for role, extent in zip(roles, extents, strict=True)
        ]
        answer = issuer.issue(ADD, sums(2), *operands)
        assert list(answer.outputs) == [operands[2]]
        assert os.pread(file, PAGE, 2 * PAGE) == STICKS
        beyond = pb.Operand(role=pb.ROLE_OUTPUT_1, shared=tensor_pb2.Extent(offset=1, size=1 << 40))
        with refused(INVALID, "FIELD_INVALID", field="operands[2].shared"):
            issuer.issue(ADD, sums(2), *operands[:2], beyond)
    os.close(file)


def test_stream(issuer: Issuer) -> None:
    """A stream answers each instruction in order, and ends with the first error of a request."""
    requests = [issuer.request(QAF, bytes(256)), issuer.request(ADD, sums(2), *INPUTS, OUTPUT)]
    answers = list(issuer.stub.IssueStream(iter(requests)))
    assert [len(answer.parameter_block) for answer in answers] == [256, 0]
    assert answers[1].outputs[0].contents == STICKS
    bad = issuer.request(ADD, sums(2), *INPUTS, pb.Operand(role=pb.ROLE_OUTPUT_1))
    answers = []
    with refused(INVALID, "FIELD_UNSPECIFIED", field="operands[2]"):
        answers.extend(issuer.stub.IssueStream(iter([*requests, bad, *requests])))


@pytest.mark.parametrize(
    ("operand", "reason", "field"),
    [
        (pb.Operand(contents=b""), "FIELD_UNSPECIFIED", "operands[2].role"),
        (pb.Operand(role=pb.ROLE_OUTPUT_1), "FIELD_UNSPECIFIED", "operands[2]"),
        (pb.Operand(role=99, contents=b""), "FIELD_INVALID", "operands[2].role"),  # type: ignore[arg-type]  # an open enum  # pyright: ignore[reportArgumentType]
        (input_page(pb.ROLE_INPUT_1), "FIELD_INVALID", "operands[2].role"),
        (input_page(pb.ROLE_OUTPUT_1), "FIELD_INVALID", "operands[2].contents"),
        (pb.Operand(role=pb.ROLE_INPUT_3, size=1), "FIELD_INVALID", "operands[2].size"),
        (
            pb.Operand(role=pb.ROLE_INPUT_3, shared=tensor_pb2.Extent(size=1)),
            "FIELD_INVALID",
            "operands[2].shared",
        ),
    ],
)
def test_bad_operands(issuer: Issuer, operand: pb.Operand, reason: str, field: str) -> None:
    """A wrong operand is refused by its field."""
    with refused(INVALID, reason, field=field):
        issuer.issue(ADD, sums(2), *INPUTS, operand)


def test_bad_requests(issuer: Issuer) -> None:
    """A block that is too long, and an unknown or deleted session, are refused."""
    with refused(INVALID, "FIELD_INVALID", field="parameter_block"):
        issuer.issue(ADD, bytes(PAGE + 1))
    for session in ("", "sessions/none"):
        with refused(grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND"):
            issuer.stub.Issue(pb.IssueRequest(session=session))


def test_limits(tmp_path: Path) -> None:
    """Nothing is inline above the limit of a message, nothing taken above the session's quota."""
    address = f"unix:{tmp_path}/small.sock"
    limits = replace(CONFIG.limits, max_message=1 << 16, max_session_bytes=17 * PAGE)
    server = Server(replace(CONFIG, listen=(address,), limits=limits))
    server.start()
    with grpc.insecure_channel(address, OPTIONS) as channel:
        client = Client(channel)
        issuer = Issuer(client, tmp_path)
        large = pb.Operand(role=pb.ROLE_OUTPUT_1, size=1 << 40)
        with refused(INVALID, "MESSAGE_TOO_LARGE", field="operands[0].size"):
            issuer.issue(ADD, sums(64 * 5), large)
        with refused(INVALID, "MESSAGE_TOO_LARGE", field="operands[0].contents"):
            issuer.issue(ADD, sums(), pb.Operand(role=pb.ROLE_INPUT_1, contents=bytes(5 * PAGE)))
        four = [
            pb.Operand(role=pb.ROLE_INPUT_1, contents=bytes(4 * PAGE)),
            pb.Operand(role=pb.ROLE_INPUT_2, contents=bytes(4 * PAGE)),
            pb.Operand(role=pb.ROLE_OUTPUT_1, size=4 * PAGE),
        ]
        assert len(issuer.issue(ADD, sums(64 * 4), *four).outputs[0].contents) == 4 * PAGE
        with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "TENSOR_QUOTA_EXCEEDED"):
            save_area = pb.Operand(role=pb.ROLE_SAVE_AREA, size=2 * PAGE)
            issuer.issue(ADD, sums(64 * 4), *four, save_area)
        assert client.used() == (0, 0)
        client.delete()
    assert server.store.counts() == Counts()
    server.drain()


def test_the_session_is_the_machine(issuer: Issuer) -> None:
    """A function of one session's Telum II is missing on a second session's Telum I."""
    spec = accelerator_pb2.MachineSpec(model=accelerator_pb2.MACHINE_MODEL_TELUM1)
    first = issuer.client.open_session(accelerator_pb2.Session(machine_spec=spec))
    exists, lacks = (
        issuer.stub.Issue(pb.IssueRequest(session=name, general_register_0=34))
        for name in (issuer.client.session, first.session)
    )
    assert exists.program_interruption.code == pb.INTERRUPTION_CODE_PROTECTION
    assert (lacks.condition_code, lacks.general_register_0 >> 48) == (1, 0x0002)


def test_roles_have_the_emulators_numbers() -> None:
    """Roles equal the parameter block's roles, by name and number."""
    names = {role.name: int(role) for role in Role}
    wire = dict(pb.Role.items())
    assert wire == {"ROLE_UNSPECIFIED": 0} | {f"ROLE_{name}": names[name] for name in names}
    assert (names["INPUT_1"], names["INPUT_2"], names["OUTPUT_1"]) == (INPUT_1, INPUT_2, OUTPUT_1)
