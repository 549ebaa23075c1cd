# SPDX-License-Identifier: Apache-2.0
"""Options of a session, from Python's words to the wire's."""

from typing import Any, Final, Literal

from nnpa.zdnn.v1 import accelerator_pb2
from nnpa.zdnn.v1.accelerator_pb2 import (
    Accumulate,
    GetMachineRequest,
    LogLevel,
    MachineSpec,
    Numerics,
    ProgramCheckAction,
)

from nnpa_client._methods import GET_MACHINE
from nnpa_client._transport import Transport

ProgramCheckOption = Literal["abort", "status"]
LogLevelOption = Literal["off", "fatal", "error", "warn", "info", "debug", "trace"]
NumericsOption = Literal["exact", "jitter"]
AccumulateOption = Literal["fp32", "fp64"]

_ENUMS: Final[dict[str, tuple[str, Any, str]]] = {
    "program_check": ("program_check_action", ProgramCheckAction, "PROGRAM_CHECK_ACTION_"),
    "log_level": ("log_level", LogLevel, "LOG_LEVEL_"),
    "numerics": ("numerics", Numerics, "NUMERICS_"),
    "accumulate": ("accumulate", Accumulate, "ACCUMULATE_"),
}


def session_options(
    transport: Transport, machine: str | MachineSpec | None, **chosen: Any
) -> tuple[accelerator_pb2.Session, list[str]]:
    """Return the session message that options ask for, and the fields that they set.

    An option that is None is left out. A machine's name is looked up at the server.
    """
    session = accelerator_pb2.Session()
    fields: list[str] = []
    if machine is not None:
        session.machine_spec.CopyFrom(_spec(transport, machine))
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


def _spec(transport: Transport, machine: str | MachineSpec) -> MachineSpec:
    if isinstance(machine, MachineSpec):
        return machine
    answer = transport.unary(GET_MACHINE, GetMachineRequest(name=f"machines/{machine}"))
    return MachineSpec(model=answer.model)


def _number(option: str, value: str, enum: Any, prefix: str) -> int:
    words = [
        name.removeprefix(prefix).lower()
        for name in enum.keys()  # noqa: SIM118 - an enum wrapper is no mapping
        if not name.endswith("UNSPECIFIED")
    ]
    if value not in words:
        raise ValueError(f"{option}: {value!r}, expected one of {', '.join(words)}")
    return int(enum.Value(prefix + value.upper()))
