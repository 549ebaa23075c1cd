# SPDX-License-Identifier: Apache-2.0
"""Function specific parameters: how arguments of a C function become fields of the instruction."""

from nnpa_emulator.dlfloat import scalar_to_dlfloat
from nnpa_emulator.instruction import FieldRule, require_vector_nnp
from nnpa_emulator.machine import Guest


def dlfloat_field(guest: Guest, value: float | None) -> int:
    """Convert a C float argument to the DLFLOAT16 code of a function specific parameter.

    NULL and values that compare equal to 0 are 0x0000 without conversion; any other value needs the
    conversion instruction, whose absence ends the program.
    Source: behaviour of the zDNN 1.2.0 library; zDNN API Reference 1.2.0, zdnn_relu (NULL).
    """
    if value is None or value == 0:
        return 0
    require_vector_nnp(guest)
    return scalar_to_dlfloat(value)


def bits_field(width: int) -> FieldRule:
    """Return a rule that keeps the low `width` bits, as the parameter block does."""

    def truncate(_guest: Guest, value: int) -> int:
        return int(value) & (1 << width) - 1

    return truncate
