# SPDX-License-Identifier: Apache-2.0
"""The view Traces: one trace, or two side by side, with lint findings and differences."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from nnpa.zdnn.v1.accelerator_pb2 import Session
from nnpa.zdnn.v1.trace_pb2 import (
    CONTENTS_ROLE_ARRAY_IN,
    CONTENTS_ROLE_ARRAY_OUT,
    ContentsRole,
    TracedContents,
    TracedInstruction,
)
from nnpa_client._values.display import counted
from nnpa_client._values.ulp import values_of
from nnpa_client.trace.history import Trace, TracedOperation
from nnpa_page import Query, View, Visitor, number

from nnpa_tools.doctor.lint import Finding, lint
from nnpa_tools.traces.diff import Comparison, Difference, diff, is_dlfloat, pairs, structure_of
from nnpa_tools.traces.instructions import is_done
from nnpa_tools.traces.machine_times import estimated
from nnpa_tools.traces.show import (
    cells,
    compared,
    headings,
    instruction_cells,
    operand_data,
    summary,
)
from nnpa_tools.traces.values import array_elements, stick_elements

MAX_ROWS = 500
"""Rows of an answer."""
_MAX_ELEMENTS = 8  # of recorded contents
_NO_OPERATION = "no operation"
_CELLS = ("index", "begins", "place", "name", "tensors", "takes", "status")


@dataclass(slots=True)
class _Shown:
    """A trace, the name of its file, and its rows: the program's operations, then instructions.

    `row_of` has the row of an operation by its index in the trace. Lint findings, differences and
    partners are kept by row; a partner is the row of the other trace that a row is compared with.
    """

    name: str
    trace: Trace
    rows: Sequence[TracedOperation | TracedInstruction]
    row_of: Mapping[int, int]
    report: Sequence[Finding]
    findings: Mapping[int, Sequence[Finding]]
    differences: dict[int, list[Difference]] = field(default_factory=dict[int, list[Difference]])
    partners: dict[int, int] = field(default_factory=dict[int, int])


class TraceViews:
    """Answers requests about one trace, or about two and their differences."""

    def __init__(self, traces: Iterable[tuple[str, Trace]]) -> None:
        self._shown = [_shown(name, trace) for name, trace in traces]
        self._comparison = _compare(*self._shown) if len(self._shown) > 1 else None

    @property
    def views(self) -> Mapping[str, View]:
        """The views by name."""
        return {"traces": self.traces, "rows": self.rows, "operation": self.operation}

    def traces(self, _visitor: Visitor, _query: Query) -> Mapping[str, object]:
        """Return a summary of each trace with its lint findings, and how two traces compare."""
        return {
            "traces": [_summary(shown) for shown in self._shown],
            "compared": [] if self._comparison is None else _compared(self._comparison),
        }

    def rows(self, _visitor: Visitor, query: Query) -> Sequence[Mapping[str, object]]:
        """Return rows of trace `trace` from row `from` on, at most `MAX_ROWS`."""
        shown = self._find(query)
        first = number("from", query.get("from", "0"), 0, len(shown.rows))
        return [_row(shown, row) for row in range(first, min(first + MAX_ROWS, len(shown.rows)))]

    def operation(self, _visitor: Visitor, query: Query) -> Mapping[str, object]:
        """Return row `row` of trace `trace` in full, and the row of its partner, if any."""
        shown = self._find(query)
        row = number("row", query.get("row", ""), 0, len(shown.rows) - 1)
        timed = shown.rows[row]
        return {
            **_line(shown, row),
            **(_describe(shown.trace, timed) if isinstance(timed, TracedOperation)
               else _describe_instruction(timed)),
            "findings": [f"{entry.rule}: {entry.text}" for entry in shown.findings.get(row, ())],
            "differences": [str(entry) for entry in shown.differences.get(row, ())],
            "partner": shown.partners.get(row),
        }  # fmt: skip

    def _find(self, query: Query) -> _Shown:
        return self._shown[number("trace", query.get("trace", "0"), 0, len(self._shown) - 1)]


def _shown(name: str, trace: Trace) -> _Shown:
    rows = [operation for operation in trace.operations if not operation.is_housekeeping]
    row_of = {operation.index: row for row, operation in enumerate(rows)}
    report = lint(trace).findings
    findings: dict[int, list[Finding]] = {}
    for finding in report:
        for index in finding.operations:
            if index in row_of:
                findings.setdefault(row_of[index], []).append(finding)
    return _Shown(name, trace, [*rows, *trace.instructions], row_of, report, findings)


def _compare(left: _Shown, right: _Shown) -> Comparison:
    """Compare two traces, and set their partners and differences."""
    for a, b in pairs(left.trace, right.trace):
        if a is not None and b is not None:
            left.partners[left.row_of[a.index]] = right.row_of[b.index]
            right.partners[right.row_of[b.index]] = left.row_of[a.index]
    comparison = diff(left.trace, right.trace)
    for difference in comparison.differences:
        if difference.left == _NO_OPERATION:
            right.differences.setdefault(right.row_of[difference.index], []).append(difference)
            continue
        row = left.row_of[difference.index]
        left.differences.setdefault(row, []).append(difference)
        if row in left.partners:
            right.differences.setdefault(left.partners[row], []).append(difference)
    return comparison


def _compared(comparison: Comparison) -> Sequence[str]:
    total = len(comparison.differences)
    lines = [
        counted(total, "difference") if total else "no difference",
        f"compared: {compared(comparison)}",
    ]
    if comparison.unknown:
        values = counted(comparison.unknown, "output")
        lines.append(f"not compared: values of {values}, not in both traces")
    return lines


def _summary(shown: _Shown) -> Mapping[str, object]:
    trace = shown.trace
    places = [
        (finding, [shown.row_of[index] for index in finding.operations if index in shown.row_of])
        for finding in shown.report
    ]
    return {
        "name": shown.name,
        "title": f"{Path(shown.name).name} on {_machines(trace)}",
        "headings": [str(line) for line in headings(trace)],
        "summary": summary(trace),
        "rows": len(shown.rows),
        "begin_ns": min((timed.start_ns for timed in shown.rows), default=0),
        "end_ns": max((timed.start_ns + timed.duration_ns for timed in shown.rows), default=0),
        "findings": [{"text": f"{finding.rule}: {finding.text}", "row": min(rows)}
                     for finding, rows in places if rows],
        "differences": sorted(shown.differences),
    }  # fmt: skip


def _machines(trace: Trace) -> str:
    """Return the machines of a trace's sessions, each once."""
    machines = dict.fromkeys(map(_machine, trace.sessions.values()))
    return " and ".join(machines) or "no machine"


def _machine(session: Session) -> str:
    name = session.machine.name.removeprefix("machines/") or "custom machine"
    title = session.machine.display_name
    return f"{name} ({title})" if title else name


def _row(shown: _Shown, row: int) -> Mapping[str, object]:
    """Return a line of the timeline; `start_ns` counts from the beginning of the trace."""
    timed = shown.rows[row]
    return {
        **_line(shown, row),
        "start_ns": timed.start_ns,
        "duration_ns": timed.duration_ns,
        "valid": timed.is_valid if isinstance(timed, TracedOperation) else is_done(timed),
        "findings": [entry.rule for entry in shown.findings.get(row, ())],
        "differences": [_mark(entry) for entry in shown.differences.get(row, ())],
    }


def _line(shown: _Shown, row: int) -> Mapping[str, str]:
    """Return the texts of a row by name: `begins` in milliseconds, `takes` in microseconds."""
    timed = shown.rows[row]
    if isinstance(timed, TracedOperation):
        place, texts = "call", cells(timed)
    else:
        place, texts = "session", instruction_cells(row - len(shown.row_of), timed)
    line = dict(zip(_CELLS, texts, strict=True))
    return {**line, "place": f"{place} {line['place']}"}


def _mark(difference: Difference) -> str:
    """Return a difference in a word or two."""
    if difference.kind != "values":
        return difference.kind
    if difference.values is None:
        return "bytes"
    return "NINF" if difference.values.ulp is None else f"{difference.values.ulp} ulp"


def _describe(trace: Trace, operation: TracedOperation) -> Mapping[str, object]:
    interval = estimated(trace, operation)
    return {
        "name": f"zdnn_{operation.name}",
        "status": operation.status,
        "why": _why(trace, operation),
        "estimate": "" if interval is None else interval.graded,
        "operands": [operand_data(operand) for operand in operation.operands],
        "contents": [_contents(trace, operation, held) for held in operation.contents],
        "message": _as_data(operation.message),
        "answer": _as_data(operation.result),
    }


def _contents(trace: Trace, operation: TracedOperation, held: TracedContents) -> str:
    """Return contents in a line: their operand and role, size, and first elements if recorded."""
    role = ContentsRole.Name(held.role) if held.role in ContentsRole.values() else str(held.role)
    title = f"{held.operand} {role.removeprefix('CONTENTS_ROLE_').lower().replace('_', ' ')}"
    recorded = trace.bytes_of(held)
    if recorded is None:
        return f"{title}: {held.size:,} bytes, not recorded"
    is_array = held.role in (CONTENTS_ROLE_ARRAY_IN, CONTENTS_ROLE_ARRAY_OUT)
    structure = structure_of(operation, held, is_array)
    elements = (array_elements if is_array else stick_elements)(recorded, structure)
    first = elements.flat[:_MAX_ELEMENTS]
    if not is_array and is_dlfloat(structure):
        first = values_of(first.astype(np.int64))
    more = " ..." if elements.size > _MAX_ELEMENTS else ""
    texts = " ".join(f"{float(element):g}" for element in first)
    return f"{title}: {held.size:,} bytes: {texts}{more}"


def _why(trace: Trace, operation: TracedOperation) -> str:
    """Return the sentence of a refusal, or of the error that ended the call."""
    if operation.result is not None:
        return operation.result.refusal.text
    return trace.calls[operation.call].record.error.message if operation.failure else ""


def _describe_instruction(instruction: TracedInstruction) -> Mapping[str, object]:
    return {
        "why": instruction.refusal.text,
        "estimate": "",
        "operands": [],
        "contents": [],
        "message": _as_data(instruction),
        "answer": None,
    }


def _as_data(message: Message | None) -> Mapping[str, object] | None:
    return None if message is None else MessageToDict(message, preserving_proto_field_name=True)
