# SPDX-License-Identifier: Apache-2.0
"""Issue one instruction on the machine of a session, whose lock must be held.

The functions here do not depend on the transport. Storage behind an operand is never accessed, so
it is neither counted nor allocated.
"""

import time
from collections.abc import Mapping
from functools import partial

from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator import interruption
from nnpa_emulator.execution import execute
from nnpa_emulator.machine import Memory
from nnpa_emulator.parameter_block import Role
from nnpa_emulator.status import ProgramCheck

from nnpa_server.errors import CallCancelled, CallRefused, reason_of
from nnpa_server.faults import attend, faults_of
from nnpa_server.instruction.answers import Answer, Instruction, interrupted
from nnpa_server.instruction.injecting import inject
from nnpa_server.instruction.tracing import record
from nnpa_server.sessions.cancellation import CancellationCheck, Context
from nnpa_server.sessions.store import Session


def out_of_storage() -> CallRefused:
    """Return the error for a host that lacks memory within the session's quota."""
    text = "the host has no storage left: retry later"
    return CallRefused(wire.ERROR_REASON_TENSOR_QUOTA_EXCEEDED, text, field="storage")


def issue(
    session: Session, instruction: Instruction, storage: Mapping[Role, Memory], context: Context
) -> Answer:
    """Issue an instruction, with injected faults if the session has rules; write its outputs."""
    attend(session, context)
    faults, compute = faults_of(session), partial(_compute, session, instruction, storage)
    interruption.thread.check = CancellationCheck(context, session)
    started = time.perf_counter()
    try:
        answer = compute() if faults is None else inject(faults, instruction, storage, compute)
    except (CallCancelled, CallRefused) as error:
        _count(session, instruction, reason_of(error), time.perf_counter() - started)
        raise
    finally:
        interruption.thread.check = None
    seconds = time.perf_counter() - started
    _count(session, instruction, answer.status, seconds)
    record(session, instruction, answer, seconds)
    return answer


def _count(session: Session, instruction: Instruction, status: int | str, seconds: float) -> None:
    session.trail.operations += 1
    if session.metrics is not None:
        session.metrics.operation(instruction.name, session.trail.machine, status, seconds)


def _compute(session: Session, instruction: Instruction, storage: Mapping[Role, Memory]) -> Answer:
    """Execute an instruction after its copies of operands are counted in the session."""
    sizes = instruction.operand_sizes
    copied = sum(
        min(memory.nbytes, sizes.get(role, 0))
        for role, memory in storage.items()
        if role != Role.SAVE_AREA
    )
    session.reserve(copied)
    session.pending_bytes += copied
    register_0, register_1 = instruction.general_register_0, instruction.general_register_1
    try:
        return Answer(execute(session.guest, register_0, register_1, instruction.block, storage))
    except ProgramCheck as check:
        return interrupted(instruction, check)
    except MemoryError as error:
        raise out_of_storage() from error
