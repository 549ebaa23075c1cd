# SPDX-License-Identifier: Apache-2.0
"""Options of a session, from Python's words to the wire's."""

from typing import Final, Literal

from google.protobuf.descriptor import EnumDescriptor
from nnpa.zdnn.v1 import accelerator_pb2
from nnpa.zdnn.v1.accelerator_pb2 import (
    Accumulate,
    LogLevel,
    MachineSpec,
    Numerics,
    ProgramCheckAction,
)

from nnpa_client._guest.custom_machine import machine_spec
from nnpa_client._server.transport import Transport

__tracebackhide__ = True  # pytest shows the line that called, not these

ProgramCheckOption = Literal["abort", "status"]
LogLevelOption = Literal["off", "fatal", "error", "warn", "info", "debug", "trace"]
NumericsOption = Literal["exact", "jitter"]
AccumulateOption = Literal["fp32", "fp64"]

_ENUMS: Final[dict[str, tuple[str, EnumDescriptor, str]]] = {
    "program_check": (
        "program_check_action",
        ProgramCheckAction.DESCRIPTOR,
        "PROGRAM_CHECK_ACTION_",
    ),
    "log_level": ("log_level", LogLevel.DESCRIPTOR, "LOG_LEVEL_"),
    "numerics": ("numerics", Numerics.DESCRIPTOR, "NUMERICS_"),
    "accumulate": ("accumulate", Accumulate.DESCRIPTOR, "ACCUMULATE_"),
}


def session_options(
    transport: Transport, machine: str | MachineSpec | None, **chosen: object
) -> tuple[accelerator_pb2.Session, list[str]]:
    """Return the session message that options ask for, and the fields that they set.

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
        field, number = option, value
        if option in _ENUMS:
            field, enum, prefix = _ENUMS[option]
            number = _number(option, value, enum, prefix)
        setattr(session, field, number)
        fields.append(field)
    return session, fields


def _number(option: str, word: object, enum: EnumDescriptor, prefix: str) -> int:
    numbers = {value.name.removeprefix(prefix).lower(): value.number for value in enum.values}
    del numbers["unspecified"]
    if not isinstance(word, str) or word not in numbers:
        raise ValueError(f"{option}: {word!r}, expected one of {', '.join(numbers)}")
    return numbers[word]
