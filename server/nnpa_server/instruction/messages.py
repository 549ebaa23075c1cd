# SPDX-License-Identifier: Apache-2.0
"""Read the storage of operands from messages, and encode answers."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from nnpa.instruction.v1 import instruction_pb2 as pb
from nnpa.zdnn.v1 import tensor_pb2
from nnpa_emulator.machine import Memory
from nnpa_emulator.parameter_block import BLOCK_BYTES, Role

from nnpa_server.accelerator.execute import describe_refusal
from nnpa_server.accelerator.operands import check_extent, require_inline, too_large
from nnpa_server.errors import invalid, unspecified
from nnpa_server.instruction.answers import Answer, Instruction
from nnpa_server.instruction.issue import out_of_storage
from nnpa_server.rpc.budget import expect_answer
from nnpa_server.sessions.shared_memory import shared_of
from nnpa_server.sessions.store import Session

_ROLES = frozenset(map(int, Role))
_INPUTS = frozenset((Role.INPUT_1, Role.INPUT_2, Role.INPUT_3))


class Storage(NamedTuple):
    """The server's memory for an operand, and its place in shared memory, if any."""

    memory: Memory
    extent: tensor_pb2.Extent | None = None


def read_instruction(request: pb.IssueRequest) -> Instruction:
    """Return the registers and the block of a request."""
    if (size := len(request.parameter_block)) > BLOCK_BYTES:
        raise invalid("parameter_block", f"{size} bytes", f"at most {BLOCK_BYTES} bytes")
    return Instruction(
        request.general_register_0, request.general_register_1, request.parameter_block
    )


def read_storage(
    session: Session, operands: Iterable[pb.Operand], instruction: Instruction
) -> Mapping[Role, Storage]:
    """Return the storage of operands, each at most as large as its tensor."""
    storage: dict[Role, Storage] = {}
    sizes = instruction.operand_sizes
    for number, operand in enumerate(operands):
        path = f"operands[{number}]"
        if not operand.role:
            raise unspecified(f"{path}.role")
        number_of_role = int(operand.role)
        if number_of_role not in _ROLES:
            raise invalid(f"{path}.role", number_of_role, "one of enum Role")
        role = Role(number_of_role)
        if role in storage:
            raise invalid(f"{path}.role", role.name, "a role that no other operand has")
        storage[role] = _read_operand(session, operand, role, sizes.get(role, 0), path)
    return storage


def _read_operand(
    session: Session, operand: pb.Operand, role: Role, needed: int, path: str
) -> Storage:
    match operand.WhichOneof("storage"):
        case "contents" if role in _INPUTS:
            require_inline(session, len(operand.contents), f"{path}.contents")
            return Storage(np.frombuffer(operand.contents, np.uint8))
        case "contents":
            raise invalid(f"{path}.contents", "set", "unset: an output has a size or a place")
        case "shared":
            return _read_shared(session, operand.shared, role, needed, f"{path}.shared")
        case "size" if role in _INPUTS:
            raise invalid(f"{path}.size", "set", "unset: an input has contents or a place")
        case "size":
            size = min(operand.size, needed)
            if role != Role.SAVE_AREA:
                require_inline(session, size, f"{path}.size")
            return Storage(_allocate(session, size))
        case _:
            raise unspecified(path)


def _read_shared(
    session: Session, extent: tensor_pb2.Extent, role: Role, needed: int, path: str
) -> Storage:
    """Return a copy of an input in shared memory, or new memory for an output there."""
    memory = check_extent(session, extent, extent.size, path)
    buffer = _allocate(session, min(extent.size, needed))
    if role in _INPUTS:
        memory.read(extent.offset, buffer, path)
    return Storage(buffer, extent)


def _allocate(session: Session, size: int) -> Memory:
    memory = session.allocate(size)
    if memory is None:
        raise out_of_storage()
    return memory


def encode_answer(
    session: Session, answer: Answer, storage: Mapping[Role, Storage]
) -> pb.IssueResponse:
    """Return the message of an answer, with the outputs of the instruction."""
    completion = answer.completion
    response = pb.IssueResponse(
        general_register_0=completion.general_register_0,
        condition_code=completion.condition_code,
        parameter_block=completion.stored,
    )
    if answer.refusal is not None:
        response.refusal.CopyFrom(describe_refusal(answer.refusal))
    if (interruption := answer.interruption) is not None:
        code = pb.InterruptionCode.ValueType(interruption.code)
        response.program_interruption.code = code
        response.program_interruption.address = interruption.address
    for role, size in completion.written.items():
        output = response.outputs.add(role=pb.Role.ValueType(role))
        _encode_output(session, output, storage[role], size)
    if (size := response.ByteSize()) > (limit := session.limits.max_message):
        raise too_large("outputs", size, limit)
    expect_answer(size)
    return response


def _encode_output(session: Session, output: pb.Operand, storage: Storage, size: int) -> None:
    """Put an output into shared memory or the message."""
    contents, extent = storage.memory[:size], storage.extent
    if extent is not None:
        memory = shared_of(session)
        if memory is not None and memory.write(extent.offset, contents, "outputs"):
            output.shared.offset, output.shared.size = extent.offset, size
            return
        require_inline(session, size, "outputs")
    output.contents = contents.tobytes()
