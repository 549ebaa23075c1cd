# SPDX-License-Identifier: Apache-2.0
"""The one order of events between a call of a zDNN function and its status.

A *function* of the library (transforms, queries) is called with the guest and decides everything
itself. An *operation* issues the NNPA instruction, and all operations share these constraints, in
this order; their own docstrings number only what is particular to them:

pipeline_c1  the library version exports the function, else the call does not exist (`NotInLibrary`)
pipeline_c2  the parameter block format is installed as the library remembers the machine, else
             ZDNN_UNAVAILABLE_FUNCTION; nothing is logged, no verifier has run
pipeline_c3  with precheck, the operation's verifier accepts the call
pipeline_c4  the machine has the function code, else response code 0002, and the parameter block
             format, else 0001
pipeline_c5  each operand in C order has a data layout format that the function takes, else 0010,
             and a data type, else 0011
pipeline_c6  every dimension of every operand is 1 to the machine's maximum, else 0012
pipeline_c7  no operand is larger than the maximum tensor size, else 0013
pipeline_c8  tensors are on a 4096-byte boundary, else 0014; a save area is, else 0015
pipeline_c9  function specific response codes F000 to F009, the lowest that applies
pipeline_c10 the operands fit each other, else a data exception ends the program
pipeline_c11 every operand has storage behind it, else an access exception ends the program

Then the operation computes. A non-numeric value that was used or stored makes the status
ZDNN_ELEMENT_RANGE_VIOLATION; in either case the output is marked as transformed.

Sources: zDNN API Reference 1.2.0, "Hardware Statuses"; behaviour of the zDNN 1.2.0 library; the
relative priority of several response codes is our reading (see the fidelity contract).
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy.typing as npt

from nnpa_emulator.arith import RangeViolation, explain_violation
from nnpa_emulator.checks import require_transformed_desc
from nnpa_emulator.dlfloat import scalar_to_dlfloat
from nnpa_emulator.machine import LIBRARY_VERSIONS, FunctionCode, Guest
from nnpa_emulator.status import (
    ZDNN_HW_ERROR,
    NotInLibrary,
    ProgramCheck,
    Refusal,
    Refused,
    Status,
    is_warning,
)
from nnpa_emulator.ztensor import (
    PAGE,
    DataFormats,
    DataTypes,
    TensorDesc,
    Ztensor,
    getsize_ztensor,
)

Value: TypeAlias = bool | int | tuple[float, float] | npt.NDArray[Any] | None
Arguments: TypeAlias = Mapping[str, Any]
Check: TypeAlias = Callable[..., None]
FieldRule: TypeAlias = Callable[[Guest, Any], Any]
OperandRule: TypeAlias = Mapping[int, frozenset[int]]
Descriptors: TypeAlias = tuple[TensorDesc, TensorDesc]

# Data layout formats that a function takes, each with its data types.
DLFLOAT_FEATURE: OperandRule = MappingProxyType(
    {DataFormats.ZDNN_FORMAT_4DFEATURE: frozenset((DataTypes.ZDNN_DLFLOAT16,))}
)


@dataclass(frozen=True, slots=True)
class Alignment:
    """What the caller says of addresses: only the program that holds the memory knows them."""

    buffer_misaligned: bool = False
    save_area_misaligned: bool = False
    work_area_misaligned: bool = False


ALIGNED = Alignment()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one call answers.

    `status` is a zdnn_status or a hardware response code without a name; `refusal` and `violation`
    explain it; `fp_flags` are the IEEE flags that a transform leaves raised in the calling thread,
    None for functions that do not touch them; `value` is what the C function returns or writes
    through a pointer.
    """

    status: int = Status.ZDNN_OK
    refusal: Refusal | None = None
    violation: RangeViolation | None = None
    fp_flags: int | None = None
    value: Value = None

    @property
    def valid(self) -> bool:
        """Tell whether outputs hold what the call promised: OK or a warning."""
        return self.status == Status.ZDNN_OK or is_warning(self.status)


@dataclass(frozen=True, slots=True)
class Call:
    """Who calls, and from which addresses."""

    guest: Guest
    alignment: Alignment = ALIGNED


def no_check(**_arguments: object) -> None:
    """Accept every call."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What the library and the machine do for one use of an NNPA function code.

    `fields` turn arguments into function specific parameters before any check; `verify` is the
    library's precheck, `responses` the machine's function specific response codes, `relations`
    what ends the program when it does not hold. `compute` writes the outputs and tells whether a
    non-numeric value was used or stored. `marks` are the outputs that become transformed.
    """

    code: FunctionCode
    parmblk_format: int
    compute: Callable[..., bool]
    verify: Check
    relations: Check
    responses: Check
    operands: Mapping[str, OperandRule]
    fields: Mapping[str, FieldRule]
    marks: tuple[str, ...]
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Function:
    """An entry of the table: what may be called by name.

    `tensors` are the parameters that are ztensors. `describe` derives the descriptors of those in
    `outputs` from the other arguments, for callers that leave outputs to the emulator.
    """

    name: str
    since: str
    doc: str
    parameters: Mapping[str, inspect.Parameter]
    run: Callable[..., Outcome]
    outputs: tuple[str, ...] = ()
    describe: Callable[..., tuple[Descriptors, ...]] | None = None
    operation: Operation | None = None
    tensors: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        names = tuple(name for name, one in self.parameters.items() if one.annotation is Ztensor)
        object.__setattr__(self, "tensors", names)


FUNCTIONS: dict[str, Function] = {}


def _register(entry: Function) -> None:
    if entry.name in FUNCTIONS:
        raise ValueError(f"{entry.name} is defined twice")
    FUNCTIONS[entry.name] = entry


def function(
    since: str = "1.0.0",
) -> Callable[[Callable[..., Outcome]], Callable[..., Outcome]]:
    """Register a library function `body(call, **arguments)` under its C name without prefix."""

    def decorate(body: Callable[..., Outcome]) -> Callable[..., Outcome]:
        parameters = dict(inspect.signature(body).parameters)
        del parameters["call"]
        doc = inspect.getdoc(body) or ""
        _register(Function(body.__name__, since, doc, parameters, body))
        return body

    return decorate


def operation(
    code: FunctionCode,
    parmblk_format: int,
    *,
    since: str,
    verify: Check,
    describe: Callable[..., tuple[Descriptors, ...]],
    outputs: tuple[str, ...] = ("output",),
    marks: tuple[str, ...] | None = None,
    responses: Check = no_check,
    relations: Check | None = None,
    operands: Mapping[str, OperandRule] | None = None,
    fields: Mapping[str, FieldRule] | None = None,
) -> Callable[[Callable[..., bool]], Callable[..., bool]]:
    """Register an operation `compute(**arguments)` under its C name without prefix.

    Left out: `marks` are the outputs, `relations` is the verifier, `operands` all take DLFLOAT16
    in 4DFEATURE, `fields` pass arguments through.
    """

    def decorate(compute: Callable[..., bool]) -> Callable[..., bool]:
        parameters = inspect.signature(compute).parameters
        tensors = [name for name, one in parameters.items() if one.annotation is Ztensor]
        definition = Operation(
            code,
            parmblk_format,
            compute,
            verify,
            relations or verify,
            responses,
            dict.fromkeys(tensors, DLFLOAT_FEATURE) | dict(operands or {}),
            fields or {},
            outputs if marks is None else marks,
            tuple(name for name in tensors if name not in outputs),
        )

        def run_operation(call: Call, **arguments: Any) -> Outcome:
            return issue(call, definition, arguments)

        doc = inspect.getdoc(compute) or ""
        name = compute.__name__
        _register(
            Function(name, since, doc, parameters, run_operation, outputs, describe, definition)
        )
        return compute

    return decorate


def run(guest: Guest, name: str, arguments: Arguments, alignment: Alignment = ALIGNED) -> Outcome:
    """Call a function of the table; raise `ProgramCheck`, `NotInLibrary` or `Malformed`."""
    entry = FUNCTIONS[name]
    if LIBRARY_VERSIONS[entry.since] > guest.library_version:
        raise NotInLibrary(name, entry.since, guest.library)
    try:
        return entry.run(Call(guest, alignment), **arguments)
    except Refused as refused:
        refusal = _qualified(name, refused.refusal)
        return Outcome(refusal.status, refusal)
    except ProgramCheck as check:
        raise ProgramCheck(check.kind, _qualified(name, check.refusal)) from check


def _qualified(name: str, refusal: Refusal) -> Refusal:
    """Put the function's name before a constraint that is its own ("c1" becomes "add_c1")."""
    if not refusal.constraint.startswith("c"):
        return refusal
    return replace(refusal, constraint=f"{name}_{refusal.constraint}")


def issue(call: Call, operation: Operation, arguments: Arguments) -> Outcome:
    """Take one operation through the constraints above and compute it.

    Source: behaviour of the zDNN 1.2.0 library between an operation and the NNPA instruction.
    """
    guest = call.guest
    if operation.fields:
        converted = {name: rule(guest, arguments[name]) for name, rule in operation.fields.items()}
        arguments = {**arguments, **converted}
    _require_format(guest, operation.parmblk_format)
    if guest.precheck:
        operation.verify(**arguments)
    tensors = {name: arguments[name] for name in operation.operands}
    _require_executable(call, operation, tensors)
    operation.responses(**arguments)
    _require_consistent(operation, arguments)
    require_storage(tensors)
    violated = operation.compute(**arguments)
    for name in operation.marks:
        tensors[name].is_transformed = True
    if not violated:
        return Outcome()
    violation = explain_violation(operation.code, tensors, operation.inputs)
    return Outcome(Status.ZDNN_ELEMENT_RANGE_VIOLATION, violation=violation)


def require_facility(guest: Guest, code: FunctionCode, parmblk_format: int) -> None:
    """Check availability for a function that the library issues on its own: pipeline_c2 and c4."""
    _require_format(guest, parmblk_format)
    _require_installed(guest, code, parmblk_format)


def _require_format(guest: Guest, parmblk_format: int) -> None:
    """Refuse where the library does not remember the parameter block format as installed."""
    if not guest.cached.has_parmblk_format(parmblk_format):
        raise Refused(
            Status.ZDNN_UNAVAILABLE_FUNCTION,
            "parameter block format",
            parmblk_format,
            f"installed on {guest.machine.name}",
            "pipeline_c2",
        )


def _require_installed(guest: Guest, code: FunctionCode, parmblk_format: int) -> None:
    """Answer response codes 0002 and 0001 of the machine as it is now."""
    qaf, limit = guest.machine.qaf, f"installed on {guest.machine.name}"
    if not qaf.has_function(code):
        raise response(0x0002, "function code", code.name, limit, "pipeline_c4")
    if not qaf.has_parmblk_format(parmblk_format):
        raise response(0x0001, "parameter block format", parmblk_format, limit, "pipeline_c4")


def response(code: int, field: str, value: object, limit: str, label: str) -> Refused:
    """Return the refusal for a hardware response code, such as 0x0012 or 0xF000."""
    return Refused(ZDNN_HW_ERROR + code, field, value, limit, label)


def _require_executable(call: Call, op: Operation, tensors: Mapping[str, Ztensor]) -> None:
    """Answer response codes 0001 to 0015, in that order."""
    qaf = call.guest.machine.qaf
    _require_installed(call.guest, op.code, op.parmblk_format)
    for operand, rule in op.operands.items():
        desc = tensors[operand].transformed_desc
        types = rule.get(desc.format & 0xFF)
        if types is None or not qaf.has_layout_format(desc.format & 0xFF):
            allowed = _names(rule)
            field = f"{operand}.transformed_desc.format"
            raise response(0x0010, field, desc.format, allowed, "pipeline_c5")
        if desc.type & 0xFF not in types or not qaf.has_data_type(desc.type & 0xFF):
            field = f"{operand}.transformed_desc.type"
            raise response(0x0011, field, desc.type, _names(types), "pipeline_c5")
    limits = tuple(qaf.max_for_dim(dimension) for dimension in (4, 3, 2, 1))
    for operand, tensor in tensors.items():
        for dimension, size, limit in zip(
            (4, 3, 2, 1), tensor.transformed_desc.dims, limits, strict=True
        ):
            if not 0 < size <= limit:
                field = f"{operand}.transformed_desc.dim{dimension}"
                raise response(0x0012, field, size, f"1 to {limit}", "pipeline_c6")
    for operand, tensor in tensors.items():
        size = getsize_ztensor(tensor.transformed_desc)
        if size > qaf.max_tensor_size:
            most = f"at most {qaf.max_tensor_size} bytes"
            raise response(0x0013, f"{operand} size", size, most, "pipeline_c7")
    if call.alignment.buffer_misaligned:
        raise response(0x0014, "buffer", "misaligned", f"on {PAGE} bytes", "pipeline_c8")
    if call.alignment.save_area_misaligned:
        raise response(0x0015, "save_area", "misaligned", f"on {PAGE} bytes", "pipeline_c8")


def _names(allowed: Mapping[int, object] | frozenset[int]) -> str:
    return ", ".join(str(getattr(one, "name", one)) for one in sorted(allowed))


def _require_consistent(operation: Operation, arguments: Arguments) -> None:
    try:
        operation.relations(**arguments)
    except Refused as refused:
        raise ProgramCheck("data", refused.refusal) from refused


def require_storage(tensors: Mapping[str, Ztensor], size: int | None = None) -> None:
    """End the program with an access exception where a buffer ends before the tensor, or `size`."""
    for name, tensor in tensors.items():
        needed = getsize_ztensor(tensor.transformed_desc) if size is None else size
        there = 0 if tensor.buffer is None else tensor.buffer.nbytes
        if there < needed:
            raise ProgramCheck(
                "access",
                Refusal(0, f"{name}.buffer", f"{there} bytes", f"{needed} bytes", "pipeline_c11"),
            )


def dlfloat_field(guest: Guest, value: float | None) -> int:
    """Convert a C float argument to the DLFLOAT16 code of a function specific parameter.

    NULL and values that compare equal to 0 are 0x0000 without conversion; any other value needs the
    conversion instruction, whose absence ends the program.
    Source: behaviour of the zDNN 1.2.0 library; zDNN API Reference 1.2.0, zdnn_relu (NULL).
    """
    if value is None or value == 0:
        return 0
    require_vector_nnp(guest)
    return scalar_to_dlfloat(value)


def require_vector_nnp(guest: Guest) -> None:
    """End the program where the vector conversion instructions do not exist."""
    if not guest.machine.vector_nnp:
        raise ProgramCheck(
            "operation", Refusal(0, "machine", guest.machine.name, "z16 or later", "pipeline_c4")
        )


def bits_field(width: int) -> FieldRule:
    """Return a rule that keeps the low `width` bits, as the parameter block does."""

    def truncate(_guest: Guest, value: int) -> int:
        return int(value) & (1 << width) - 1

    return truncate


def allocate_sticks(guest: Guest, ztensor: Ztensor, label: str) -> None:
    """Check the transformed descriptor and give the ztensor zero-filled, page-aligned sticks.

    Source: zDNN API Reference 1.2.0, zdnn_allochelper_ztensor.
    """
    require_transformed_desc(ztensor.transformed_desc, guest, label)
    size = getsize_ztensor(ztensor.transformed_desc)
    ztensor.buffer = guest.allocate(size) if size else None
    if ztensor.buffer is None:
        raise Refused(
            Status.ZDNN_ALLOCATION_FAILURE, "transformed_desc size", size, "allocatable", label
        )
    ztensor.buffer_size = size
