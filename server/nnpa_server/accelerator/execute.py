# SPDX-License-Identifier: Apache-2.0
"""The steps of a list, which `checked` has read, run one by one.

Whoever calls holds the session's lock all the while.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from nnpa.zdnn.v1 import accelerator_pb2, operation_pb2, tensor_pb2
from nnpa_emulator import ALIGNED, OK, Outcome, Refusal, Status, Ztensor
from nnpa_emulator import run as run_function
from nnpa_emulator.machine import Memory
from nnpa_emulator.pipeline import allocate_sticks
from nnpa_emulator.prepared import prepare
from nnpa_emulator.status import Malformed, NotInLibrary, ProgramCheck, Refused
from nnpa_emulator.ztensor import UNSET

from nnpa_server.accelerator.decode import Known, Step
from nnpa_server.accelerator.encode import answer, dense, describe_ztensor
from nnpa_server.accelerator.observers.operation_metrics import counting
from nnpa_server.accelerator.observers.trace_records import stepping
from nnpa_server.accelerator.operands import (
    bare,
    dense_bytes,
    forget,
    keep,
    read_inline,
    too_large,
)
from nnpa_server.accelerator.shortcuts.shared_operands import (
    describe_output,
    place_output,
    put_array,
)
from nnpa_server.errors import CallRefused, from_exception, unspecified
from nnpa_server.faults import WrittenAnyway, faults_of
from nnpa_server.rpc.codec import APART, Answered, Array, carried
from nnpa_server.sanitizer.reports import rescue
from nnpa_server.sessions.store import Session

Result = operation_pb2.OperationResult
_NO_STICKS: Mapping[int, Array] = {}
_NO_STRUCTURES: dict[str, Ztensor] = {}
_MOST_REMEMBERED = 4096
_MOST_TOLD = 8  # results of one step: its outputs are in the same state nearly always


def run(session: Session, steps: Sequence[Step], go_on: Callable[[], None]) -> Answered:
    """Run checked steps; stop after the first status that is neither OK nor a warning.

    `go_on` is asked before each step and raises when nobody waits for the answer any more.
    """
    results: list[Result] = []
    arrays: dict[int, Array] = {}
    sticks: dict[int, Mapping[int, Array]] = {}
    room = session.limits.max_message
    take = run_step if session.metrics is None else counting(session.metrics, run_step)
    take = stepping(session, take)
    for index, step in enumerate(steps):
        go_on()
        try:
            outcome, result, apart = take(session, step)
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
            refused = from_exception(error, operation_index=index, operation=step.arm.name)
            if session.sanitizer is not None:
                rescue(refused, results)
            raise refused from error
        results.append(result)
        if outcome is not OK and not outcome.valid:
            break
    session.trail.operations += len(results)
    return Answered(results, arrays, sticks)


def _within(sizes: Sequence[int], path: str, limit: int) -> int:
    """Return the sum of sizes, none of which may be above the limit of a message."""
    if max(sizes) > limit:
        raise too_large(path, max(sizes), limit)
    return sum(sizes)


def run_step(session: Session, step: Step) -> tuple[Outcome, Result, Mapping[int, Array]]:
    """Run one operation and tell what it answered; memory is counted however it ends.

    Large sticks of inline outputs are apart from the result, by the number of the output.
    """
    try:
        tensors = {name: session.tensors[number] for name, number in step.ids.items()}
        if step.others or step.creates:
            outcome = _run_with_new(session, step, tensors)
        else:
            if step.arm.name == "transform_origtensor":
                _require_answer_fits(session, step, tensors["ztensor"])
            outcome = call(session, step, tensors)
        if step.arm.frees and outcome.valid:
            for number in step.ids.values():
                del session.tensors[number]
    finally:
        session.pending_bytes = 0
        if not step.arm.compute:
            for number in step.ids.values():
                session.settle(number)
    told = _tell(session, step, tensors, outcome)
    if session.holdings and (faults := faults_of(session)) is not None:
        faults.require_connection()
    return outcome, *told


def _tell(
    session: Session, step: Step, tensors: Mapping[str, Ztensor], outcome: Outcome
) -> tuple[Result, Mapping[int, Array]]:
    """Return the result of an operation; those that say nothing new are made once."""
    if step.known is not None and outcome is OK and step.arm.compute and step.others:
        return _tell_again(session, step, step.known, tensors)
    if outcome is not OK or step.others or len(step.arm.written) != 1:
        result = answer(outcome)
        if outcome.valid or outcome.status == Status.ZDNN_CONVERT_FAILURE:
            return result, _report(session, result, step, tensors)
        if isinstance(outcome, WrittenAnyway) and not _creates_new(step):
            return result, _report(session, result, step, tensors)
        return result, _NO_STICKS
    name = step.arm.written[0]
    key = step.arm.name, step.ids.get(name, step.creates)
    state = _state(tensors[name])
    remembered = session.told.get(key)
    if remembered is not None and remembered[0] == state:
        return remembered[1], _NO_STICKS
    result = answer(outcome)
    _report(session, result, step, tensors)
    if len(session.told) >= _MOST_REMEMBERED:
        session.told.clear()
    session.told[key] = state, result
    return result, _NO_STICKS


def _state(tensor: Ztensor) -> tuple[Any, ...]:
    return (
        tensor.pre_transformed_desc,
        tensor.transformed_desc,
        tensor.buffer_size,
        tensor.buffer is None,
        tensor.is_transformed,
        tensor.rec_scale,
        tensor.offset,
    )


def _tell_again(
    session: Session, step: Step, known: Known, tensors: Mapping[str, Ztensor]
) -> tuple[Result, Mapping[int, Array]]:
    """Return the result of an operation with inline tensors; sticks that travel go beside it."""
    key: list[object] = []
    apart: dict[int, Array] = {}
    for index, name in enumerate(step.arm.written):
        tensor, wanted = tensors[name], step.others[name][1]
        sticks = place_output(session, tensor, wanted)
        if sticks is not None:
            apart[index] = sticks
        key.append((_state(tensor), sticks is None))
    result = known.told.get(told := tuple(key))
    if result is None:
        if len(known.told) >= _MOST_TOLD:
            known.told.clear()
        result = known.told[told] = answer(OK)
        for index, name in enumerate(step.arm.written):
            message = describe_output(tensors[name], step.others[name][1], index in apart)
            result.outputs.add(operand=name, ztensor=message)
    for name in step.arm.written:
        _keep(session, tensors[name], step.others[name][1])
    return result, apart


def _keep(session: Session, tensor: Ztensor, wanted: tensor_pb2.Ztensor) -> None:
    """Have the cache hold an output, if it is to, in the place of what that was written over."""
    if tensor.buffer is not None:
        forget(session, tensor, wanted)
        keep(session, tensor, tensor.buffer, wanted.cache_as, wanted.byte_order)


def _creates_new(step: Step) -> bool:
    return bool(step.creates) or any(which == "new_id" for which, _ in step.others.values())


def call(session: Session, step: Step, tensors: Mapping[str, Ztensor]) -> Outcome:
    """Call the emulator; a program check becomes a status where the session wants that.

    Faults stand before the sanitizer, which so sees what the function itself has done.
    """
    if session.holdings and step.of_program and (faults := faults_of(session)) is not None:
        try:
            return faults.call(step.arm.name, tensors, partial(_watched, session, step, tensors))
        except ProgramCheck as check_met:
            return _checked(session, check_met)
    return _watched(session, step, tensors)


def _watched(session: Session, step: Step, tensors: Mapping[str, Ztensor]) -> Outcome:
    if session.sanitizer is not None:
        return session.sanitizer.watch(session, step, tensors, _call)
    return _call(session, step, tensors)


def _call(session: Session, step: Step, tensors: Mapping[str, Ztensor]) -> Outcome:
    guest, known = session.guest, step.known
    try:
        if known is not None and known.repeat is not None:
            again = known.repeat(guest, tensors)
            if again is not None:
                return again
        arguments = {**tensors, **step.values} if step.values else tensors
        target = None if step.place is None else _target(session, step.place)
        outcome = run_function(guest, step.arm.name, arguments, step.alignment, target)
        if known is not None and outcome is OK and step.alignment is ALIGNED:
            known.repeat = prepare(guest, step.arm.name, arguments)
        return outcome
    except ProgramCheck as check_met:
        return _checked(session, check_met)
    except MemoryError:
        status = int(Status.ZDNN_ALLOCATION_FAILURE)
        return Outcome(status, Refusal(status, "storage", "exhausted", "enough to compute"))


def _target(session: Session, place: tensor_pb2.Extent) -> Memory | None:
    """Return where an array can be made that the client wants in shared memory."""
    if session.shared is None or session.sanitizer is not None:
        return None
    return session.shared.view(place.offset, place.size, "shared_data")


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


def _checked(session: Session, check_met: ProgramCheck) -> Outcome:
    """Return what a program check answers, or raise it where it ends the call."""
    if session.options.program_check_action != accelerator_pb2.PROGRAM_CHECK_ACTION_STATUS:
        raise check_met
    return _as_status(check_met)


def _as_status(check_met: ProgramCheck) -> Outcome:
    """Return the status that precheck would have given, else ZDNN_UNSUPPORTED_AIU_EXCEPTION."""
    refusal: Refusal = check_met.refusal
    status = refusal.status if check_met.kind == "data" else 0
    status = status or Status.ZDNN_UNSUPPORTED_AIU_EXCEPTION
    return Outcome(status, replace(refusal, status=int(status)))


def _run_with_new(session: Session, step: Step, tensors: dict[str, Ztensor]) -> Outcome:
    """Run an operation that brings tensors inline or creates some; fill `tensors` with them."""
    for name, (which, value) in step.others.items():
        if which == "inline_ztensor":
            path = f"{step.path}.{name}.inline_ztensor"
            structures = _NO_STRUCTURES if step.known is None else step.known.structures
            tensor = read_inline(session, value, path, step.arm, name, structures.get(name))
            if step.known is not None and name not in structures:
                step.known.structures[name] = bare(tensor)
            tensors[name] = tensor
    created = {name: value for name, (which, value) in step.others.items() if which == "new_id"}
    try:
        tensors.update(_allocate_new(session, step, tensors, tuple(created)))
    except Refused as refused:
        return Outcome(refused.refusal.status, refused.refusal)
    if step.creates:
        session.require_room()
        created = {"ztensor": step.creates}
        tensors["ztensor"] = Ztensor(UNSET, UNSET)
    if step.arm.name == "transform_origtensor" and tensors["ztensor"].buffer is not None:
        session.reserve(dense_bytes(tensors["ztensor"]))
    outcome = call(session, step, tensors)
    if outcome.valid:
        for name, number in created.items():
            session.tensors[number] = tensors[name]
            session.settle(number)
    return outcome


def _allocate_new(
    session: Session, step: Step, tensors: Mapping[str, Ztensor], names: tuple[str, ...]
) -> dict[str, Ztensor]:
    """Derive and allocate the outputs that the caller left to the server."""
    if not names:
        return {}
    function = step.arm.function
    if function.infer is None:
        raise unspecified(f"{step.path}.{names[0]}")
    inputs = {name: one for name, one in tensors.items() if name not in function.outputs}
    described = function.infer(**inputs, **step.values, **step.hints)
    new: dict[str, Ztensor] = {}
    for name, (pre, transformed) in zip(function.outputs, described, strict=True):
        if name in names:
            session.require_room()
            new[name] = Ztensor(pre, transformed)
            allocate_sticks(session.guest, new[name], f"{step.arm.name}_output")
    return new


def _report(
    session: Session, result: Result, step: Step, tensors: Mapping[str, Ztensor]
) -> Mapping[int, Array]:
    """Tell about the tensors that the operation created, wrote, or changed the state of.

    Return large sticks that do not become part of the message.
    """
    apart: dict[int, Array] = {}
    for name in step.arm.written:
        tensor = tensors[name]
        which, value = step.others.get(name, ("", None))
        if which == "inline_ztensor" and tensor.buffer is not None and name in step.arm.filled:
            sticks = place_output(session, tensor, value)
            message = describe_output(tensor, value, sticks is not None)
            if sticks is not None and sticks.nbytes < APART:
                message.sticks = sticks.tobytes()
            elif sticks is not None:
                apart[len(result.outputs)] = sticks
            result.outputs.add(operand=name, ztensor=message)
            _keep(session, tensor, value)
        elif which == "inline_ztensor":
            result.outputs.add(operand=name, ztensor=describe_ztensor(tensor))
        else:
            number = value or step.ids.get(name) or step.creates
            result.outputs.add(id=number, operand=name, ztensor=describe_ztensor(tensor))
    return apart
