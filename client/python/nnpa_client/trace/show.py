# SPDX-License-Identifier: Apache-2.0
"""Traces for people and for programs: a timeline, and the same as plain data."""

from typing import Any

from google.protobuf.json_format import MessageToDict
from nnpa.zdnn.v1.tensor_pb2 import DataTypes, Ztensor
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nnpa_client._wire import dims, layout_shape
from nnpa_client.trace.diff import Comparison, Difference
from nnpa_client.trace.history import Operand, Trace, TracedOperation
from nnpa_client.trace.lint import Report

_MAX_DIFFERENCES = 20


def timeline(trace: Trace, everything: bool = False) -> RenderableType:
    """Return the table of a trace's operations; housekeeping of clients only with `everything`."""
    table = Table(box=box.SIMPLE)
    for heading in ("#", "ms", "call", "operation", "ztensors", "us", "status"):
        number = heading in ("#", "ms", "call", "us")
        whole = heading != "ztensors"  # which may take several lines
        table.add_column(heading, justify="right" if number else "left", no_wrap=whole)
    for operation in trace.operations:
        if everything or not operation.is_housekeeping:
            table.add_row(*_cells(operation), style=None if operation.is_valid else "red")
    return Group(*headings(trace), table, Text(_summary(trace)))


def headings(trace: Trace) -> list[Text]:
    """Return a line for each session, and what is missing of the trace."""
    lines = [
        Text(f"session {number}: {_where(session)}") for number, session in trace.sessions.items()
    ]
    if trace.ending:
        lines.append(Text(f"This trace is not complete: {trace.ending}.", style="yellow"))
    return lines


def _where(options: Any) -> str:
    machine = options.machine.name.removeprefix("machines/") or "custom machine"
    precheck = ", precheck" if options.precheck else ""
    return f"{machine}, zDNN {options.library_version}{precheck}"


def _summary(trace: Trace) -> str:
    made = sum(not operation.is_housekeeping for operation in trace.operations)
    took = sum(one.duration_ns for one in trace.operations) / 1e6
    contents = "with" if trace.start.contents else "without"
    return (
        f"{made} operations in {len(trace.calls)} calls, {took:.1f} ms on the server, "
        f"{contents} contents"
    )


def _cells(one: TracedOperation) -> tuple[str, ...]:
    flags = one.result.fp_flags if one.result else 0
    status = one.status.removeprefix("ZDNN_") + (f" flags 0x{flags:02X}" if flags else "")
    inputs = [shape(each) for each in one.operands if not each.is_output]
    outputs = [shape(each) for each in one.operands if each.is_output]
    arrow = " > " if outputs else ""
    return (
        str(one.index),
        f"{one.start_ns / 1e6:.2f}",
        str(one.call),
        one.name,
        " ".join(inputs) + arrow + " ".join(outputs),
        f"{one.duration_ns / 1e3:.0f}",
        status,
    )


def shape(operand: Operand) -> str:
    """Return an operand as "#5 2x3", or without an id "2x3"; "?" where nothing is known of it."""
    label = f"#{operand.id} " if operand.id else ""
    if operand.structure is None:
        return f"{label}?"
    return label + "x".join(map(str, _sizes(operand.structure)))


def _sizes(structure: Ztensor) -> tuple[int, ...]:
    shown = layout_shape(structure.pre_transformed_desc)
    is_known = structure.HasField("pre_transformed_desc") and shown and all(shown)
    return shown if is_known else dims(structure.transformed_desc)


def as_data(trace: Trace) -> dict[str, Any]:
    """Return a trace as plain data."""
    return {
        "server_version": trace.start.server_version,
        "start_time": trace.start.start_time.ToJsonString(),
        "contents": trace.start.contents,
        "complete": not trace.ending,
        "ending": trace.ending,
        "sessions": {
            str(number): {
                "machine": session.machine.name.removeprefix("machines/"),
                "library_version": session.library_version,
                "precheck": session.precheck,
            }
            for number, session in trace.sessions.items()
        },
        "operations": [_operation_data(operation) for operation in trace.operations],
    }


def _operation_data(one: TracedOperation) -> dict[str, Any]:
    return {
        "index": one.index,
        "call": one.call,
        "session": one.session,
        "operation": one.name,
        "status": one.status,
        "valid": one.is_valid,
        "housekeeping": one.is_housekeeping,
        "start_ns": one.start_ns,
        "duration_ns": one.duration_ns,
        "fp_flags": one.result.fp_flags if one.result else 0,
        "message": MessageToDict(one.message, preserving_proto_field_name=True),
        "ztensors": [_operand_data(each) for each in one.operands],
    }


def _operand_data(one: Operand) -> dict[str, Any]:
    kind = None if one.structure is None else one.structure.transformed_desc.type
    known = kind is not None and kind in DataTypes.values()
    return {
        "operand": one.name,
        "id": one.id,
        "output": one.is_output,
        "shape": None if one.structure is None else list(_sizes(one.structure)),
        "type": DataTypes.Name(kind) if known and kind is not None else None,
    }


def told_differences(found: Comparison) -> RenderableType:
    """Return what a comparison found: the first differences, what was compared, what was not."""
    lines: list[RenderableType] = []
    if found.is_equal:
        lines.append(Text("no difference"))
    else:
        for title, one in (
            ("status", found.first("status", "operation")),
            ("values", found.first("values")),
        ):
            lines.append(Text(f"first difference in {title}: {sentence(one) if one else 'none'}"))
        lines.append(_differences(found))
    lines.append(Text(f"compared: {found.statuses} statuses, {found.values} outputs"))
    if found.unknown:
        lines.append(Text(f"not compared: values of {found.unknown} outputs, not in both traces"))
    if found.by_contents:
        lines.append(
            Text(f"not compared: {found.by_contents} statuses that depend on what tensors hold")
        )
    return Group(*lines)


def sentence(one: Difference) -> str:
    """Return a difference as one line."""
    where = f"operation {one.index}, zdnn_{one.name}"
    if one.kind != "values":
        return f"{where}: {one.kind} {one.left} and {one.right}"
    if one.values is None:
        return f"{where}, {one.operand}: bytes differ ({one.left}, {one.right})"
    apart = "NINF on one side" if one.values.ulp is None else f"{one.values.ulp} ulp at most"
    return (
        f"{where}, {one.operand}: {one.values.count} of {one.values.size} elements, {apart}, "
        f"first {list(one.values.at)}: {one.values.left:g} and {one.values.right:g}"
    )


def _differences(found: Comparison) -> Table:
    table = Table(box=box.SIMPLE)
    for heading in ("#", "operation", "what", "left", "right"):
        table.add_column(heading)
    for difference in found.differences[:_MAX_DIFFERENCES]:
        left, right = difference.left, difference.right
        if difference.values is not None:
            left, right = f"{difference.values.left:g}", f"{difference.values.right:g}"
        what = f"{difference.kind} {difference.operand}".strip()
        table.add_row(str(difference.index), difference.name, what, left, right)
    if len(found.differences) > _MAX_DIFFERENCES:
        more = len(found.differences) - _MAX_DIFFERENCES
        table.add_row("", f"and {more} more", "", "", "")
    return table


def told_report(found: Report) -> RenderableType:
    """Return what a lint found, and the totals."""
    lines = [Text(f"{finding.rule}: {finding.text}", style="yellow") for finding in found.findings]
    lines += [Text(f"budget exceeded: {one}", style="red") for one in found.exceeded]
    totals = found.totals
    lines += [
        Text(f"calls: {totals.calls}"),
        Text(f"operations: {totals.operations}"),
        Text(f"stickified bytes: {totals.stickified_bytes}, {totals.padding:.0%} padding"),
        Text(f"bytes of arrays: {totals.array_bytes_in} in, {totals.array_bytes_out} back"),
    ]
    return Group(*lines)
