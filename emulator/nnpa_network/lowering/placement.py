# SPDX-License-Identifier: Apache-2.0
"""Where the nodes of a model run: the report, the baseline, and device placement files.

Source of the file format: onnx-mlir, NNPA device placement (--save-device-placement-file,
--load-device-placement-file).
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
_PLACEMENT_OF_BASELINE = re.compile(r"# .*?\bplacement (\w+): ")
HEAVY = frozenset(
    ("Attention", "Conv", "ConvInteger", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM",
     "MatMul", "MatMulInteger", "QLinearConv", "QLinearMatMul", "RNN")
)  # fmt: skip
"""Operators that make products of matrices: left on the host they decide the run time."""


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
    """Where the nodes went, by which of PLACEMENTS.

    `heavy` are the rows of matrix products that the host is left with.
    """

    machine: str
    placement: str
    rows: tuple[Row, ...]

    @property
    def heavy(self) -> tuple[Row, ...]:
        """Return the matrix products on the host."""
        return tuple(row for row in self.rows if row.device == HOST and row.op_type in HEAVY)

    def count(self, device: str) -> int:
        """Return how many nodes a device has."""
        return sum(row.device == device for row in self.rows)

    @property
    def headline(self) -> str:
        """Say it in one line, heavy operators on the host first."""
        counts = (
            f"placement {self.placement}: {self.count(ACCELERATOR)} of {len(self.rows)} nodes on "
            f"{self.machine}, {self.count(HOST)} on the host, {self.count(FOLDED)} folded"
        )
        if not self.heavy:
            return counts
        names = ", ".join(f"{row.node} ({row.op_type}: {row.reason})" for row in self.heavy)
        return f"HEAVY ON THE HOST: {names}; {counts}"


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
        raise ModelRefused("the device placement file is not JSON") from error
    entries = _fields(content).get("device_placement")
    if not isinstance(entries, list):
        raise ModelRefused("the device placement file has no list device_placement")
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
    refusal = ModelRefused(f"{where}.{name} is {text!r}, no pattern")
    if not isinstance(text, str):
        raise refusal
    try:
        re.compile(text)
    except re.error as error:
        raise refusal from error
    return text


def write_placement(report: Report) -> str:
    """Return a device placement file that puts every node where it is now."""
    entries = [
        {
            "device": "nnpa" if row.device == ACCELERATOR else "cpu",
            "node_type": f"onnx.{row.op_type}",
            "onnx_node_name": re.escape(row.node),
        }
        for row in report.rows
        if row.device != FOLDED
    ]
    return json.dumps({"device_placement": entries}, indent=2) + "\n"


def write_baseline(report: Report) -> str:
    """Return the placement as text to keep: one line per node, to be read in a diff."""
    lines = [f"# {report.machine}: {report.headline}"]
    for row in report.rows:
        what = " ".join(row.functions) if row.device == ACCELERATOR else row.reason
        lines.append(f"{row.node}\t{row.op_type}\t{row.device}\t{what}")
    return "\n".join(lines) + "\n"


def compare_baseline(report: Report, baseline: str) -> tuple[str, ...]:
    """Return what moved since a baseline was written, one sentence per node; empty: nothing.

    A baseline of another placement is one sentence, for it is no baseline.
    """
    written = _PLACEMENT_OF_BASELINE.match(baseline)
    if written and written[1] != report.placement:
        text = f"the baseline is of placement {written[1]}, the report of {report.placement}"
        return (text,)
    before = {
        fields[0]: fields[2]
        for fields in (line.split("\t") for line in baseline.splitlines())
        if len(fields) >= 3
    }
    now = {row.node: row.device for row in report.rows}
    moved = [
        f"{name}: {before[name]} before, {now[name]} now"
        for name in before
        if name in now and before[name] != now[name]
    ]
    gone = [f"{name}: {before[name]} before, gone now" for name in before if name not in now]
    new = [f"{name}: new, {now[name]}" for name in now if name not in before]
    return (*moved, *gone, *new)
