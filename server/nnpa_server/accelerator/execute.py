# SPDX-License-Identifier: Apache-2.0
"""Run the steps of a list one by one, and encode their results.

The functions here are called with the session's lock held.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any

import numpy as np
from nnpa.zdnn.v1 import accelerator_pb2, operation_pb2, status_pb2, tensor_pb2
from nnpa_emulator import Outcome, Refusal, Status, TensorDesc, Ztensor, interruption
from nnpa_emulator import run as run_function
from nnpa_emulator.arith import RangeViolation
from nnpa_emulator.machine import Memory
from nnpa_emulator.status import Malformed, NotInLibrary, ProgramCheck, get_status_message

from nnpa_server.accelerator.arguments import run_with_new
from nnpa_server.accelerator.decode import Request, Step
from nnpa_server.accelerator.encode import dense, place_output, put
from nnpa_server.accelerator.operands import cache_output, dense_bytes, too_large
from nnpa_server.accelerator.seams import PATH, Answer, CallPath, Result, Sticks, Tensors
from nnpa_server.errors import CallRefused, from_exception
from nnpa_server.rpc.codec import Array, Response, content_sizes
from nnpa_server.sessions.cancellation import CancellationCheck, Context
from nnpa_server.sessions.shared_memory import shared_of
from nnpa_server.sessions.store import Session

_NO_STICKS: Sticks = {}
_message = lru_cache(maxsize=256)(get_status_message)


def path_of(session: Session) -> CallPath:
    """Return the call path of a session; refuse a session that was deleted."""
    path = session.holdings.get(PATH)
    if not isinstance(path, CallPath):
        session.require_open()
    assert isinstance(path, CallPath)
    return path


def hold(session: Session, _request: Request, context: Context) -> AbstractContextManager[None]:
    """Return a context that holds the session's lock for one call."""
    return session.running(context.time_remaining())


def run(path: CallPath, session: Session, steps: Sequence[Step], context: Context) -> Response:
    """Run decoded steps; stop after the first status that is neither OK nor a warning."""
    go_on = CancellationCheck(context, session)
    interruption.thread.check = go_on
    try:
        return _run_steps(path, session, steps, go_on)
    finally:
        interruption.thread.check = None


def _run_steps(
    path: CallPath, session: Session, steps: Sequence[Step], go_on: CancellationCheck
) -> Response:
    results: list[Result] = []
    arrays: dict[int, Array] = {}
    sticks: dict[int, Sticks] = {}
    room = session.limits.max_message
    for index, step in enumerate(steps):
        if index or session.has_waited:
            go_on()
        try:
            answer = path.run_step(session, step)
            if step.inline or isinstance(answer.outcome.value, np.ndarray):
                if (array := _array_beside(session, step, answer)) is not None:
                    arrays[index] = array
                if answer.sticks:
                    sticks[index] = answer.sticks
                room -= _carried(session, step, answer, array, room)
        except (CallRefused, ProgramCheck, Malformed, NotInLibrary) as error:
            raise from_exception(error, operation_index=index, operation=step.spec.name) from error
        results.append(answer.result)
        if not answer.outcome.valid:
            break
    session.trail.operations += len(results)
    return Response(results, arrays, sticks)


def _array_beside(session: Session, step: Step, answer: Answer) -> Array | None:
    """Return the array that travels with a result, or None if it has none or shares it."""
    value, place = answer.outcome.value, step.place
    if not isinstance(value, np.ndarray):
        return None
    array = dense(value)
    if place is None or not put(session, place, array, step.path):
        return array
    shared = answer.result.shared
    shared.offset, shared.size = place.offset, array.nbytes
    return None


def _carried(session: Session, step: Step, answer: Answer, array: Array | None, room: int) -> int:
    """Return the bytes of a result's contents; refuse what is above the limit of a message."""
    sizes, limit = content_sizes(answer.result, array, answer.sticks), session.limits.max_inline
    if max(sizes) > limit:
        raise too_large(step.path, max(sizes), limit)
    if (total := sum(sizes)) > room:
        limit = session.limits.max_message
        raise too_large("results", limit - room + total, limit)
    return total


def run_step(path: CallPath, session: Session, step: Step) -> Answer:
    """Run one operation; `run_with_contents` has guards for answers with an array or sticks."""
    if step.inline or step.spec.name == "transform_origtensor":
        return path.run_with_contents(session, step)
    return answer_step(path, session, step)


def answer_step(path: CallPath, session: Session, step: Step) -> Answer:
    """Run one operation and encode its result; count the memory of its tensors however it ends."""
    tensors: dict[str, Ztensor] = {}
    try:
        for name, number in step.ids.items():
            tensors[name] = session.tensors[number]
        if step.inline or step.new_ids or step.creates:
            outcome = run_with_new(path, session, step, tensors)
        else:
            if step.spec.name == "transform_origtensor":
                _require_answer_fits(session, step, tensors["ztensor"])
            outcome = path.call_function(session, step, tensors)
        if step.spec.frees and outcome.valid:
            for number in step.ids.values():
                del session.tensors[number]
    finally:
        session.pending_bytes = 0
        if not step.spec.compute:
            for number in step.ids.values():
                session.settle(number)
    return Answer(outcome, *path.encode_result(session, step, tensors, outcome))


def call_function(session: Session, step: Step, tensors: Tensors) -> Outcome:
    """Call the emulator; turn a program check into a status if the session's options say so."""
    arguments = {**tensors, **step.values} if step.values else tensors
    target: Memory | None = None  # for an array to be computed where the client shares memory
    if step.place is not None and (memory := shared_of(session)) is not None:
        target = memory.view(step.place.offset, step.place.size, "shared_data")
    try:
        return run_function(session.guest, step.spec.name, arguments, step.alignment, target)
    except ProgramCheck as check:
        return check_outcome(session, check)
    except MemoryError:
        status = int(Status.ZDNN_ALLOCATION_FAILURE)
        return Outcome(status, Refusal(status, "storage", "exhausted", "enough to compute"))


def check_outcome(session: Session, check: ProgramCheck) -> Outcome:
    """Return the outcome of a program check, or raise the check if it ends the call.

    Its status is the one that precheck would give, else ZDNN_UNSUPPORTED_AIU_EXCEPTION.
    """
    if session.options.program_check_action != accelerator_pb2.PROGRAM_CHECK_ACTION_STATUS:
        raise check
    refusal: Refusal = check.refusal
    status = refusal.status if check.kind == "data" else 0
    status = status or Status.ZDNN_UNSUPPORTED_AIU_EXCEPTION
    return Outcome(status, replace(refusal, status=int(status)))


def _require_answer_fits(session: Session, step: Step, tensor: Ztensor) -> None:
    """Refuse an array that is too large for an answer or the session, before it is computed.

    The library itself refuses a tensor without contents.
    """
    if not tensor.is_transformed or tensor.buffer is None:
        return
    size, limit = dense_bytes(tensor), session.limits.max_inline
    if size > limit:
        raise too_large(step.path, size, limit)
    session.reserve(size)


def encode_result(
    session: Session, step: Step, tensors: Tensors, outcome: Outcome
) -> tuple[Result, Sticks]:
    """Return an operation's result, and the sticks of its inline outputs by number."""
    result = answer(outcome)
    if outcome.valid or outcome.status == Status.ZDNN_CONVERT_FAILURE:
        return result, report_outputs(session, result, step, tensors)
    return result, _NO_STICKS


def report_outputs(session: Session, result: Result, step: Step, tensors: Tensors) -> Sticks:
    """Add to a result the tensors whose contents or state the operation created or changed.

    Return the sticks of inline outputs, which travel beside the result, by output number.
    """
    sticks: dict[int, Array] = {}
    for name in step.spec.written:
        tensor = tensors[name]
        operand = step.inline.get(name)
        if operand is None:
            number = step.new_ids.get(name) or step.ids.get(name) or step.creates
            result.outputs.add(id=number, operand=name, ztensor=describe_ztensor(tensor))
        elif tensor.buffer is not None and name in step.spec.filled:
            request = operand.message
            contents, message = place_output(session, tensor, request), describe_ztensor(tensor)
            message.byte_order = request.byte_order
            if contents is None:
                message.shared.CopyFrom(request.sticks_to)
            else:
                sticks[len(result.outputs)] = contents
            result.outputs.add(operand=name, ztensor=message)
            cache_output(session, tensor, request)
        else:
            result.outputs.add(operand=name, ztensor=describe_ztensor(tensor))
    return sticks


def answer(outcome: Outcome) -> Result:
    """Return the result message of an outcome, without its outputs and its array."""
    status = int(outcome.status)
    result = Result(zdnn_status=status, status_message=_message(status))
    if outcome.refusal is not None:
        result.refusal.CopyFrom(describe_refusal(outcome.refusal))
    if outcome.violation is not None:
        result.range_violation.CopyFrom(_violation(outcome.violation))
    if outcome.fp_flags:
        result.fp_flags = outcome.fp_flags
    for text in outcome.diagnostics:
        result.diagnostics.add(stream=_signed(text.stream), kind=_signed(text.kind), text=text.text)
    match outcome.value:
        case bool() as value:
            result.boolean = value
        case int() as value:
            result.number = value
        case tuple() as value:  # no sequence pattern: since NumPy 2.5 an array matches those
            result.range.min, result.range.max = value
        case _:
            pass  # an array travels apart
    return result


def describe_refusal(refusal: Refusal) -> status_pb2.Refusal:
    """Return the message of a refusal."""
    return status_pb2.Refusal(
        field=refusal.field,
        value=refusal.value,
        limit=refusal.limit,
        constraint=refusal.constraint,
        text=str(refusal),
    )


def _violation(violation: RangeViolation) -> operation_pb2.RangeViolation:
    message = operation_pb2.RangeViolation()
    if violation.function is not None:
        message.function = operation_pb2.NnpaFunctionCode.ValueType(violation.function)
    for operand in violation.operands:
        elements = (
            operation_pb2.ViolatingElement(**asdict(element)) for element in operand.elements
        )
        message.operands.add(operand=operand.operand, count=operand.count, elements=elements)
    return message


def serialize(answered: Response) -> bytes:
    """Return the wire form of a list's results, their arrays and sticks included."""
    response = accelerator_pb2.ExecuteResponse(results=answered.results)
    for index, array in answered.arrays.items():
        response.results[index].data = array.tobytes()
    for index, outputs in answered.sticks.items():
        for output, array in outputs.items():
            response.results[index].outputs[output].ztensor.sticks = array.tobytes()
    return response.SerializeToString()


@lru_cache(maxsize=4096)
def describe(desc: TensorDesc) -> tensor_pb2.TensorDesc:
    """Return the message of a descriptor; it is cached, so callers must not change it."""
    numbers = {name: _signed(getattr(desc, name)) for name in ("layout", "format", "type")}
    return tensor_pb2.TensorDesc(**asdict(desc) | numbers)


def _signed(number: int) -> Any:
    """Return the int32 with the same bits as a C enum's value."""
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


def describe_ztensor(tensor: Ztensor) -> tensor_pb2.Ztensor:
    """Return the message of a ztensor without its contents."""
    return tensor_pb2.Ztensor(
        pre_transformed_desc=describe(tensor.pre_transformed_desc),
        transformed_desc=describe(tensor.transformed_desc),
        buffer_size=tensor.buffer_size,
        null_buffer=tensor.buffer is None,
        is_transformed=tensor.is_transformed,
        rec_scale=tensor.rec_scale,
        offset=tensor.offset,
    )
