# SPDX-License-Identifier: Apache-2.0
"""Instructions in a trace, which programs with their own zDNN library issue.

Source of the layout of a parameter block: nnpa/instruction/v1/instruction.proto.
"""

import struct

from nnpa.zdnn.v1.operation_pb2 import NnpaFunctionCode
from nnpa.zdnn.v1.trace_pb2 import TracedInstruction

_DIMS = struct.Struct(">8x4I")
_INPUTS, _OUTPUTS = (192, 224, 256), (64, 96)
_DESCRIBED = 288  # bytes of a block, with all descriptors
_NAMES = {int(code): name for name, code in NnpaFunctionCode.items()}
_INTERRUPTIONS = {1: "operation", 4: "access", 6: "specification", 7: "data"}


def function_name(instruction: TracedInstruction) -> str:
    """Return the name of the function code, or its number if it has no name."""
    code = instruction.general_register_0 & 0xFF
    return _NAMES.get(code, f"function {code}")


def shapes(instruction: TracedInstruction) -> tuple[list[list[int]], list[list[int]]]:
    """Return the dimensions of inputs and of outputs, outermost first; none of zeros."""
    return _shapes(instruction, _INPUTS), _shapes(instruction, _OUTPUTS)


def _shapes(instruction: TracedInstruction, places: tuple[int, ...]) -> list[list[int]]:
    block = instruction.parameter_block
    if len(block) < _DESCRIBED:
        return []
    described: list[tuple[int, ...]] = [_DIMS.unpack_from(block, place) for place in places]
    return [list(dims) for dims in described if any(dims)]


def ending(instruction: TracedInstruction) -> str:
    """Return the end of an instruction: "ok", a response code, flags, or an exception."""
    if instruction.interruption_code:
        kind = _INTERRUPTIONS.get(instruction.interruption_code, "program")
        return f"{kind} exception"
    after = instruction.general_register_0_after
    if instruction.condition_code:
        return f"response code {after >> 48:04X}"
    return f"ok, flags 0x{after >> 32 & 0xFF:02X}" if after >> 32 & 0xFF else "ok"


def is_done(instruction: TracedInstruction) -> bool:
    """Return True if an instruction completed without an exception or response code."""
    return not (instruction.interruption_code or instruction.condition_code)
