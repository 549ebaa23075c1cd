# SPDX-License-Identifier: Apache-2.0
"""Where the nodes of a model run: the report, and device placement files.

Source of the file format: onnx-mlir, NNPA device placement (--load-device-placement-file).
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from nnpa_network.program import ModelRefused, Node, Program

ACCELERATOR, HOST, FOLDED = "accelerator", "host", "folded"
"""Devices of a node; `folded` is computed at import, or nothing is left to do."""

_FILE_DEVICES = {"nnpa": ACCELERATOR, "cpu": HOST, "": ""}


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of a placement file: patterns of operator ("onnx.Relu") and node name, device."""

    node_type: str
    node_name: str
    device: str


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report."""

    node: str
    op_type: str
    device: str
    functions: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """Where the nodes went, by which of PLACEMENTS."""

    machine: str
    placement: str
    rows: tuple[Row, ...]


def title(node: Node) -> str:
    """Return a node's name, or its operator and number where it has none."""
    return node.name or f"{node.op_type}_{node.index}"


def placement_report(program: Program) -> Report:
    """Return where the nodes of a program run, and why not on the accelerator."""
    rows = tuple(
        Row(title(node), node.op_type, node.device, node.functions, node.reason)
        for node in program.nodes
    )
    return Report(program.machine, program.placement, rows)


def ruled(rules: Sequence[Rule], op_type: str, name: str) -> str:
    """Return the device of the first rule that matches, "" without one."""
    for rule in rules:
        if re.fullmatch(rule.node_type, f"onnx.{op_type}") and re.fullmatch(rule.node_name, name):
            return rule.device
    return ""


def read_placement(text: str) -> tuple[Rule, ...]:
    """Read a device placement file; raise `ModelRefused` naming the entry that is wrong."""
    try:
        content: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelRefused(
            "the device placement file is not JSON, must be a JSON object"
        ) from error
    entries = _fields(content).get("device_placement")
    if not isinstance(entries, list):
        text = "device_placement is absent or no list, must be a list of the placement file"
        raise ModelRefused(text)
    return tuple(_rule(index, entry) for index, entry in enumerate(cast(list[object], entries)))


def _fields(content: object) -> dict[str, object]:
    """Return the members of a JSON object, none for any other JSON value."""
    return cast(dict[str, object], content) if isinstance(content, dict) else {}


def _rule(index: int, entry: object) -> Rule:
    where, fields = f"device_placement[{index}]", _fields(entry)
    device = fields.get("device")
    if not isinstance(device, str) or device not in _FILE_DEVICES:
        raise ModelRefused(f"{where}.device is {device!r}, must be nnpa, cpu or empty")
    node_type, node_name = (
        _pattern(where, name, fields.get(name, ".*")) for name in ("node_type", "onnx_node_name")
    )
    return Rule(node_type, node_name, _FILE_DEVICES[device])


def _pattern(where: str, name: str, text: object) -> str:
    refusal = ModelRefused(f"{where}.{name} is {text!r}, must be a regular expression")
    if not isinstance(text, str):
        raise refusal
    try:
        re.compile(text)
    except re.error as error:
        raise refusal from error
    return text
