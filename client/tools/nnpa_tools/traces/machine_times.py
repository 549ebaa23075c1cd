# SPDX-License-Identifier: Apache-2.0
"""Estimated times of a trace's operations and instructions on the machine."""

from collections.abc import Mapping
from types import MappingProxyType

from nnpa.zdnn.v1.trace_pb2 import TracedInstruction
from nnpa_client._values.availability import FUNCTIONS
from nnpa_client.trace.history import Trace, TracedOperation

from nnpa_tools.estimates.coefficients import machines
from nnpa_tools.estimates.estimator import is_small, time_of
from nnpa_tools.estimates.intervals import Interval
from nnpa_tools.estimates.work import Call, call_of
from nnpa_tools.traces.instructions import function_name, is_done, shapes

# Functions by function code. Of two with one code Telum I's is used; of two of Telum I avgpool2d.
_BY_CODE: Mapping[int, str] = MappingProxyType(
    {
        function.code: name
        for name, function in sorted(
            FUNCTIONS.items(), key=lambda pair: -(pair[1].parmblk_format or 0)
        )
        if function.code is not None
    }
    | {114: "matmul_bcast_op", 115: "matmul_bcast_op", 240: "transform_ztensor"}
)


def calls_of(trace: Trace) -> tuple[Call, ...]:
    """Return the calls that a program made and the machine carried out, in order.

    The calls of the library's functions come first, then the instructions of its own library.
    """
    operations = (op for op in trace.operations if op.is_valid and not op.is_housekeeping)
    instructions = (instruction for instruction in trace.instructions if is_done(instruction))
    return (*map(call_of_operation, operations), *map(_call_of_instruction, instructions))


def call_of_operation(operation: TracedOperation) -> Call:
    """Return the call of an operation."""
    structures = {operand.name: operand.structure for operand in operation.operands
                  if operand.structure is not None}  # fmt: skip
    return call_of(operation.message, structures)


def estimated(trace: Trace, operation: TracedOperation) -> Interval | None:
    """Return an operation's time on the machine of its session; None without an estimate."""
    machine = machine_of(trace, operation)
    return time_of(call_of_operation(operation), machine) if machine else None


def is_below_break_even(trace: Trace, operation: TracedOperation) -> bool:
    """Return True if the CPU of its session's machine is faster by public figures."""
    machine = machine_of(trace, operation)
    return bool(machine) and is_small(call_of_operation(operation), machine)


def machine_of(trace: Trace, operation: TracedOperation) -> str:
    """Return the machine that carried out an operation of the program.

    It is "" for a machine without published times, and for an operation that was not carried out.
    """
    options = trace.sessions.get(operation.session)
    name = "" if options is None else options.machine.name.removeprefix("machines/")
    is_counted = operation.is_valid and not operation.is_housekeeping
    return name if is_counted and name in machines() else ""


def _call_of_instruction(instruction: TracedInstruction) -> Call:
    name = function_name(instruction)
    inputs, outputs = shapes(instruction)
    tensors = {"output": outputs[0]} if outputs else {}
    tensors |= dict(zip(("input_a", "input_b"), inputs, strict=False))
    if inputs:
        tensors["input"] = inputs[0]
    code = instruction.general_register_0 & 0xFF
    function = _BY_CODE.get(code, name)
    if function == "conv2d" and len(inputs) > 1:
        tensors["kernel"] = inputs[1]
    if function == "transform_ztensor" and outputs:
        tensors = {"ztensor": outputs[0]}
    sizes = {operand: (dims[0], dims[1], dims[2], dims[3]) for operand, dims in tensors.items()}
    return Call(function, sizes, _window(sizes) if "pool" in function else 1)


def _window(sizes: Mapping[str, tuple[int, int, int, int]]) -> int:
    """Return the elements of a pool's kernel, assuming that windows do not overlap."""
    if not {"input", "output"} <= sizes.keys():
        return 1
    (_, height, width, _), (_, down, across, _) = sizes["input"], sizes["output"]
    return max(1, height * width // max(1, down * across))
