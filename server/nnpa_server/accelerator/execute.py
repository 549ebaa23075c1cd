# SPDX-License-Identifier: Apache-2.0
"""Run the steps of a list one by one. Whoever calls holds the session's lock all the while."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from nnpa.zdnn.v1 import accelerator_pb2, tensor_pb2
from nnpa_emulator import Outcome, Refusal, Status, Ztensor
from nnpa_emulator import run as run_function
from nnpa_emulator.machine import Memory
from nnpa_emulator.pipeline import allocate_sticks
from nnpa_emulator.status import Malformed, NotInLibrary, ProgramCheck, Refused
from nnpa_emulator.ztensor import UNSET

from nnpa_server.accelerator.decode import Step
from nnpa_server.accelerator.encode import dense, put_array
from nnpa_server.accelerator.operands import (
    Operand,
    dense_bytes,
    read_operand,
    read_structure,
    too_large,
)
from nnpa_server.accelerator.seams import (
    Answer,
    CallPath,
    Result,
    Sticks,
    Tensors,
)
from nnpa_server.errors import CallRefused, from_exception, unspecified
from nnpa_server.rpc.codec import Answered, Array, carried
from nnpa_server.sessions.cancellation import Context, Patience
from nnpa_server.sessions.shared_memory import shared_of
from nnpa_server.sessions.store import Session


def run(path: CallPath, session: Session, steps: Sequence[Step], context: Context) -> Answered:
    """Run decoded steps; stop after the first status that is neither OK nor a warning."""
    results: list[Result] = []
    arrays: dict[int, Array] = {}
    sticks: dict[int, Sticks] = {}
    room = session.limits.max_message
    go_on = Patience(context, session)
    for index, step in enumerate(steps):
        go_on()
        try:
            outcome, result, apart = path.run_step(session, step)
            if apart:
                sticks[index] = apart
            array = outcome.value if isinstance(outcome.value, np.ndarray) else None
            if array is not None and put_array(session, step.place, array, result, step.path):
                array = None
            if step.others or array is not None:
                if array is not None:
                    arrays[index] = dense(array)
                contents = carried(result, arrays.get(index), apart)
                room -= _within(contents, step.path, session.limits.max_inline)
                if room < 0:
                    limit = session.limits.max_message
                    raise too_large("results", limit - room, limit)
        except (CallRefused, ProgramCheck, Malformed, NotInLibrary) as error:
            raise from_exception(error, operation_index=index, operation=step.arm.name) from error
        results.append(result)
        if not outcome.valid:
            break
    session.trail.operations += len(results)
    return Answered(results, arrays, sticks)


def _within(sizes: Sequence[int], path: str, limit: int) -> int:
    """Return the sum of sizes, none of which may be above the limit of a message."""
    if max(sizes) > limit:
        raise too_large(path, max(sizes), limit)
    return sum(sizes)


def read_step_structure(step: Step, name: str) -> Ztensor:
    """Return an inline tensor of a step without its buffer."""
    return read_structure(step.others[name][1], f"{step.path}.{name}.inline_ztensor")


def run_step(path: CallPath, session: Session, step: Step) -> Answer:
    """Run one operation and encode what it answered; memory is counted however it ends."""
    try:
        tensors = {name: session.tensors[number] for name, number in step.ids.items()}
        if step.others or step.creates:
            outcome = _run_with_new(path, session, step, tensors)
        else:
            if step.arm.name == "transform_origtensor":
                _require_answer_fits(session, step, tensors["ztensor"])
            outcome = path.call_function(session, step, tensors)
        if step.arm.frees and outcome.valid:
            for number in step.ids.values():
                del session.tensors[number]
    finally:
        session.pending_bytes = 0
        if not step.arm.compute:
            for number in step.ids.values():
                session.settle(number)
    return Answer(outcome, *path.encode_result(session, step, tensors, outcome))


def call_function(session: Session, step: Step, tensors: Tensors) -> Outcome:
    """Call the emulator; a program check becomes a status where the session wants that."""
    arguments = {**tensors, **step.values} if step.values else tensors
    target = None if step.place is None else _target(session, step.place)
    try:
        return run_function(session.guest, step.arm.name, arguments, step.alignment, target)
    except ProgramCheck as check:
        return check_outcome(session, check)
    except MemoryError:
        status = int(Status.ZDNN_ALLOCATION_FAILURE)
        return Outcome(status, Refusal(status, "storage", "exhausted", "enough to compute"))


def _target(session: Session, place: tensor_pb2.Extent) -> Memory | None:
    """Return where an array can be made that the client wants in shared memory."""
    memory = shared_of(session)
    return None if memory is None else memory.view(place.offset, place.size, "shared_data")


def check_outcome(session: Session, check: ProgramCheck) -> Outcome:
    """Return what a program check answers, or raise it where it ends the call.

    It answers the status that precheck would have given, else ZDNN_UNSUPPORTED_AIU_EXCEPTION.
    """
    if session.options.program_check_action != accelerator_pb2.PROGRAM_CHECK_ACTION_STATUS:
        raise check
    refusal: Refusal = check.refusal
    status = refusal.status if check.kind == "data" else 0
    status = status or Status.ZDNN_UNSUPPORTED_AIU_EXCEPTION
    return Outcome(status, replace(refusal, status=int(status)))


def _require_answer_fits(session: Session, step: Step, tensor: Ztensor) -> None:
    """Refuse an array too large for an answer, or for the session, before it is made.

    A tensor without contents is left to the library, which refuses it.
    """
    if not tensor.is_transformed or tensor.buffer is None:
        return
    size, limit = dense_bytes(tensor), session.limits.max_inline
    if size > limit:
        raise too_large(step.path, size, limit)
    session.reserve(size)


def _run_with_new(
    path: CallPath, session: Session, step: Step, tensors: dict[str, Ztensor]
) -> Outcome:
    """Run an operation that brings tensors inline or creates some; fill `tensors` with them."""
    arm = step.arm
    for name, (which, message) in step.others.items():
        if which == "inline_ztensor":
            place = f"{step.path}.{name}.inline_ztensor"
            operand = Operand(message, place, name not in arm.read, arm.may_leave)
            tensors[name] = read_operand(session, operand, path.read_structure(step, name))
    created = {name: number for name, (which, number) in step.others.items() if which == "new_id"}
    try:
        tensors.update(_allocate_new(session, step, tensors, tuple(created)))
    except Refused as refused:
        return Outcome(refused.refusal.status, refused.refusal)
    if step.creates:
        session.require_room()
        created = {"ztensor": step.creates}
        tensors["ztensor"] = Ztensor(UNSET, UNSET)
    if arm.name == "transform_origtensor" and tensors["ztensor"].buffer is not None:
        session.reserve(dense_bytes(tensors["ztensor"]))
    outcome = path.call_function(session, step, tensors)
    if outcome.valid:
        for name, number in created.items():
            session.tensors[number] = tensors[name]
            session.settle(number)
    return outcome


def _allocate_new(
    session: Session, step: Step, tensors: Mapping[str, Ztensor], names: tuple[str, ...]
) -> dict[str, Ztensor]:
    """Infer the shapes of the outputs that the caller left to the server, and allocate them."""
    if not names:
        return {}
    function = step.arm.function
    if function.describe is None:
        raise unspecified(f"{step.path}.{names[0]}")
    inputs = {name: tensor for name, tensor in tensors.items() if name not in function.outputs}
    shapes = function.describe(**inputs, **step.values, **step.hints)
    new: dict[str, Ztensor] = {}
    for name, (pre, transformed) in zip(function.outputs, shapes, strict=True):
        if name in names:
            session.require_room()
            new[name] = Ztensor(pre, transformed)
            allocate_sticks(session.guest, new[name], f"{step.arm.name}_output")
    return new
