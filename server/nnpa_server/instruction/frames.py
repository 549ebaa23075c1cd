# SPDX-License-Identifier: Apache-2.0
"""Codec of instructions in frames of big-endian numbers, for clients without protobuf.

    request   registers, lengths; per operand a role and a place in the connection's memory; block
    response  register, codes, lengths, which outputs were written; block; text

Sources: deploy/docs/wire.md, "Instructions over plain sockets".
"""

import struct
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from nnpa_emulator.machine import Memory
from nnpa_emulator.parameter_block import BLOCK_BYTES, Role

from nnpa_server.errors import invalid
from nnpa_server.instruction.answers import Answer, Instruction

CONTENT_TYPE = "application/grpc+nnpa-frame"
_REQUEST = struct.Struct(">QQII40s")
_OPERAND = struct.Struct(">IIQQ")
_RESPONSE = struct.Struct(">QIIQIII28x")
_ROLES = frozenset(Role)
_WRITTEN = (Role.OUTPUT_1, Role.OUTPUT_2, Role.SAVE_AREA)  # bits of a response's mask
_PAGE = 4096  # of z/Architecture
_MAX_TEXT = 512  # bytes


class Frame(NamedTuple):
    """A decoded request."""

    raw: bytes | memoryview


class Place(NamedTuple):
    """An operand's storage in the memory of the connection."""

    role: Role
    offset: int
    size: int


def decode_frame(frame: Frame) -> tuple[Instruction, Sequence[Place]]:
    """Decode a request; raise CallRefused for other bytes."""
    raw = bytes(frame.raw)
    if len(raw) < _REQUEST.size:
        raise invalid("frame", f"{len(raw)} bytes", f"at least {_REQUEST.size} bytes")
    register_0, register_1, block_size, count, reserved = _REQUEST.unpack_from(raw)
    _require_at_most("frame.parameter_block", block_size, BLOCK_BYTES)
    _require_at_most("frame.operands", count, len(Role))
    start = _REQUEST.size + count * _OPERAND.size
    if len(raw) != start + block_size:
        limit = f"{start + block_size} bytes, as its lengths say"
        raise invalid("frame", f"{len(raw)} bytes", limit)
    if any(reserved):
        raise invalid("frame.reserved", "not zero", "zero")
    places = [
        _decode_place(number, *_OPERAND.unpack_from(raw, _REQUEST.size + number * _OPERAND.size))
        for number in range(count)
    ]
    _require_apart(places)
    return Instruction(register_0, register_1, raw[start:]), places


def _decode_place(number: int, role: int, reserved: int, offset: int, size: int) -> Place:
    path = f"frame.operands[{number}]"
    if role not in _ROLES:
        roles = ", ".join(str(int(member)) for member in Role)
        raise invalid(f"{path}.role", role, f"one of {roles}")
    if reserved:
        raise invalid(f"{path}.reserved", reserved, "zero")
    if offset % _PAGE:
        raise invalid(f"{path}.offset", offset, f"a multiple of {_PAGE}")
    return Place(Role(role), offset, size)


def _require_apart(places: Sequence[Place]) -> None:
    """Refuse a role that comes twice, and an output that overlaps another operand."""
    for first, second in combinations(places, 2):
        if first.role == second.role:
            raise invalid("frame.operands", f"role {first.role:d} twice", "each role at most once")
        is_read_only = first.role not in _WRITTEN and second.role not in _WRITTEN
        is_apart = (
            first.offset + first.size <= second.offset
            or second.offset + second.size <= first.offset
        )
        if not (is_read_only or is_apart):
            limit = "apart, as one of them is written"
            raise invalid("frame.operands", f"{first.role.name} over {second.role.name}", limit)


def _require_at_most(path: str, count: int, most: int) -> None:
    if count > most:
        raise invalid(path, count, f"at most {most}")


def place_storage(places: Sequence[Place], memory: Memory | None) -> Mapping[Role, Memory]:
    """Return the storage of operands; refuse a place outside the connection's memory."""
    storage: dict[Role, Memory] = {}
    for number, place in enumerate(places):
        end, held = place.offset + place.size, 0 if memory is None else memory.nbytes
        if memory is None or end > held:
            value = f"{place.size} bytes at {place.offset}"
            limit = f"inside the {held} bytes of the connection's memory"
            raise invalid(f"frame.operands[{number}]", value, limit)
        storage[place.role] = memory[place.offset : end]
    return storage


def encode_frame(answer: Answer) -> Sequence[bytes]:
    """Return the frame of a response."""
    completion, interruption = answer.completion, answer.interruption
    text = "" if answer.refusal is None else str(answer.refusal)
    code = address = 0
    if interruption is not None:
        code, address, text = interruption.code, interruption.address, interruption.text
    raw_text = text.encode()[:_MAX_TEXT].decode(errors="ignore").encode()
    head = _RESPONSE.pack(
        completion.general_register_0,
        completion.condition_code,
        code,
        address,
        len(completion.stored),
        len(raw_text),
        sum(1 << bit for bit, role in enumerate(_WRITTEN) if role in completion.written),
    )
    return head, completion.stored, raw_text
