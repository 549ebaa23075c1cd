# SPDX-License-Identifier: Apache-2.0
"""A client of the instruction's frames, byte by byte: nothing here is the server's."""

import fcntl
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.server.plain import Plain, frame

STREAM = "/nnpa.instruction.v1.InstructionService/IssueStream"
INPUT_1, INPUT_2, INPUT_3, OUTPUT_1, OUTPUT_2, SAVE_AREA = 1, 2, 3, 17, 18, 33
QAF, ADD, EXP = 0, 16, 33
PAGE = 4096
PLACES = {OUTPUT_1: 64, OUTPUT_2: 96, INPUT_1: 192, INPUT_2: 224, INPUT_3: 256}
ONE, TWO, NOT_A_NUMBER = 0x3E00, 0x4000, 0x7FFF  # DLFLOAT16


@dataclass(frozen=True)
class Ended:
    """A response."""

    general_register_0: int
    condition_code: int
    interruption: int
    address: int
    stored: bytes
    text: str
    written: int


def block(
    tensors: Mapping[int, tuple[int, int, int, int, int]],
    version: int = 0,
    words: Mapping[int, int] | None = None,
    save_area: int = 0,
    form: Mapping[int, tuple[int, int]] | None = None,
) -> bytes:
    """Lay a parameter block out: per role four dimensions, outermost first, and an address.

    `form` has data layout formats and types of roles that are not DLFLOAT16 in 4D-feature.
    """
    raw = bytearray(PAGE)
    struct.pack_into(">H", raw, 0, version)
    struct.pack_into(">Q", raw, 56, save_area)
    for role, (*dims, address) in tensors.items():
        kind = (form or {}).get(role, (0, 0))
        struct.pack_into(">BB6x4IQ", raw, PLACES[role], *kind, *dims, address)
    for word, value in (words or {}).items():
        struct.pack_into(">I", raw, 384 + 4 * (word - 1), value)
    return bytes(raw)


def sums(size: int = 1) -> bytes:
    """Return the block of a sum of two tensors of `size` elements each, at addresses by role."""
    roles = INPUT_1, INPUT_2, OUTPUT_1
    return block({role: (1, 1, 1, size, 0x10000 * role) for role in roles})


def sticks(*cells: int) -> npt.NDArray[np.uint8]:
    """Return one page, a tensor of at most 64 elements in one row, as it lies on the machine."""
    page = np.zeros(PAGE // 2, ">u2")
    page[: len(cells)] = cells
    return page.view(np.uint8)


def request(
    register_0: int,
    parameter_block: bytes,
    operands: Sequence[tuple[int, int, int]] = (),
    register_1: int = 0x8000,
) -> bytes:
    """Return a request; operands are role, offset, size."""
    head = struct.pack(">QQII40x", register_0, register_1, len(parameter_block), len(operands))
    places = b"".join(struct.pack(">I4xQQ", *operand) for operand in operands)
    return head + places + parameter_block


def memory_file(size: int, seals: int = fcntl.F_SEAL_SHRINK) -> int:
    """Return a descriptor of fresh memory."""
    file = os.memfd_create("operands", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, size)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    return file


class Program(Plain):
    """A connection that issues instructions; `file` is its memory, kept open here."""

    def __init__(
        self, path: Path, session: str, file: int | None = None, more: str = "", kind: str = ""
    ) -> None:
        self.file = file
        kind = kind or "application/grpc+nnpa-frame"
        lines = f":path: {STREAM}\r\ncontent-type: {kind}\r\nnnpa-session: {session}\r\n{more}"
        super().__init__(path, lines, () if file is None else (file,))

    def put(self, offset: int, contents: npt.NDArray[np.uint8]) -> None:
        """Write to the memory."""
        assert self.file is not None
        os.pwrite(self.file, contents.tobytes(), offset)

    def get(self, offset: int, count: int) -> list[int]:
        """Return cells of the memory."""
        assert self.file is not None
        return list(struct.unpack(f">{count}H", os.pread(self.file, 2 * count, offset)))

    def ask_raw(self, raw: bytes) -> Ended:
        """Send a request and return its response."""
        self.socket.sendall(frame(0, raw))
        flag, payload = self.receive()
        assert flag == 0, payload
        register, code, interruption, address, stored, text, written = struct.unpack_from(
            ">QIIQIII28x", payload
        )
        assert len(payload) == 64 + stored + text
        return Ended(
            register,
            code,
            interruption,
            address,
            payload[64 : 64 + stored],
            payload[64 + stored :].decode(),
            written,
        )
