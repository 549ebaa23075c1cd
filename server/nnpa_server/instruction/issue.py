# SPDX-License-Identifier: Apache-2.0
"""Issue one instruction on the machine of a session, which the caller holds.

Nothing here knows how an instruction came. Storage beyond the operand is never looked at, so it is
neither counted nor made.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator import OK, Outcome, TensorDesc, Ztensor
from nnpa_emulator.execution import RANGE_VIOLATION, Completion, execute
from nnpa_emulator.function_codes import FunctionCode
from nnpa_emulator.interruption import set_check
from nnpa_emulator.machine import Memory
from nnpa_emulator.parameter_block import BLOCK_BYTES, SAVE_AREA_BYTES, Role, decode_block
from nnpa_emulator.status import ZDNN_HW_ERROR, ProgramCheck, Refusal, Status
from nnpa_emulator.ztensor import operand_bytes

from nnpa_server.errors import CallCancelled, CallRefused
from nnpa_server.faults import Faults, attend, faults_of
from nnpa_server.sessions.cancellation import CancellationCheck, Context
from nnpa_server.sessions.store import Session

# Source: z/Architecture Principles of Operation, "Program Interruption".
INTERRUPTION_CODES: Mapping[str, int] = {
    "operation": 1,
    "access": 4,
    "specification": 6,
    "data": 7,
}
_FUNCTIONS = {int(code): code.name for code in FunctionCode}
_LOW = 0xFFFFFFFF  # bits 32-63 of general register 0
_PROGRAM_CHECK = "PROGRAM_CHECK"  # what metrics call an interruption, as they do that of a call
_NO_FUNCTION = "NNPA"  # what metrics call the instruction with a function code that has no name


@dataclass(frozen=True, slots=True)
class Instruction:
    """Both general registers, and the bytes of the parameter block that can be accessed."""

    general_register_0: int
    general_register_1: int
    block: bytes

    @property
    def name(self) -> str:
        """The name of the function code, for metrics and fault rules."""
        return _FUNCTIONS.get(self.general_register_0 & 0xFF, _NO_FUNCTION)


@dataclass(frozen=True, slots=True)
class Interruption:
    """A program interruption: its code, the address that could not be accessed, and why.

    Not the exception itself: that would keep storage for as long as the answer is on its way.
    """

    code: int
    address: int
    refusal: Refusal
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """How an instruction ended: completed, or with a program interruption."""

    completion: Completion
    interruption: Interruption | None = None

    @property
    def refusal(self) -> Refusal | None:
        """Why it did not do what it was to do."""
        interruption = self.interruption
        return self.completion.refusal if interruption is None else interruption.refusal


def out_of_storage() -> CallRefused:
    """Return the error for a host that cannot allocate what the session may have."""
    text = "the host has no storage left: retry later"
    return CallRefused(wire.ERROR_REASON_TENSOR_QUOTA_EXCEEDED, text, field="storage")


def operand_sizes(block: bytes) -> Mapping[Role, int]:
    """Return how many bytes of each role's storage a parameter block can mean; none if cut short.

    A block that describes no tensor means none.
    """
    sizes = {role: operand_bytes(desc) for role, desc in _descriptors(block).items()}
    return {**sizes, Role.SAVE_AREA: SAVE_AREA_BYTES} if sizes else {}


def _descriptors(block: bytes) -> Mapping[Role, TensorDesc]:
    """Return the descriptors in a parameter block, none of one that is cut short."""
    return decode_block(block).descriptors if len(block) == BLOCK_BYTES else {}


def issue(
    session: Session,
    instruction: Instruction,
    storage: Mapping[Role, Memory],
    context: Context,
) -> Answer:
    """Issue an instruction; outputs are written to their storage."""
    set_check(CancellationCheck(context, session))
    started = time.perf_counter()
    status: int | str = "INTERNAL"
    try:
        if (faults := faults_of(session)) is None:
            answer = _execute(session, instruction, storage)
        else:
            attend(session, context)
            answer = _execute_with(faults, session, instruction, storage)
        status = _status(answer)
        return answer
    except CallCancelled as error:
        status = error.code.name
        raise
    except CallRefused as error:
        status = error.name
        raise
    finally:
        set_check(None)
        session.trail.operations += 1
        if session.metrics is not None:
            seconds = time.perf_counter() - started
            machine = session.trail.machine
            session.metrics.operation(instruction.name, machine, status, seconds)


def _execute_with(
    faults: Faults, session: Session, instruction: Instruction, storage: Mapping[Role, Memory]
) -> Answer:
    """Execute an instruction with the effects of fault rules."""
    executed: list[Answer] = []

    def run() -> Outcome:
        answer = _execute(session, instruction, storage)
        executed.append(answer)
        status = _status(answer)
        return OK if isinstance(status, str) else Outcome(status, answer.refusal)

    tensors = {
        role.name: Ztensor(desc, desc)
        for role, desc in _descriptors(instruction.block).items()
        if role in storage
    }
    try:
        outcome = faults.call(instruction.name, tensors, run)
    except ProgramCheck as check:  # an injected one: what `run` meets is an answer
        check.address = _address(instruction) if check.kind == "access" else 0
        return _interrupted(instruction, check)
    faults.require_connection()
    return _ended(instruction, outcome, executed[0] if executed else None)


def _address(instruction: Instruction) -> int:
    """Return what an injected access exception names: the first input, or the block."""
    if len(instruction.block) < BLOCK_BYTES:
        return instruction.general_register_1
    return decode_block(instruction.block).addresses[Role.INPUT_1]


def _ended(instruction: Instruction, outcome: Outcome, executed: Answer | None) -> Answer:
    """Return how an instruction ends that executed, or did not, and has this status."""
    if executed is not None and executed.interruption is not None:
        return executed
    status, register = int(outcome.status), instruction.general_register_0 & _LOW
    written = {} if executed is None else executed.completion.written
    if status > ZDNN_HW_ERROR:
        register |= (status - ZDNN_HW_ERROR) << 48
        return Answer(Completion(register, 1, refusal=outcome.refusal, written=written))
    assert executed is not None
    completion = executed.completion
    if status == Status.ZDNN_ELEMENT_RANGE_VIOLATION:
        flagged = completion.general_register_0 | RANGE_VIOLATION << 32
        completion = replace(completion, general_register_0=flagged)
    return Answer(completion)


def _execute(session: Session, instruction: Instruction, storage: Mapping[Role, Memory]) -> Answer:
    """Execute, once the session may have the copies of operands that are computed on."""
    sizes = operand_sizes(instruction.block)
    copied = sum(
        min(memory.nbytes, sizes.get(role, 0))
        for role, memory in storage.items()
        if role != Role.SAVE_AREA
    )
    session.reserve(copied)
    session.pending_bytes += copied
    register = instruction.general_register_0
    try:
        return Answer(
            execute(
                session.guest,
                register,
                instruction.general_register_1,
                instruction.block,
                storage,
            )
        )
    except ProgramCheck as check:
        return _interrupted(instruction, check)
    except MemoryError as error:
        raise out_of_storage() from error


def _interrupted(instruction: Instruction, check: ProgramCheck) -> Answer:
    """Return how a program check ends an instruction."""
    code, address = INTERRUPTION_CODES[check.kind], check.address % (1 << 64)
    interruption = Interruption(code, address, check.refusal, str(check))
    return Answer(Completion(instruction.general_register_0), interruption)


def _status(answer: Answer) -> int | str:
    """Return what metrics call an instruction's end: the library's status for it, or a reason."""
    if answer.interruption is not None:
        return _PROGRAM_CHECK
    completion = answer.completion
    if completion.condition_code:
        return ZDNN_HW_ERROR + completion.response_code
    flags = completion.exception_flags
    return int(Status.ZDNN_ELEMENT_RANGE_VIOLATION if flags else Status.ZDNN_OK)
