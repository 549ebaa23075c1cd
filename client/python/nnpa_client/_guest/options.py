# SPDX-License-Identifier: Apache-2.0
"""Options of a session, from Python's words to the wire's."""

from typing import Final, Literal

from nnpa.zdnn.v1 import accelerator_pb2
from nnpa.zdnn.v1.accelerator_pb2 import MachineSpec

from nnpa_client._guest.custom_machine import machine_spec
from nnpa_client._server.transport import Transport
from nnpa_client._values.fields import enum_of_word, set_field

__tracebackhide__ = True  # pytest shows the line that called, not these

ProgramCheckOption = Literal["abort", "status"]
LogLevelOption = Literal["off", "fatal", "error", "warn", "info", "debug", "trace"]
NumericsOption = Literal["exact", "jitter"]
AccumulateOption = Literal["fp32", "fp64"]

_FIELDS: Final = {"program_check": "program_check_action", "library": "library_version"}
"""The fields whose names are not those of their options."""


def session_options(
    transport: Transport, machine: str | MachineSpec | None, **chosen: object
) -> tuple[accelerator_pb2.Session, list[str]]:
    """Return the session message of the options, and the names of its fields that they set.

    An option that is None is left out. A machine is a name, JSON, or a file: `read_machine`.
    """
    session = accelerator_pb2.Session()
    fields: list[str] = []
    if machine is not None:
        session.machine_spec.CopyFrom(machine_spec(transport, machine))
        fields.append("machine_spec")
    for option, value in chosen.items():
        if value is None:
            continue
        field = _FIELDS.get(option, option)
        enum = session.DESCRIPTOR.fields_by_name[field].enum_type
        number = value if enum is None else enum_of_word(enum, option, value)
        set_field(session, field, option, number)
        fields.append(field)
    return session, fields
