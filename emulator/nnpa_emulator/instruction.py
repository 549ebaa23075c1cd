# SPDX-License-Identifier: Apache-2.0
"""The NNPA instruction: the machine's tests before it computes, in the order of its answers.

The constraints pipeline_c4 to pipeline_c11 of `pipeline` live here: response codes end the
instruction with condition code 1, exceptions end the program.
Sources: zDNN API Reference 1.2.0, "Hardware Statuses"; the relative priority of several response
codes is our reading (see the fidelity contract).
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Required, TypeAlias, TypedDict

from nnpa_emulator.machine import FunctionCode, Guest, Machine, QueryResult, name_chips
from nnpa_emulator.status import ZDNN_HW_ERROR, ProgramCheck, Refusal, Refused
from nnpa_emulator.ztensor import (
    PAGE,
    DataFormats,
    DataTypes,
    TensorDesc,
    Ztensor,
    limit_of_dim,
    name_of,
    stick_bytes,
)

Argument: TypeAlias = Any
"""An argument of a function: a ztensor, a descriptor, a scalar, user data, or None for C's NULL."""
Arguments: TypeAlias = Mapping[str, Argument]
Check: TypeAlias = Callable[..., None]
FieldRule: TypeAlias = Callable[[Guest, Argument], Argument]
OperandRule: TypeAlias = Mapping[int, frozenset[int]]

# Data layout formats that a function takes, each with its data types.
DLFLOAT_FEATURE: OperandRule = MappingProxyType(
    {DataFormats.ZDNN_FORMAT_4DFEATURE: frozenset((DataTypes.ZDNN_DLFLOAT16,))}
)


@dataclass(frozen=True, slots=True)
class Alignment:
    """Which addresses are misaligned: only the program that holds the memory knows."""

    buffer_misaligned: bool = False
    save_area_misaligned: bool = False
    work_area_misaligned: bool = False


ALIGNED = Alignment()


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One use of an NNPA function code: the tests of library and machine, and the arithmetic.

    `fields` turn arguments into function specific parameters before any check. `verify` is the
    library's precheck, `responses` answers the machine's function specific response codes, and a
    violation of `relations` ends the program. `operands` has the formats and types of operands;
    `responses` judges operands that are not in it. `compute` writes the outputs and returns True
    if a non-numeric value was used or stored; it gets the guest if it takes one. `marks` are the
    outputs that become transformed.
    """

    code: FunctionCode
    parmblk_format: int
    compute: Callable[..., bool]
    verify: Check
    relations: Check
    responses: Check | None
    tensors: tuple[str, ...]
    operands: Mapping[str, OperandRule]
    inputs: tuple[str, ...]
    marks: tuple[str, ...]
    fields: Mapping[str, FieldRule]
    save_area: bool
    takes_guest: bool


class Details(TypedDict, total=False):
    """The optional parts of an operation's definition: see `pipeline.define`."""

    verify: Required[Check]
    marks: tuple[str, ...] | None
    responses: Check | None
    relations: Check | None
    operands: Mapping[str, OperandRule | None] | None
    fields: Mapping[str, FieldRule] | None


def response(code: int, field: str, value: object, limit: str, label: str) -> Refused:
    """Return the refusal for a hardware response code, such as 0x0012 or 0xF000."""
    return Refused(ZDNN_HW_ERROR + code, field, value, limit, label)


def require_executable(
    machine: Machine, alignment: Alignment, operation: Operation, arguments: Arguments
) -> None:
    """Test pipeline_c4 to pipeline_c11, in this order."""
    require_operands(machine, alignment, operation, arguments)
    for name in operation.tensors:
        require_storage(name, arguments[name])


def require_operands(
    machine: Machine, alignment: Alignment, operation: Operation, arguments: Arguments
) -> None:
    """Test pipeline_c4 to pipeline_c10, in this order; none of them needs storage."""
    qaf = machine.qaf
    require_installed(machine, operation.code, operation.parmblk_format)
    for name, rule in operation.operands.items():
        _require_supported(qaf, name, arguments[name].transformed_desc, rule)
    for name in operation.tensors:
        _require_dims(machine, name, arguments[name].transformed_desc)
    for name in operation.tensors:
        size = operand_bytes(arguments[name].transformed_desc)
        if size > qaf.max_tensor_size:
            limit = f"at most {qaf.max_tensor_size} bytes on {machine.label}"
            raise response(0x0013, f"{name}.buffer_size", f"{size} bytes", limit, "pipeline_c7")
    if alignment.buffer_misaligned:
        limit = f"on a {PAGE}-byte boundary"
        raise response(0x0014, "the buffer of a ztensor", "misaligned", limit, "pipeline_c8")
    if operation.save_area and alignment.save_area_misaligned:
        limit = f"on a {PAGE}-byte boundary"
        raise response(0x0015, "save_area", "misaligned", limit, "pipeline_c8")
    if operation.responses is not None:
        operation.responses(**arguments)
    try:
        operation.relations(**arguments)
    except Refused as refused:
        raise ProgramCheck("data", refused.refusal) from refused


def operand_bytes(desc: TensorDesc) -> int:
    """Return the bytes of an operand of the machine: sticks, or dense FP32 in 4DGENERIC."""
    dense = DataFormats.ZDNN_FORMAT_4DGENERIC, DataTypes.ZDNN_BINARY_FP32
    return 4 * math.prod(desc.dims) if (desc.format, desc.type) == dense else stick_bytes(desc)


def require_installed(machine: Machine, code: FunctionCode, parmblk_format: int) -> None:
    """Answer response code 0002 or 0001: pipeline_c4."""
    if not machine.qaf.has_function(code):
        number, lacks = 0x0002, code.name
    elif not machine.qaf.has_parmblk_format(parmblk_format):
        number, lacks = 0x0001, f"parameter block format {parmblk_format}"
    else:
        return
    value, limit = f"{machine.label} without {lacks}", name_chips(code, parmblk_format)
    raise response(number, "machine", value, limit, "pipeline_c4")


def _require_supported(qaf: QueryResult, name: str, desc: TensorDesc, rule: OperandRule) -> None:
    """Answer response code 0010 or 0011; the machine sees the low eight bits of both numbers."""
    types = rule.get(desc.format & 0xFF)
    if types is None or not qaf.has_layout_format(desc.format & 0xFF):
        field, value = f"{name}.transformed_desc.format", name_of(DataFormats, desc.format)
        raise response(0x0010, field, value, _names(DataFormats, rule), "pipeline_c5")
    if desc.type & 0xFF not in types or not qaf.has_data_type(desc.type & 0xFF):
        field, value = f"{name}.transformed_desc.type", name_of(DataTypes, desc.type)
        raise response(0x0011, field, value, _names(DataTypes, types), "pipeline_c5")


def _names(enum: type[IntEnum], allowed: Iterable[int]) -> str:
    return " or ".join(name_of(enum, number) for number in sorted(allowed))


def _require_dims(machine: Machine, name: str, desc: TensorDesc) -> None:
    """Answer response code 0012."""
    for dimension, size in zip((4, 3, 2, 1), desc.dims, strict=True):
        largest = machine.qaf.max_for_dim(dimension)
        if not 0 < size <= largest:
            field = f"{name}.transformed_desc.dim{dimension}"
            limit = limit_of_dim(size, largest, machine.label)
            raise response(0x0012, field, size, limit, "pipeline_c6")


def require_storage(name: str, tensor: Ztensor, size: int | None = None) -> None:
    """End the program with an access exception where a buffer ends before the tensor, or `size`."""
    needed = operand_bytes(tensor.transformed_desc) if size is None else size
    stored = 0 if tensor.buffer is None else tensor.buffer.nbytes
    if stored < needed:
        limit = f"at least {needed} bytes"
        refusal = Refusal(0, f"{name}.buffer", f"{stored} bytes", limit, "pipeline_c11")
        raise ProgramCheck("access", refusal)


def require_vector_nnp(guest: Guest) -> None:
    """End the program where the vector conversion instructions do not exist."""
    if not guest.machine.vector_nnp:
        refusal = Refusal(0, "machine", guest.machine.label, "z16 or later", "pipeline_c4")
        raise ProgramCheck("operation", refusal)
