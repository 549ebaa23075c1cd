# SPDX-License-Identifier: Apache-2.0
"""The NNPA instruction as a program issues it: registers, a parameter block, and storage.

execution_c1  the function is installed, else response code 0002; on a machine without the facility
              an operation exception ends the program
execution_c2  the parameter block is on a doubleword boundary, else a specification exception
execution_c3  the parameter block can be accessed, else an access exception: 256 bytes that QAF
              stores, 4096 bytes of any other function
execution_c4  the format of the block is installed, and the function exists in it, else 0001

Then come pipeline_c5 to pipeline_c10 of `pipeline`, in the order of the operands in the block, and
execution_c5, access to them and to the save area. With condition code 1 no output is touched.
Sources: zDNN API Reference 1.2.0, "Hardware Statuses"; nnpa.h of zDNN 1.2.0. The relative priority
of conditions is our reading (see the fidelity contract). Condition codes 2 and 3 do not occur.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from nnpa_emulator.fields import dlfloat_field
from nnpa_emulator.function_codes import FunctionCode
from nnpa_emulator.instruction import (
    Alignment,
    Argument,
    operand_bytes,
    require_operands,
    response,
)
from nnpa_emulator.machine import QAF_BYTES, Guest, Memory, name_chips, page_memory
from nnpa_emulator.machine_functions import MachineFunction, find_function
from nnpa_emulator.parameter_block import (
    ALIGNMENT,
    BLOCK_BYTES,
    INPUTS,
    OUTPUTS,
    SAVE_AREA_BYTES,
    ParameterBlock,
    Role,
    decode_block,
)
from nnpa_emulator.status import ZDNN_HW_ERROR, CheckKind, ProgramCheck, Refusal, Refused
from nnpa_emulator.ztensor import PAGE, DataFormats, DataTypes, TensorDesc, Ztensor, name_of

RANGE_VIOLATION = 0x80
_FUNCTION, _WORD = 0xFF, 0xFFFFFFFF  # bits 56-63 and 32-63 of general register 0
_RESPONSE_SHIFT, _FLAGS_SHIFT = 48, 32


@dataclass(frozen=True, slots=True)
class Completion:
    """The completion of an instruction: general register 0, and the condition code.

    `stored` goes to the beginning of the parameter block. `written` has the bytes stored in each
    output. `refusal` explains condition code 1.
    """

    general_register_0: int
    condition_code: int = 0
    stored: bytes = b""
    refusal: Refusal | None = None
    written: Mapping[Role, int] = field(default_factory=dict[Role, int])

    @property
    def response_code(self) -> int:
        """Bits 0-15 of general register 0."""
        return self.general_register_0 >> _RESPONSE_SHIFT

    @property
    def exception_flags(self) -> int:
        """Bits 24-31 of general register 0."""
        return self.general_register_0 >> _FLAGS_SHIFT & 0xFF


def execute(
    guest: Guest,
    general_register_0: int,
    general_register_1: int,
    block: bytes | memoryview,
    storage: Mapping[Role, Memory],
) -> Completion:
    """Execute the instruction; raise `ProgramCheck` if it ends the program.

    `block` has the accessible bytes of the parameter block, which begins at general register 1.
    `storage` has the bytes at the addresses in the block: big-endian cells; outputs are written.
    """
    low = general_register_0 & _WORD
    try:
        return _execute(guest, low, general_register_1, block, storage)
    except Refused as refused:
        code = refused.refusal.status - ZDNN_HW_ERROR
        return Completion(code << _RESPONSE_SHIFT | low, 1, refusal=refused.refusal)


def _execute(
    guest: Guest,
    low: int,
    address: int,
    block: bytes | memoryview,
    storage: Mapping[Role, Memory],
) -> Completion:
    code = low & _FUNCTION
    _require_function(guest, code)
    if address % ALIGNMENT:
        limit = f"on {ALIGNMENT} bytes"
        raise _check("specification", "parameter block", f"at {address:#x}", limit, "execution_c2")
    size = QAF_BYTES if code == FunctionCode.NNPA_QAF else BLOCK_BYTES
    if len(block) < size:
        limit = f"at least {size} bytes"
        raise _check(
            "access", "parameter block", f"{len(block)} bytes", limit, "execution_c3",
            address + len(block),
        )  # fmt: skip
    if code == FunctionCode.NNPA_QAF:
        return Completion(low, stored=guest.machine.qaf.block())
    violated, written = _compute(guest, code, decode_block(block), storage)
    flags = RANGE_VIOLATION << _FLAGS_SHIFT if violated else 0
    return Completion(flags | low, written=written)


def _require_function(guest: Guest, code: int) -> None:
    machine = guest.machine
    if not machine.nnpa_installed:
        limit = name_chips(FunctionCode.NNPA_QAF)
        raise _check("operation", "machine", machine.label, limit, "execution_c1")
    if not machine.qaf.has_function(code):
        value, limit = name_of(FunctionCode, code), f"a function of {machine.label}"
        chips = name_chips(code)
        limit += f"; {chips} has it" if chips else ""
        raise response(0x0002, "function code", value, limit, "execution_c1")


def _compute(
    guest: Guest, code: int, block: ParameterBlock, storage: Mapping[Role, Memory]
) -> tuple[bool, Mapping[Role, int]]:
    """Check and compute; return whether a non-numeric value was met, and the bytes of outputs."""
    operands = {  # nobody looks at their memory before all checks have passed
        role: Ztensor(desc, desc, buffer=storage.get(role))
        for role, desc in block.descriptors.items()
    }
    leading = (*(operands[role] for role in INPUTS), operands[Role.OUTPUT_1])
    function = None
    if guest.machine.qaf.has_parmblk_format(block.version & 0x7F) and block.version < 0x80:
        function = find_function(code, block.version, *leading)
    if function is None:
        limit = f"a format of {name_of(FunctionCode, code)} on {guest.machine.label}"
        raise response(0x0001, "parameter block version", block.version, limit, "execution_c4")
    roles = dict(zip(function.form.inputs, INPUTS, strict=False))
    roles |= dict(zip(function.form.outputs, OUTPUTS, strict=False))
    arguments: dict[str, Argument] = {name: operands[role] for name, role in roles.items()}
    arguments |= _parameters(guest, function, block.words)
    alignment = _alignment(block, roles, operands)
    require_operands(guest.machine, alignment, function.operation, arguments)
    for name in function.operation.tensors:
        operand = operands[roles[name]]
        needed = operand_bytes(operand.transformed_desc)
        _require_access(name, operand.buffer, needed, block.addresses[roles[name]])
    if function.operation.save_area:
        area = storage.get(Role.SAVE_AREA)
        _require_access("save area", area, SAVE_AREA_BYTES, block.save_area)
    violated: bool = _run(guest, function, arguments)
    written = dict[Role, int]()
    for name in function.form.outputs:
        desc, role = arguments[name].transformed_desc, roles[name]
        written[role] = operand_bytes(desc)
        storage[role][: written[role]] = _swapped(arguments[name].sticks, desc)
    return violated, written


def _parameters(
    guest: Guest, function: MachineFunction, words: tuple[int, ...]
) -> dict[str, Argument]:
    """Return the function specific parameters; numbers in DLFLOAT16 are in the block as codes."""
    values: dict[str, Argument] = {}
    for parameter in function.form.fields:
        rule, value = function.operation.fields[parameter.name], parameter.read(words)
        values[parameter.name] = value if rule is dlfloat_field else rule(guest, value)
    return values


def _alignment(
    block: ParameterBlock, roles: Mapping[str, Role], operands: Mapping[Role, Ztensor]
) -> Alignment:
    """Look at the addresses in the block; dense operands may lie anywhere."""
    sticks = [
        role
        for role in roles.values()
        if operands[role].transformed_desc.format != DataFormats.ZDNN_FORMAT_4DGENERIC
    ]
    return Alignment(
        buffer_misaligned=any(block.addresses[role] % PAGE for role in sticks),
        save_area_misaligned=bool(block.save_area % PAGE),
    )


def _require_access(name: str, memory: Memory | None, needed: int, address: int) -> None:
    held = 0 if memory is None else memory.nbytes
    if held < needed:
        limit = f"at least {needed} bytes"
        raise _check("access", name, f"{held} bytes", limit, "execution_c5", address + held)


def _run(guest: Guest, function: MachineFunction, arguments: dict[str, Argument]) -> bool:
    """Compute on copies of the operands in the host's order of bytes."""
    for name in function.operation.tensors:
        desc = arguments[name].transformed_desc
        size = operand_bytes(desc)
        if name in function.form.outputs:
            memory = page_memory(size)
        else:
            memory = _swapped(arguments[name].sticks[:size], desc)
        if memory is None:
            raise MemoryError(f"no storage for {size} bytes of {name}")
        arguments[name] = Ztensor(desc, desc, size, memory)
    if function.operation.takes_guest:
        return bool(function.operation.compute(guest=guest, **arguments))
    return bool(function.operation.compute(**arguments))


_WORDS = frozenset((DataTypes.ZDNN_BINARY_FP32, DataTypes.ZDNN_BINARY_INT32))


def _swapped(memory: Memory, desc: TensorDesc) -> Memory:
    """Return a copy of an operand with its cells in the other order of bytes."""
    if desc.type == DataTypes.ZDNN_BINARY_INT8:
        return memory.copy()
    cells = np.dtype(np.uint32 if desc.type in _WORDS else np.uint16)
    return memory.view(cells).byteswap().view(np.uint8)


def _check(
    kind: CheckKind, field: str, value: str, limit: str, constraint: str, address: int = 0
) -> ProgramCheck:
    return ProgramCheck(kind, Refusal(0, field, value, limit, constraint), address)
