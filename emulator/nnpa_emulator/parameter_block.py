# SPDX-License-Identifier: Apache-2.0
"""The parameter block of the NNPA instruction: 4096 big-endian bytes that a program lays out.

    0    version: the format, 0 or 1           192  input tensor descriptors 1 to 3
    56   address of the save area              384  function specific parameters 1 to 16
    64   output tensor descriptors 1 and 2     512  continuation state

A tensor descriptor is 32 bytes: data layout format, data type, six reserved bytes, the index sizes
of dimensions 4 to 1 in words, the address of the sticks. Functions take a parameter from the right
of its word, and from no more bits than it has.
Sources: nnpa.h of zDNN 1.2.0; zDNN API Reference 1.2.0, "NNPA function codes".
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from nnpa_emulator.ztensor import DataLayouts, TensorDesc

BLOCK_BYTES = 4096
ALIGNMENT = 8  # of the block
SAVE_AREA_BYTES = 8192
_VERSION, _SAVE_AREA = struct.Struct(">H"), struct.Struct(">Q")
_DESCRIPTOR = struct.Struct(">BB6x4IQ")
_PARAMETERS = struct.Struct(">16I")
_SAVE_AREA_AT, _PARAMETERS_AT = 56, 384


class Role(IntEnum):
    """Storage that a parameter block names."""

    INPUT_1 = 1
    INPUT_2 = 2
    INPUT_3 = 3
    OUTPUT_1 = 17
    OUTPUT_2 = 18
    SAVE_AREA = 33


INPUTS = (Role.INPUT_1, Role.INPUT_2, Role.INPUT_3)
OUTPUTS = (Role.OUTPUT_1, Role.OUTPUT_2)
_PLACES = {Role.OUTPUT_1: 64, Role.OUTPUT_2: 96} | {
    role: 192 + 32 * number for number, role in enumerate(INPUTS)
}


@dataclass(frozen=True, slots=True)
class Field:
    """A function specific parameter: its word, counted from 1, and its bits in that word.

    `right` is the number of bits to the right of it.
    """

    name: str
    word: int
    bits: int
    right: int = 0
    signed: bool = False

    def read(self, words: tuple[int, ...]) -> int:
        """Return the parameter."""
        return self.fit(words[self.word - 1] >> self.right)

    def fit(self, value: int) -> int:
        """Return a number cut to the bits of the field."""
        low = value & (1 << self.bits) - 1
        return low - (1 << self.bits) if self.signed and low >> (self.bits - 1) else low


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a function from a format of the block on: operands in order, parameters.

    `operation` is the name of the operation that computes it.
    """

    parmblk_format: int
    operation: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    save_area: bool = False
    fields: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class ParameterBlock:
    """A decoded parameter block: every part that is read before the function completes.

    `addresses` has the addresses of the tensors; `descriptors` have the layout NHWC: the machine
    knows no layouts of users.
    """

    version: int
    descriptors: Mapping[Role, TensorDesc]
    addresses: Mapping[Role, int]
    words: tuple[int, ...] = (0,) * 16

    @property
    def save_area(self) -> int:
        """The address of the save area, 0 for none."""
        return self.addresses.get(Role.SAVE_AREA, 0)


def decode_block(block: bytes | memoryview) -> ParameterBlock:
    """Read a parameter block."""
    descriptors, addresses = dict[Role, TensorDesc](), dict[Role, int]()
    for role, place in _PLACES.items():
        form, kind, d4, d3, d2, d1, address = _DESCRIPTOR.unpack_from(block, place)
        descriptors[role] = TensorDesc(DataLayouts.ZDNN_NHWC, form, kind, d4, d3, d2, d1)
        addresses[role] = address
    (addresses[Role.SAVE_AREA],) = _SAVE_AREA.unpack_from(block, _SAVE_AREA_AT)
    (version,) = _VERSION.unpack_from(block)
    return ParameterBlock(
        version, descriptors, addresses, _PARAMETERS.unpack_from(block, _PARAMETERS_AT)
    )
