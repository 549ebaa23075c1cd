# SPDX-License-Identifier: Apache-2.0
"""Read and check the fault rules of clients.

Source: comments of FaultRule, nnpa/zdnn/v1/fault.proto.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from nnpa.zdnn.v1 import fault_pb2, operation_pb2
from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator import Status, find_machine, machine_names
from nnpa_emulator.function_codes import FunctionCode
from nnpa_emulator.machine import Machine
from nnpa_emulator.status import ZDNN_HW_ERROR

from nnpa_server.errors import CallRefused, invalid
from nnpa_server.sessions.tokens import require_machine

MAX_RULES = 1000
MAX_SECONDS = 600.0
_MAX_CHANGED = 10_000  # one by one, under the session's lock
_MAX_VALUE_CHARS = 64  # characters of a stranger's value that an error repeats
_ARMS: Mapping[str, int] = MappingProxyType(
    {
        field.name: field.number
        for field in operation_pb2.Operation.DESCRIPTOR.oneofs_by_name["operation"].fields
    }
)
_MADE_OF = {
    "init_ztensor_with_malloc": "allochelper_ztensor",
    "init_quantized_ztensor_with_malloc": "allochelper_ztensor",
}
COMPUTING = frozenset(name for name, number in _ARMS.items() if 20 <= number < 90)
# C functions of type void: nothing tells their caller.
_VOID = frozenset(("init_ztensor", "init_quantized_ztensor", "reset_ztensor"))
_ANSWERING = (
    COMPUTING
    | {name for name, number in _ARMS.items() if number < 20 and name not in _VOID}
    | {"refresh_nnpa_query_result"}
)
# Tensors whose sticks a function writes, by function; functions of COMPUTING write their outputs.
WRITING: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "transform_ztensor": ("ztensor",),
        "transform_ztensor_with_saturation": ("ztensor",),
        "transform_quantized_ztensor": ("ztensor",),
        "transform_origtensor": (),
        "reshape_ztensor": ("dest",),
    }
)
_EVERY = frozenset(_ARMS)
_FITS: Mapping[str, tuple[frozenset[str], str]] = MappingProxyType(
    {
        "status": (_ANSWERING, "a function that returns a zdnn_status"),
        "range_violation": (COMPUTING, "a function of arms 20 to 89"),
        "program_check": (_ANSWERING, "a function that returns a zdnn_status"),
        "flip_bits": (COMPUTING | WRITING.keys(), "a function that writes sticks or an array"),
        "delay": (_EVERY, "a function"),
        "lose_connection": (_EVERY, "a function"),
        "move": (_EVERY, "a function"),
        "note": (_EVERY, "a function"),
    }
)
INSTRUCTIONS = frozenset(code.name for code in FunctionCode)
"""Functions of the instruction, for rules on programs that issue it themselves."""
_FIT_INSTRUCTIONS = frozenset(
    ("status", "program_check", "delay", "lose_connection", "move", "note")
)
_KINDS = ("data", "access", "operation")
_MOMENTS = ("before", "after")
_DISTRIBUTIONS = ("fixed", "uniform", "normal", "exponential")


@dataclass(frozen=True, slots=True)
class Rule:
    """A checked rule.

    `operations` are the operations to which it and its effect apply. `machine` is the name of a
    model or "", `status` the number of a status effect, `target` the machine of a move.
    """

    message: fault_pb2.FaultRule
    effect: str
    operations: frozenset[str]
    machine: str = ""
    status: int = 0
    target: Machine | None = None


def read_rules(messages: Sequence[fault_pb2.FaultRule], allowed: bool) -> tuple[Rule, ...]:
    """Return the rules of a session; refuse rules if the server does not allow faults."""
    if not messages:
        return ()
    if not allowed:
        text = "session.fault_rules: the server was not started with --allow-faults"
        reason = wire.ERROR_REASON_FAULTS_NOT_ALLOWED
        raise CallRefused(reason, text, field="session.fault_rules", option="--allow-faults")
    if len(messages) > MAX_RULES:
        raise invalid("session.fault_rules", len(messages), f"at most {MAX_RULES} rules")
    return tuple(
        _read(message, f"session.fault_rules[{index}]") for index, message in enumerate(messages)
    )


def _read(message: fault_pb2.FaultRule, path: str) -> Rule:
    effect = message.WhichOneof("effect")
    if effect is None:
        raise invalid(f"{path}.effect", "absent", f"one of {', '.join(_FITS)}")
    _check_conditions(message, path)
    _check_effect(message, effect, path)
    moved = effect == "move"
    target = _machine(message.move.machine, f"{path}.move.machine") if moved else None
    if target is not None:
        require_machine(target.name)
    machine = message.machine and _machine(message.machine, f"{path}.machine").name
    status = _status(message.status, f"{path}.status") if effect == "status" else 0
    operations = _operations(message.operation, effect, status, f"{path}.operation")
    return Rule(message, effect, operations, machine, status, target)


def _operations(name: str, effect: str, status: int, path: str) -> frozenset[str]:
    fitting, limit = _FITS[effect]
    if effect in _FIT_INSTRUCTIONS and (not status or _ends_instructions(status)):
        fitting |= INSTRUCTIONS
    if not name:
        return fitting
    arm = name if name in INSTRUCTIONS else name.removeprefix("zdnn_")
    arm = _MADE_OF.get(arm, arm)
    if arm not in _ARMS and arm not in INSTRUCTIONS:
        limit = f"one of {', '.join(_ARMS)}, or a name of NnpaFunctionCode"
        raise invalid(path, repr(name[:_MAX_VALUE_CHARS]), limit)
    if arm not in fitting:
        raise invalid(path, name, f"{limit}, as {effect} needs it")
    return frozenset((arm,))


def _ends_instructions(status: int) -> bool:
    """Return True if an instruction can have a status: by a response code or a warning flag."""
    is_response = ZDNN_HW_ERROR < status <= ZDNN_HW_ERROR + 0xFFFF
    return is_response or status == Status.ZDNN_ELEMENT_RANGE_VIOLATION


def _machine(name: str, path: str) -> Machine:
    try:
        return find_machine(name)
    except KeyError:
        value = repr(name[:_MAX_VALUE_CHARS])
        raise invalid(path, value, f"one of {machine_names()}") from None


def _status(text: str, path: str) -> int:
    try:
        status = int(Status[text]) if text in Status.__members__ else int(text, 0)
    except ValueError:
        status = 0
    if not 0 < status <= 0xFFFFFFFF:
        limit = "a name of zdnn_status, or its number, that is not ZDNN_OK"
        raise invalid(path, repr(text[:_MAX_VALUE_CHARS]), limit)
    return status


def _check_conditions(message: fault_pb2.FaultRule, path: str) -> None:
    if len(message.shape) > 4:
        raise invalid(f"{path}.shape", f"{len(message.shape)} dimensions", "1 to 4 dimensions")
    likely = message.probability
    if message.HasField("probability") and not 0 <= likely <= 1:
        raise invalid(f"{path}.probability", likely, "0 to 1")


def _check_effect(message: fault_pb2.FaultRule, effect: str, path: str) -> None:
    value: object = getattr(message, effect)
    path = f"{path}.{effect}"
    match effect:
        case "range_violation" | "flip_bits":
            if not 1 <= int(getattr(message, effect)) <= _MAX_CHANGED:
                raise invalid(path, value, f"1 to {_MAX_CHANGED}")
        case "program_check":
            _require_word(path, message.program_check, _KINDS)
        case "lose_connection":
            _require_word(path, message.lose_connection, _MOMENTS)
        case "note":
            if not message.note:
                raise invalid(path, "false", "true, or another effect")
        case "delay":
            _check_delay(message.delay, path)
        case _:
            pass
    if message.output_written and effect != "status":
        raise invalid(f"{path.rpartition('.')[0]}.output_written", "true", "set with status only")


def _check_delay(delay: fault_pb2.FaultDelay, path: str) -> None:
    _require_word(f"{path}.distribution", delay.distribution or "fixed", _DISTRIBUTIONS)
    for name, value in (("seconds", delay.seconds), ("spread", delay.spread)):
        if math.isnan(value) or not 0 <= value <= MAX_SECONDS:
            raise invalid(f"{path}.{name}", value, f"0 to {MAX_SECONDS:g}")


def _require_word(path: str, value: str, words: tuple[str, ...]) -> None:
    if value not in words:
        raise invalid(path, repr(value[:_MAX_VALUE_CHARS]), f"one of {', '.join(words)}")
