# SPDX-License-Identifier: Apache-2.0
"""Fault rules from Python keywords, and from a file.

This module checks their form; the server defines their meaning.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, TypedDict

from google.protobuf.json_format import ParseDict, ParseError
from nnpa.zdnn.v1.fault_pb2 import FaultDelay, FaultMove, FaultRule

from nnpa_client._values.fields import Json, message_of
from nnpa_client.status import Status

_MAX_BYTES = 1 << 20
_SCHEMA = "faults.schema.json"


class Rule(TypedDict, total=False):
    """The fields of `FaultRule` except its operation, in Python types.

    `status` is a `Status`, a number or a name, `delay` seconds or a FaultDelay, `move` the name of
    a machine or a FaultMove.
    """

    machine: str
    shape: Sequence[int]
    call: int
    nth: int
    every: int
    probability: float
    seed: int
    status: int | str
    output_written: bool
    range_violation: int
    program_check: str
    flip_bits: int
    delay: float | FaultDelay
    lose_connection: str
    move: str | FaultMove
    note: bool


def make_rule(
    operation: Callable[..., object] | str | None, words: Mapping[str, object]
) -> FaultRule:
    """Return the rule that keywords describe.

    `operation` is a function of `nnpa_client.zdnn`, the name of a zDNN function, or None for any.
    Raises ValueError for an unknown field or a value that the field does not take.
    """
    fields: dict[str, object] = {"operation": _name(operation)}
    for field, value in words.items():
        if field not in FaultRule.DESCRIPTOR.fields_by_name or field == "operation":
            raise ValueError(f"{field}: unknown, expected one of {_fields()}")
        fields[field] = _field_value(field, value)
    try:
        return message_of(FaultRule, fields)
    except TypeError as error:
        raise ValueError(str(error)) from error


def _fields() -> str:
    return ", ".join(field.name for field in FaultRule.DESCRIPTOR.fields)


def _name(operation: Callable[..., object] | str | None) -> str:
    if operation is None or isinstance(operation, str):
        return operation or ""
    name: str = getattr(operation, "__name__", repr(operation))
    return f"zdnn_{name}"


def _field_value(field: str, value: object) -> object:
    """Return a keyword's value in the type of the message's field."""
    match field, value:
        case "status", int():
            return status_text(value)
        case "delay", int() | float():
            return FaultDelay(seconds=value)
        case "move", str():
            return FaultMove(machine=value)
        case "shape", tuple():
            return list(value)
        case _:
            return value


def status_text(status: int) -> str:
    """Return a status as text for rules: zDNN's name, else the number."""
    return Status(status).name if status in set(Status) else f"0x{status:08X}"


def read_rules(path: Path) -> list[FaultRule]:
    """Return the rules of a YAML file, whose form `schema` describes.

    Raises ValueError, which names the file and the rule, for a file of another form.
    """
    from yaml import YAMLError, safe_load  # 30 ms, and only needed here

    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise ValueError(f"{path}: {size} bytes, at most {_MAX_BYTES}")
    try:
        document: Json = safe_load(path.read_text(encoding="utf-8"))
    except (YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: no YAML: {' '.join(str(error).split())}") from error
    keys = document if isinstance(document, dict) and len(document) == 1 else {}
    rules = keys.get("rules")
    if not isinstance(rules, list):
        raise ValueError(f"{path}: must be a mapping with one key, rules, a list")
    return [_read(rule, f"{path}: rules[{index}]") for index, rule in enumerate(rules)]


def _read(rule: Json, place: str) -> FaultRule:
    if not isinstance(rule, dict):
        raise ValueError(f"{place}: {rule!r}, must be a mapping")
    for field in rule:
        if field not in FaultRule.DESCRIPTOR.fields_by_name:
            raise ValueError(f"{place}.{field}: unknown, must be one of {_fields()}")
    words, status = dict(rule), rule.get("status")
    if isinstance(status, int):
        words["status"] = status_text(status)
    try:
        return ParseDict(words, FaultRule())
    except ParseError as error:
        raise ValueError(f"{place}: {error}") from error


def schema() -> dict[str, Any]:
    """Return the JSON schema of a rules file."""
    text = files("nnpa_client.faults").joinpath(_SCHEMA).read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document
