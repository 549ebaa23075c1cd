# SPDX-License-Identifier: Apache-2.0
"""Function specific parameters: how arguments of a C function become fields of the instruction."""

import inspect
from collections.abc import Iterable, Mapping

from nnpa_emulator.dlfloat import scalar_to_dlfloat
from nnpa_emulator.instruction import FieldRule, require_vector_nnp
from nnpa_emulator.machine import Guest
from nnpa_emulator.parameter_block import Field, Form

_FLOATS = (float, float | None)


def field_rules(
    forms: Iterable[Form], parameters: Mapping[str, inspect.Parameter]
) -> Mapping[str, FieldRule]:
    """Return the rules by which an operation's parameters become fields of the block.

    A float becomes a code of DLFLOAT16; any other number keeps the low bits that its field has.
    """
    fields = {field.name: field for form in forms for field in form.fields}
    return {
        name: dlfloat_field if parameters[name].annotation in _FLOATS else _bits_rule(field)
        for name, field in fields.items()
        if name in parameters
    }


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


def _bits_rule(field: Field) -> FieldRule:
    def truncate(_guest: Guest, value: int) -> int:
        return field.fit(int(value))

    return truncate
