# SPDX-License-Identifier: Apache-2.0
"""Record the instructions of a session that is in a trace."""

from nnpa.zdnn.v1 import trace_pb2 as pb
from nnpa_emulator.function_codes import FunctionCode

from nnpa_server.accelerator.execute import describe_refusal
from nnpa_server.accelerator.observers.trace_records import Tracing, traced
from nnpa_server.instruction.answers import Answer, Instruction
from nnpa_server.sessions.store import Session

_RECORDED = 512  # bytes of a parameter block: the rest is no input


def record(session: Session, instruction: Instruction, answer: Answer, seconds: float) -> None:
    """Record an instruction that has just ended; an error here does not make it fail."""
    tracing = traced(session)
    if tracing is not None:
        with tracing.cut_on_error("an instruction"):
            _put(tracing, instruction, answer, int(seconds * 1e9))


def _put(tracing: Tracing, instruction: Instruction, answer: Answer, duration: int) -> None:
    message = pb.TracedInstruction(
        session=tracing.number,
        start_ns=max(0, tracing.elapsed() - duration),
        duration_ns=duration,
        general_register_0=instruction.general_register_0,
        general_register_1=instruction.general_register_1,
        general_register_0_after=answer.completion.general_register_0,
        condition_code=answer.completion.condition_code,
    )
    if instruction.name != FunctionCode.NNPA_QAF.name:
        message.parameter_block = instruction.block[:_RECORDED]
    if answer.interruption is not None:
        message.interruption_code = answer.interruption.code
        message.address = answer.interruption.address
    if answer.refusal is not None:
        message.refusal.CopyFrom(describe_refusal(answer.refusal))
    tracing.trace.put(pb.TraceRecord(instruction=message).SerializeToString(), call=True)
