# SPDX-License-Identifier: Apache-2.0
"""Inject the faults of a session's rules into its instructions."""

from collections.abc import Callable, Collection
from dataclasses import replace

from nnpa_emulator import OK, Outcome, Ztensor
from nnpa_emulator.execution import RANGE_VIOLATION, Completion
from nnpa_emulator.parameter_block import BLOCK_BYTES, Role, decode_block
from nnpa_emulator.status import ZDNN_HW_ERROR, ProgramCheck, Status

from nnpa_server.faults import Faults
from nnpa_server.instruction.answers import Answer, Instruction, interrupted

_LOW = 0xFFFFFFFF  # bits 32-63 of general register 0


def inject(
    faults: Faults, instruction: Instruction, roles: Collection[Role], execute: Callable[[], Answer]
) -> Answer:
    """Execute an instruction on the operands of `roles` with the effects of fault rules."""
    executed: list[Answer] = []

    def run() -> Outcome:
        answer = execute()
        executed.append(answer)
        status = answer.status
        return OK if isinstance(status, str) else Outcome(status, answer.refusal)

    tensors = {
        role.name: Ztensor(desc, desc)
        for role, desc in instruction.descriptors.items()
        if role in roles
    }
    try:
        outcome = faults.call(instruction.name, tensors, run)
    except ProgramCheck as check:  # an injected one: `run` turns others into answers
        check.address = _address(instruction) if check.kind == "access" else 0
        return interrupted(instruction, check)
    faults.require_connection()
    return _ended(instruction, outcome, executed[0] if executed else None)


def _address(instruction: Instruction) -> int:
    """Return the address in an injected access exception: the first input, or the block."""
    if len(instruction.block) < BLOCK_BYTES:
        return instruction.general_register_1
    return decode_block(instruction.block).addresses[Role.INPUT_1]


def _ended(instruction: Instruction, outcome: Outcome, executed: Answer | None) -> Answer:
    """Return the answer of an instruction with an injected status."""
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
