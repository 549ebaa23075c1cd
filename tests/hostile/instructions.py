# SPDX-License-Identifier: Apache-2.0
"""Instructions from which mutations begin: as messages, and as frames of a plain socket."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from google.protobuf.wrappers_pb2 import BytesValue
from nnpa.instruction.v1 import instruction_pb2 as pb

from tests.server.instruction.instructions import (
    ADD,
    EXP,
    INPUT_1,
    INPUT_2,
    INPUT_3,
    OUTPUT_1,
    PAGE,
    QAF,
    SAVE_AREA,
    block,
    memory_file,
    request,
)

INSTRUCTION = "/nnpa.instruction.v1.InstructionService/"
LINES = (
    f":path: {INSTRUCTION}IssueStream\r\n"
    "content-type: application/grpc+nnpa-frame\r\n"
    "nnpa-session: {session}\r\n"
)
"""Metadata of a plain socket's call in frames."""
_PAGES = 8
_SOFTMAX, _PRODUCT, _TRANSFORM = 52, 113, 240
_INPUTS = (INPUT_1, INPUT_2, INPUT_3)


class Recorded(NamedTuple):
    """An instruction: its function code, its block, and how many bytes each operand has."""

    code: int
    block: bytes
    sizes: Mapping[int, int]


def _recorded(
    code: int,
    dims: Mapping[int, tuple[int, int, int, int]],
    version: int = 0,
    words: Mapping[int, int] | None = None,
    form: Mapping[int, tuple[int, int]] | None = None,
    save_area: int = 0,
) -> Recorded:
    tensors = {role: (*sizes, role * 0x10000) for role, sizes in dims.items()}
    sizes = dict.fromkeys(dims, PAGE)
    if save_area:
        sizes[SAVE_AREA] = 2 * PAGE
    return Recorded(code, block(tensors, version, words, save_area, form), sizes)


def recorded_instructions() -> list[Recorded]:
    """Return instructions of all kinds of operands."""
    row, matrix = (1, 1, 1, 8), (1, 1, 4, 4)
    product = dict.fromkeys((INPUT_1, INPUT_2, OUTPUT_1), matrix) | {INPUT_3: (1, 1, 1, 4)}
    of_bytes = {INPUT_1: (0, 8), INPUT_2: (2, 8)}
    scales = {3: 0x3E00, 5: 0x3E00, 7: 0x3E00, 10: 127}
    return [
        Recorded(QAF, bytes(256), {}),
        _recorded(ADD, {INPUT_1: row, INPUT_2: row, OUTPUT_1: row}),
        _recorded(EXP, {INPUT_1: row, OUTPUT_1: row}, version=1),
        _recorded(_SOFTMAX, {INPUT_1: row, OUTPUT_1: row}, save_area=0x9000),
        _recorded(_PRODUCT, product, words={1: 0}),
        _recorded(_PRODUCT, product, version=1, words=scales, form=of_bytes),
        _recorded(_TRANSFORM, {INPUT_1: row, OUTPUT_1: row}, 1, {1: 2}, form={INPUT_1: (31, 6)}),
    ]


def messages(session: str) -> list[pb.IssueRequest]:
    """Return instructions as messages."""
    requests: list[pb.IssueRequest] = []
    for instruction in recorded_instructions():
        message = pb.IssueRequest(
            session=session,
            general_register_0=instruction.code,
            general_register_1=0x8000,
            parameter_block=instruction.block,
        )
        for role, size in instruction.sizes.items():
            operand = message.operands.add(role=pb.Role.ValueType(role))
            if role in _INPUTS:
                operand.contents = bytes(size)
            else:
                operand.size = size
        requests.append(message)
    return requests


def frames() -> Sequence[BytesValue]:
    """Return instructions as frames, their operands behind each other."""
    payloads: list[BytesValue] = []
    for instruction in recorded_instructions():
        operands = [
            (role, number * PAGE, size)
            for number, (role, size) in enumerate(instruction.sizes.items())
        ]
        payloads.append(BytesValue(value=request(instruction.code, instruction.block, operands)))
    return payloads


def operand_memory() -> int:
    """Return a descriptor of memory for the operands of a frame."""
    return memory_file(_PAGES * PAGE)
