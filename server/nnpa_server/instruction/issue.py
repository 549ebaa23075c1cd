# SPDX-License-Identifier: Apache-2.0
"""Issue one instruction on the machine of a session, which the caller holds.

Nothing here knows how an instruction came. Storage beyond the operand is never looked at, so it is
neither counted nor made.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator.execution import Completion, execute
from nnpa_emulator.function_codes import FunctionCode
from nnpa_emulator.interruption import set_check
from nnpa_emulator.machine import Memory
from nnpa_emulator.parameter_block import BLOCK_BYTES, SAVE_AREA_BYTES, Role, decode_block
from nnpa_emulator.status import ZDNN_HW_ERROR, ProgramCheck, Refusal, Status
from nnpa_emulator.ztensor import operand_bytes

from nnpa_server.errors import CallCancelled, CallRefused
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
_PROGRAM_CHECK = "PROGRAM_CHECK"  # what metrics call an interruption, as they do that of a call
_NO_FUNCTION = "NNPA"  # what metrics call the instruction with a function code that has no name


@dataclass(frozen=True, slots=True)
class Instruction:
    """Both general registers, and the bytes of the parameter block that can be accessed."""

    general_register_0: int
    general_register_1: int
    block: bytes


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
    if len(block) < BLOCK_BYTES:
        return {}
    sizes = {role: operand_bytes(desc) for role, desc in decode_block(block).descriptors.items()}
    return {**sizes, Role.SAVE_AREA: SAVE_AREA_BYTES}


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
        answer = _execute(session, instruction, storage)
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
            name = _FUNCTIONS.get(instruction.general_register_0 & 0xFF, _NO_FUNCTION)
            seconds = time.perf_counter() - started
            session.metrics.operation(name, session.trail.machine, status, seconds)


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
        address = check.address % (1 << 64)
        code = INTERRUPTION_CODES[check.kind]
        interruption = Interruption(code, address, check.refusal, str(check))
        return Answer(Completion(register), interruption)
    except MemoryError as error:
        raise out_of_storage() from error


def _status(answer: Answer) -> int | str:
    """Return what metrics call an instruction's end: the library's status for it, or a reason."""
    if answer.interruption is not None:
        return _PROGRAM_CHECK
    completion = answer.completion
    if completion.condition_code:
        return ZDNN_HW_ERROR + completion.response_code
    flags = completion.exception_flags
    return int(Status.ZDNN_ELEMENT_RANGE_VIOLATION if flags else Status.ZDNN_OK)
