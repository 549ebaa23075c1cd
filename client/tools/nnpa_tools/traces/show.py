# SPDX-License-Identifier: Apache-2.0
"""Traces as text for people, and as plain data for programs."""

from google.protobuf.json_format import MessageToDict
from nnpa.zdnn.v1.accelerator_pb2 import Session
from nnpa.zdnn.v1.tensor_pb2 import DataTypes, Ztensor
from nnpa.zdnn.v1.trace_pb2 import TracedInstruction
from nnpa_client._values.display import counted
from nnpa_client._values.user_arrays import dims, layout_shape
from nnpa_client.trace.history import Operand, Trace, TracedOperation
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from nnpa_tools.tables import simple_table
from nnpa_tools.traces.diff import Comparison
from nnpa_tools.traces.instructions import ending, function_name, is_done, shapes
from nnpa_tools.traces.machine_times import estimated

_MAX_DIFFERENCES = 20
_NUMBERS = ("#", "ms", "call", "session", "us")
_ESTIMATE = "on the machine, grade"  # an interval by public figures, no time of the server


def timeline(trace: Trace, everything: bool = False) -> RenderableType:
    """Return the table of a trace's operations; housekeeping only with `everything`."""
    columns = ("#", "ms", "call", "operation", "ztensors", "us", "status", _ESTIMATE)
    table = simple_table(columns, _NUMBERS, wrapped="ztensors")
    for operation in trace.operations:
        if everything or not operation.is_housekeeping:
            interval = estimated(trace, operation)
            estimate = "" if interval is None else f"{interval}, {interval.grade}"
            style = None if operation.is_valid else "red"
            table.add_row(*cells(operation), estimate, style=style)
    shown: list[RenderableType] = [*headings(trace)]
    if trace.calls or not trace.instructions:
        shown.append(table)
    if trace.instructions:
        shown.append(_instructions(trace))
    return Group(*shown, Text(summary(trace)))


def _instructions(trace: Trace) -> Table:
    columns = ("#", "ms", "session", "instruction", "tensors", "us", "end")
    table = simple_table(columns, _NUMBERS, wrapped="tensors")
    for index, instruction in enumerate(trace.instructions):
        style = None if is_done(instruction) else "red"
        table.add_row(*instruction_cells(index, instruction), style=style)
    return table


def instruction_cells(index: int, instruction: TracedInstruction) -> tuple[str, ...]:
    """Return an instruction as index, ms, session, function, tensors, us and end."""
    inputs, outputs = (
        " ".join("x".join(map(str, sizes)) for sizes in of) for of in shapes(instruction)
    )
    return (
        str(index),
        f"{instruction.start_ns / 1e6:.2f}",
        str(instruction.session),
        function_name(instruction),
        f"{inputs} > {outputs}" if outputs else inputs,
        f"{instruction.duration_ns / 1e3:.0f}",
        ending(instruction),
    )


def headings(trace: Trace) -> list[Text]:
    """Return a line for each session, and a line that says why a trace is not complete."""
    lines = [
        Text(f"session {number}: {_environment(session)}")
        for number, session in trace.sessions.items()
    ]
    if trace.ending:
        lines.append(Text(f"This trace is not complete: {trace.ending}.", style="yellow"))
    return lines


def _environment(options: Session) -> str:
    machine = options.machine.name.removeprefix("machines/") or "custom machine"
    precheck = ", precheck" if options.precheck else ""
    return f"{machine}, zDNN {options.library_version}{precheck}"


def summary(trace: Trace) -> str:
    """Return a line on a trace: operations, calls, time on the server, contents."""
    count = sum(not operation.is_housekeeping for operation in trace.operations)
    milliseconds = sum(operation.duration_ns for operation in trace.operations) / 1e6
    contents = "with" if trace.start.contents else "without"
    text = f"{counted(count, 'operation')} in {counted(len(trace.calls), 'call')}, "
    text += f"{milliseconds:.1f} ms on the server, "
    if trace.instructions:
        computing = sum(instruction.duration_ns for instruction in trace.instructions) / 1e6
        text += f"{counted(len(trace.instructions), 'instruction')}, {computing:.1f} ms, "
    return f"{text}{contents} contents"


def cells(operation: TracedOperation) -> tuple[str, ...]:
    """Return an operation as index, ms, call, name, ztensors, us and status."""
    flags = operation.result.fp_flags if operation.result else 0
    status = operation.status.removeprefix("ZDNN_") + (f" flags 0x{flags:02X}" if flags else "")
    inputs = [shape(operand) for operand in operation.operands if not operand.is_output]
    outputs = [shape(operand) for operand in operation.operands if operand.is_output]
    arrow = " > " if outputs else ""
    return (
        str(operation.index),
        f"{operation.start_ns / 1e6:.2f}",
        str(operation.call),
        operation.name,
        " ".join(inputs) + arrow + " ".join(outputs),
        f"{operation.duration_ns / 1e3:.0f}",
        status,
    )


def shape(operand: Operand) -> str:
    """Return an operand as "#5 2x3", or without an id "2x3"; "?" without a structure."""
    label = f"#{operand.id} " if operand.id else ""
    if operand.structure is None:
        return f"{label}?"
    return label + "x".join(map(str, _sizes(operand.structure)))


def _sizes(structure: Ztensor) -> tuple[int, ...]:
    shown = layout_shape(structure.pre_transformed_desc)
    is_known = structure.HasField("pre_transformed_desc") and shown and all(shown)
    return shown if is_known else dims(structure.transformed_desc)


def as_data(trace: Trace) -> dict[str, object]:
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
        "operations": [_operation_data(trace, operation) for operation in trace.operations],
        "instructions": [_instruction_data(instruction) for instruction in trace.instructions],
    }


def _instruction_data(instruction: TracedInstruction) -> dict[str, object]:
    inputs, outputs = shapes(instruction)
    return {
        "session": instruction.session,
        "function": function_name(instruction),
        "inputs": inputs,
        "outputs": outputs,
        "end": ending(instruction),
        "done": is_done(instruction),
        "why": instruction.refusal.text,
        "start_ns": instruction.start_ns,
        "duration_ns": instruction.duration_ns,
    }


def _operation_data(trace: Trace, operation: TracedOperation) -> dict[str, object]:
    interval = estimated(trace, operation)
    return {
        "index": operation.index,
        "call": operation.call,
        "session": operation.session,
        "operation": operation.name,
        "status": operation.status,
        "valid": operation.is_valid,
        "housekeeping": operation.is_housekeeping,
        "start_ns": operation.start_ns,
        "duration_ns": operation.duration_ns,
        "fp_flags": operation.result.fp_flags if operation.result else 0,
        "message": MessageToDict(operation.message, preserving_proto_field_name=True),
        "ztensors": [operand_data(operand) for operand in operation.operands],
        **({} if interval is None else interval.as_data()),
    }


def operand_data(operand: Operand) -> dict[str, object]:
    """Return an operand as plain data: name, id, whether it is an output, shape, type."""
    kind = None if operand.structure is None else operand.structure.transformed_desc.type
    is_defined = kind is not None and kind in DataTypes.values()
    return {
        "operand": operand.name,
        "id": operand.id,
        "output": operand.is_output,
        "shape": None if operand.structure is None else list(_sizes(operand.structure)),
        "type": DataTypes.Name(kind) if is_defined and kind is not None else None,
    }


def render_comparison(comparison: Comparison) -> RenderableType:
    """Return a comparison as text: first differences, and counts of comparisons."""
    lines: list[RenderableType] = []
    if comparison.is_equal:
        lines.append(Text("no difference"))
    else:
        for title, difference in (
            ("status", comparison.first("status", "operation")),
            ("values", comparison.first("values")),
        ):
            shown = str(difference) if difference else "none"
            lines.append(Text(f"first difference in {title}: {shown}"))
        lines.append(_differences(comparison))
    lines.append(Text(f"compared: {compared(comparison)}"))
    if comparison.cut_off:
        operations = counted(comparison.cut_off, "operation")
        lines.append(Text(f"cut off: {operations}, which need the output of a refused one"))
    if comparison.unknown:
        values = counted(comparison.unknown, "output")
        lines.append(Text(f"not compared: values of {values}, not in both traces"))
    if comparison.by_contents:
        statuses = counted(comparison.by_contents, "status")
        lines.append(Text(f"not compared, as they depend on contents: {statuses}"))
    return Group(*lines)


def compared(comparison: Comparison) -> str:
    """Return the counts of comparisons."""
    return f"{counted(comparison.statuses, 'status')}, {counted(comparison.values, 'output')}"


def _differences(comparison: Comparison) -> Table:
    table = simple_table(("#", "operation", "what", "left", "right"))
    for difference in comparison.differences[:_MAX_DIFFERENCES]:
        left, right = difference.left, difference.right
        if difference.values is not None:
            left, right = f"{difference.values.left:g}", f"{difference.values.right:g}"
        what = f"{difference.kind} {difference.operand}".strip()
        table.add_row(str(difference.index), difference.name, what, left, right)
    if len(comparison.differences) > _MAX_DIFFERENCES:
        more = len(comparison.differences) - _MAX_DIFFERENCES
        table.add_row("", f"and {more} more", "", "", "")
    return table
