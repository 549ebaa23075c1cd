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
from functools import partial
from typing import TypeAlias, Unpack

from nnpa_emulator.arith import RangeViolation, explain_violation, jitter
from nnpa_emulator.checks import require_transformed_desc
from nnpa_emulator.diagnostics import Diagnostic, diagnose, print_precheck
from nnpa_emulator.fields import field_rules
from nnpa_emulator.function_forms import FORMS
from nnpa_emulator.instruction import (
    ALIGNED,
    DLFLOAT_FEATURE,
    Alignment,
    Argument,
    Arguments,
    Check,
    Details,
    FieldRule,
    OperandRule,
    Operation,
    require_executable,
    require_installed,
)
from nnpa_emulator.machine import (
    LIBRARY_VERSIONS,
    FunctionCode,
    Guest,
    Memory,
    name_chips,
)
from nnpa_emulator.status import (
    NotInLibrary,
    ProgramCheck,
    Refusal,
    Refused,
    Status,
    is_warning,
)
from nnpa_emulator.ztensor import (
    Array,
    DataTypes,
    TensorDesc,
    Ztensor,
    getsize_ztensor,
    stick_bytes,
)

Value: TypeAlias = bool | int | tuple[float, float] | Array | None
Descriptors: TypeAlias = tuple[TensorDesc, TensorDesc]
Inference: TypeAlias = Callable[..., tuple[Descriptors, ...]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer of one call.

    `status` is a zdnn_status or a hardware response code without a name; `refusal` and `violation`
    explain it. `fp_flags` are the IEEE flags that a transform leaves raised in the calling thread,
    None for functions that do not touch them. `value` is the C function's result, returned or
    written through a pointer. `diagnostics` are the texts that the library prints.
    """

    status: int = Status.ZDNN_OK
    refusal: Refusal | None = None
    violation: RangeViolation | None = None
    fp_flags: int | None = None
    value: Value = None
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def valid(self) -> bool:
        """Return True if the outputs are valid: OK or a warning."""
        return self.status == Status.ZDNN_OK or is_warning(self.status)


# The answer of a call without refusal, value or texts; one object, so that `is` recognises it.
OK = Outcome()


@dataclass(frozen=True, slots=True)
class Call:
    """The context of a call: the guest, its addresses, memory for an array that is returned.

    A `checked` call has passed the checks of descriptors and parameters: see `prepared`.
    """

    guest: Guest
    alignment: Alignment = ALIGNED
    target: Memory | None = None
    checked: bool = False


def _tensors_among(parameters: Mapping[str, inspect.Parameter]) -> tuple[str, ...]:
    return tuple(name for name in parameters if parameters[name].annotation is Ztensor)


@dataclass(frozen=True, slots=True)
class Function:
    """An entry of the table of functions, called by name.

    `tensors` are the parameters that are ztensors. `infer` returns the descriptors of `outputs`
    from the other arguments. `ulps` is the tolerance of IBM's own tests, in units of the last
    place. `written` are the tensors whose sticks a call may change: `outputs`, or all without
    outputs. `operation` is the operation that a call issues, or one of several.
    """

    name: str
    since: str
    doc: str
    parameters: Mapping[str, inspect.Parameter]
    run: Callable[..., Outcome]
    outputs: tuple[str, ...] = ()
    infer: Inference | None = None
    operation: Operation | None = None
    ulps: int = 0
    since_number: int = field(init=False)
    tensors: tuple[str, ...] = field(init=False)
    written: tuple[str, ...] = field(init=False)

    @property
    def module(self) -> str:
        """The library's source file that logs for it, as ZDNN_LOGMODULE names it."""
        if self.outputs:
            return "operations.c"
        return "stickify.c" if "transform" in self.name else "zdnn.c"

    def __post_init__(self) -> None:
        names = _tensors_among(self.parameters)
        object.__setattr__(self, "since_number", LIBRARY_VERSIONS[self.since])
        object.__setattr__(self, "tensors", names)
        object.__setattr__(self, "written", self.outputs or names)


FUNCTIONS: dict[str, Function] = {}

# The default tolerance of the zDNN library's own tests for DLFLOAT16, in units of the last place.
DEFAULT_ULPS = 8


def _register(entry: Function) -> None:
    if entry.name in FUNCTIONS:
        raise ValueError(f"{entry.name} is defined twice")
    FUNCTIONS[entry.name] = entry


def function(
    since: str = "1.0.0",
    *,
    outputs: tuple[str, ...] = (),
    infer: Inference | None = None,
    ulps: int = 0,
) -> Callable[[Callable[..., Outcome]], Callable[..., Outcome]]:
    """Register a library function `body(call, **arguments)` under its C name without prefix."""

    def decorate(body: Callable[..., Outcome]) -> Callable[..., Outcome]:
        parameters = dict(inspect.signature(body).parameters)
        del parameters["call"]
        doc = inspect.getdoc(body) or ""
        entry = Function(body.__name__, since, doc, parameters, body, outputs, infer, ulps=ulps)
        _register(entry)
        return body

    return decorate


def define(
    compute: Callable[..., bool],
    code: FunctionCode,
    parmblk_format: int,
    *,
    verify: Check,
    outputs: tuple[str, ...] = ("output",),
    marks: tuple[str, ...] | None = None,
    responses: Check | None = None,
    relations: Check | None = None,
    operands: Mapping[str, OperandRule | None] | None = None,
    fields: Mapping[str, FieldRule] | None = None,
) -> Operation:
    """Define an operation whose `compute(**arguments)` has the arguments of the C function.

    Left out: `marks` are the outputs, `relations` is the verifier, every tensor is DLFLOAT16 in
    4DFEATURE unless `operands` has another rule for it (None: no rule), and arguments become
    fields of the parameter block by the rules of `field_rules` unless `fields` has other ones.
    """
    parameters = inspect.signature(compute).parameters
    tensors = _tensors_among(parameters)
    forms = [form for form in FORMS.get(code, ()) if form.parmblk_format <= parmblk_format]
    rules = dict.fromkeys(tensors, DLFLOAT_FEATURE) | dict(operands or {})
    return Operation(
        code=code,
        parmblk_format=parmblk_format,
        compute=compute,
        verify=verify,
        relations=relations or verify,
        responses=responses,
        tensors=tensors,
        operands={name: rule for name, rule in rules.items() if rule is not None},
        inputs=tuple(name for name in tensors if name not in outputs),
        marks=outputs if marks is None else marks,
        fields={**field_rules(forms, parameters), **(fields or {})},
        save_area=any(form.save_area for form in forms),
        takes_guest="guest" in parameters,
    )


def operation(
    code: FunctionCode,
    parmblk_format: int,
    *,
    since: str,
    infer: Inference,
    outputs: tuple[str, ...] = ("output",),
    ulps: int = DEFAULT_ULPS,
    **details: Unpack[Details],
) -> Callable[[Callable[..., bool]], Callable[..., bool]]:
    """Register an operation under its C name without prefix; `define` explains `details`."""

    def decorate(compute: Callable[..., bool]) -> Callable[..., bool]:
        definition = define(compute, code, parmblk_format, outputs=outputs, **details)
        parameters = dict(inspect.signature(compute).parameters)
        parameters.pop("guest", None)
        name, doc = compute.__name__, inspect.getdoc(compute) or ""
        entry = Function(
            name,
            since,
            doc,
            parameters,
            partial(issue, definition),
            outputs,
            infer,
            definition,
            ulps,
        )
        _register(entry)
        return compute

    return decorate


def run(
    guest: Guest,
    name: str,
    arguments: Arguments,
    alignment: Alignment = ALIGNED,
    target: Memory | None = None,
) -> Outcome:
    """Call a function of the table; raise `ProgramCheck`, `NotInLibrary` or `Malformed`.

    An array that the function returns is made in `target` where it can be.
    """
    entry = FUNCTIONS[name]
    if entry.since_number > guest.library_version:
        raise NotInLibrary(name, entry.since, guest.library)
    return answer(Call(guest, alignment, target), entry, arguments)


def answer_plainly(call: Call, entry: Function, arguments: Arguments) -> Outcome:
    """Make a call; return refusals as outcomes, with the texts that the library prints."""
    guest = call.guest
    try:
        outcome = entry.run(call, **arguments)
        if guest.numerics == "jitter" and entry.ulps and outcome.valid:
            _jitter(guest, entry, arguments)
    except Refused as refused:
        refusal = _qualified(entry.name, refused.refusal)
        outcome = Outcome(refusal.status, refusal)
    except ProgramCheck as check:
        raise ProgramCheck(check.kind, _qualified(entry.name, check.refusal)) from check
    if outcome.status == Status.ZDNN_OK and not guest.precheck and guest.log_level is None:
        return outcome
    return diagnosed(guest, entry, arguments, outcome)


answer: Callable[[Call, Function, Arguments], Outcome] = answer_plainly
"""The seam of calls: a shortcut may take the place of the plain function."""


def _jitter(guest: Guest, entry: Function, arguments: Arguments) -> None:
    """Perturb the outputs of one call within the tolerance of its function.

    A recurrent layer that ended early with a warning may not have looked at its outputs' storage.
    """
    for output in entry.outputs:
        guest.sequence += 1
        tensor = arguments[output]
        desc, stored = tensor.transformed_desc, 0 if tensor.buffer is None else tensor.buffer.nbytes
        if desc.type == DataTypes.ZDNN_DLFLOAT16 and stored >= stick_bytes(desc):
            jitter(tensor, entry.ulps, guest.jitter_seed, guest.sequence)


def diagnosed(guest: Guest, entry: Function, arguments: Arguments, outcome: Outcome) -> Outcome:
    """Return an outcome with the texts that the library prints about the call."""
    texts: list[Diagnostic] = []
    if guest.precheck and entry.outputs:
        unavailable = outcome.refusal is not None and outcome.refusal.constraint == "pipeline_c2"
        texts.append(print_precheck(entry.name, arguments, not unavailable))
    texts.extend(
        diagnose(guest, entry.name, entry.module, outcome.status, outcome.refusal, arguments)
    )
    return replace(outcome, diagnostics=tuple(texts))


def _qualified(name: str, refusal: Refusal) -> Refusal:
    """Put the function's name before its own constraint, and name the machine that it needs."""
    if refusal.field == "machine":
        needed = f"zdnn_{name} needs {refusal.limit}; this session runs on {refusal.value}"
        refusal = replace(refusal, sentence=needed)
    if not refusal.constraint.startswith("c"):
        return refusal
    return replace(refusal, constraint=f"{name}_{refusal.constraint}")


def issue(operation: Operation, call: Call, /, **arguments: Argument) -> Outcome:
    """Issue the NNPA instruction as the library does: c2 and c3, then the machine's checks.

    Source: behaviour of the zDNN 1.2.0 library between an operation and the NNPA instruction.
    """
    guest = call.guest
    for name, rule in operation.fields.items():
        arguments[name] = rule(guest, arguments.get(name))
    if not call.checked:
        _require_format(guest, operation.code, operation.parmblk_format)
        if guest.precheck:
            operation.verify(**arguments)
        require_executable(guest.machine, call.alignment, operation, arguments)
    if operation.takes_guest:
        violated = operation.compute(guest=guest, **arguments)
    else:
        violated = operation.compute(**arguments)
    for name in operation.marks:
        arguments[name].is_transformed = True
    if not violated:
        return OK
    tensors = {name: arguments[name] for name in operation.tensors}
    violation = explain_violation(operation.code, tensors, operation.inputs)
    return Outcome(Status.ZDNN_ELEMENT_RANGE_VIOLATION, violation=violation)


def require_facility(guest: Guest, code: FunctionCode, parmblk_format: int) -> None:
    """Check availability for a function that the library issues on its own: pipeline_c2 and c4."""
    _require_format(guest, code, parmblk_format)
    require_installed(guest.machine, code, parmblk_format)


def _require_format(guest: Guest, code: FunctionCode, parmblk_format: int) -> None:
    """Refuse where the library does not remember the parameter block format as installed."""
    if guest.cached.has_parmblk_format(parmblk_format):
        return
    status, limit = Status.ZDNN_UNAVAILABLE_FUNCTION, name_chips(code, parmblk_format)
    raise Refused(status, "machine", guest.machine_as_seen, limit, "pipeline_c2")


def allocate_sticks(guest: Guest, ztensor: Ztensor, label: str) -> None:
    """Check the transformed descriptor and give the ztensor zero-filled, page-aligned sticks.

    Source: zDNN API Reference 1.2.0, zdnn_allochelper_ztensor.
    """
    desc = ztensor.transformed_desc
    require_transformed_desc(desc, guest, label)
    size = getsize_ztensor(desc)
    ztensor.buffer = guest.allocate(size) if size else None
    if ztensor.buffer is None:
        raise Refused(
            Status.ZDNN_ALLOCATION_FAILURE,
            "ztensor.buffer_size",
            f"{size} bytes",
            "at most the storage that is left: free ztensors",
            label,
        )
    ztensor.buffer_size = size
