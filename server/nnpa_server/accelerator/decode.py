# SPDX-License-Identifier: Apache-2.0
"""Lists of operations are read and checked as a whole, into steps, before any tensor is touched."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from nnpa.zdnn.v1 import operation_pb2, tensor_pb2
from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator import ALIGNED, Alignment, Guest, Ztensor
from nnpa_emulator.prepared import PreparedCall
from nnpa_emulator.status import NotInLibrary

from nnpa_server.accelerator.operands import (
    check_extent,
    check_inline,
    id_in_use,
    reference,
    tensor_not_found,
)
from nnpa_server.accelerator.operation_specs import ARMS, Arm
from nnpa_server.accelerator.shortcuts import request_template as forms
from nnpa_server.accelerator.shortcuts.shared_operands import read_arrays
from nnpa_server.errors import CallRefused, from_exception, invalid
from nnpa_server.rpc.codec import Listed
from nnpa_server.sessions.request_cache import List
from nnpa_server.sessions.store import Session

_NONE: Mapping[str, Any] = {}


class Known:
    """What is known of an operation that comes again, once it has run.

    `repeat` computes it; `structures` are its inline tensors before; `told` are results of success
    by what they tell of the tensors that were written.
    """

    __slots__ = ("repeat", "structures", "told")

    def __init__(self) -> None:
        self.repeat: PreparedCall | None = None
        self.structures: dict[str, Ztensor] = {}
        self.told: dict[object, operation_pb2.OperationResult] = {}


class Step(NamedTuple):
    """One operation, read and checked.

    `ids` are the tensors named by id; `others` what stands in place of an id: ("new_id", number)
    or ("inline_ztensor", message). `creates` is the id of a tensor to create, or 0. `place` is
    where in shared memory the array goes that it returns. `origin` is the message that it was read
    from, for sessions that sanitize. `of_program` tells whether the program made the call, rather
    than a client or server for it. `known` is there for steps that have come before.
    """

    arm: Arm
    path: str
    ids: Mapping[str, int]
    others: Mapping[str, tuple[str, Any]]
    values: Mapping[str, Any]
    hints: Mapping[str, Any]
    creates: int
    alignment: Alignment
    place: tensor_pb2.Extent | None = None
    origin: operation_pb2.Operation | None = None
    of_program: bool = True
    known: Known | None = None


class Holder(Protocol):
    """What a list of operations runs in: a session, or a program that is read from a message."""

    @property
    def guest(self) -> Guest:
        """The machine and the library."""
        ...

    @property
    def tensors(self) -> Mapping[int, Ztensor]:
        """The tensors that exist, by id."""
        ...


@dataclass(slots=True)
class LiveIds:
    """Which ids exist at a point of a list: the session's, less freed, plus created ones."""

    session: Holder
    changes: dict[int, bool] = field(default_factory=dict[int, bool])
    library_version: int = field(init=False)

    def __post_init__(self) -> None:
        self.library_version = self.session.guest.library_version

    def has(self, tensor_id: int) -> bool:
        """Tell whether an id names a tensor at this point."""
        return self.changes.get(tensor_id, tensor_id in self.session.tensors)

    def require(self, tensor_id: int, path: str) -> None:
        """Refuse an id that names no tensor at this point."""
        if self.has(tensor_id):
            return
        if tensor_id == 0:
            raise invalid(path, 0, "an id that is not 0")
        raise tensor_not_found(tensor_id, path)

    def create(self, tensor_id: int, path: str) -> None:
        """Refuse an id that names a tensor already; from here on it does."""
        if tensor_id == 0:
            raise invalid(path, 0, "an id that is not 0")
        if self.has(tensor_id):
            raise id_in_use(tensor_id, path)
        self.changes[tensor_id] = True


def check(session: Session, listed: Listed) -> Sequence[Step]:
    """Read a list of operations, or refuse all of it."""
    if (known := _recall(session, listed.raw)) is not None:
        return known
    form = session.forms.find(listed.raw)
    if form is None:
        steps, sharing = _read(session, listed)
        _remember(session, listed, steps, sharing)
    else:
        form.fill(listed.raw)
        steps, sharing = list[Step](form.steps), list(form.sharing)
    for index, operation in sharing:
        try:
            steps[index] = _with_shared(session, steps[index], operation, index)
        except CallRefused as error:
            raise _refused(session, listed, error, index) from error
    for index, arrays in listed.arrays.items():
        values = {**steps[index].values, "data": arrays}
        steps[index] = steps[index]._replace(values=values)
    return steps


def _read(
    session: Session, listed: Listed
) -> tuple[list[Step], list[tuple[int, operation_pb2.Operation]]]:
    """Return what a list says: its steps, and which of them take arrays from shared memory."""
    ids, sanitizer = LiveIds(session), session.sanitizer
    steps: list[Step] = []
    sharing: list[tuple[int, operation_pb2.Operation]] = []
    for index, operation in enumerate(listed.message.operations):
        name = operation.WhichOneof("operation")
        try:
            step = check_one(ids, operation, name, f"operations[{index}]")
        except (CallRefused, NotInLibrary) as error:
            raise _refused(session, listed, error, index) from error
        if operation.shared_data:
            sharing.append((index, operation))
        steps.append(step if sanitizer is None else step._replace(origin=operation))
    return steps, sharing


def _refused(
    session: Session, listed: Listed, error: CallRefused | NotInLibrary, index: int
) -> CallRefused:
    """Return the error of a list, for one of an operation."""
    operations = listed.message.operations
    name = operations[index].WhichOneof("operation")
    refused = from_exception(error, operation_index=index, operation=name or "")
    if session.sanitizer is not None:
        session.sanitizer.explain(refused, operations[: index + 1])
    return refused


def _recall(session: Session, raw: bytes) -> Sequence[Step] | None:
    """Return a list that was read before, if it would be read the same now."""
    found = session.lists.find(raw)
    if found is None or not found.ids <= session.tensors.keys():
        return None
    if not found.again:
        found.steps, found.again = [one._replace(known=Known()) for one in found.steps], True
    return found.steps


def _remember(
    session: Session,
    listed: Listed,
    steps: list[Step],
    sharing: Sequence[tuple[int, operation_pb2.Operation]],
) -> None:
    """Have a session remember a list, if all that it needs is tensors that exist, or inline ones.

    What functions the library has does not change while a session lives.
    """
    if not listed.raw or session.sanitizer is not None:
        return
    if all(one.arm.compute and not one.others for one in steps):
        ids = frozenset(number for one in steps for number in one.ids.values())
        session.lists.note(listed.raw, List(steps, ids))
    elif forms.wants(session.forms, listed.raw, steps):
        known = [one._replace(known=Known()) for one in steps]
        forms.note(session.forms, listed.raw, known, sharing)


def _with_shared(
    session: Session, step: Step, operation: operation_pb2.Operation, index: int
) -> Step:
    """Return a step with its arrays from shared memory, or with the place of its answer there."""
    extents, path = operation.shared_data, f"operations[{index}].shared_data"
    if "data" in step.values and not step.values["data"]:
        arrays = read_arrays(session, extents, path)
        return step._replace(values={**step.values, "data": arrays})
    if step.arm.name != "transform_origtensor" or len(extents) != 1:
        limit = "the arrays of a transform without data, or one of transform_origtensor"
        raise invalid(path, f"{len(extents)} extents", limit)
    check_extent(session, extents[0], extents[0].size, path)
    return step._replace(place=extents[0])


def check_one(
    ids: LiveIds, operation: operation_pb2.Operation, name: str | None, path: str
) -> Step:
    """Read one operation: its arm, its fields, and the tensors it names."""
    arm = ARMS.get(name or "")
    if arm is None or arm.since > ids.library_version:
        raise _no_such_arm(ids.session, name, path)
    path = f"{path}.{arm.name}"
    message = getattr(operation, arm.name)
    creates = 0
    if arm.creates is not None:
        creates = message.ztensor
        ids.create(creates, f"{path}.{arm.creates}")
    plain: dict[str, int] = {}
    others: dict[str, tuple[str, Any]] = {}
    for tensor in arm.tensors:
        if number := getattr(message, tensor).id:
            if not ids.has(number):
                ids.require(number, f"{path}.{tensor}.id")
            plain[tensor] = number
        else:
            others[tensor] = _check_reference(ids, arm, message, tensor, path)
    for tensor, (which, value) in others.items():
        if which == "new_id":
            ids.create(value, f"{path}.{tensor}.new_id")
    if arm.frees:
        ids.changes.update(dict.fromkeys(plain.values(), False))
    values = {one: read(message, path) for one, read in arm.values} if arm.values else _NONE
    hints = {one: read(message, path) for one, read in arm.hints} if arm.hints else _NONE
    step = Step(arm, path, plain, others, values, hints, creates, _alignment(operation))
    return step._replace(of_program=False) if not arm.compute and operation.housekeeping else step


def _no_such_arm(session: Holder, name: str | None, path: str) -> CallRefused | NotInLibrary:
    if name is None:
        text = f"{path} has no arm, or one that this server does not know"
        facts = {"field": path, "value": "none", "limit": "an arm of Operation"}
        return CallRefused(wire.ERROR_REASON_OPERATION_UNKNOWN, text, **facts)
    arm = ARMS.get(name)
    if arm is None:
        text = f"{path}: this server does not implement zdnn_{name}"
        return CallRefused(wire.ERROR_REASON_FUNCTION_NOT_IMPLEMENTED, text, field=path)
    return NotInLibrary(name, arm.function.since, session.guest.library)


def _check_reference(ids: LiveIds, arm: Arm, message: Any, name: str, path: str) -> tuple[str, Any]:
    which, value = reference(message, name, path)
    path = f"{path}.{name}.{which}"
    if which == "inline_ztensor":
        check_inline(value, path, arm, name, _creates_outputs(arm, message))
    elif which == "id":
        ids.require(value, path)
    elif name not in arm.may_be_new:
        raise invalid(path, value, "an id or an inline tensor here")
    return which, value


def _creates_outputs(arm: Arm, message: Any) -> bool:
    return any(getattr(message, name).new_id for name in arm.may_be_new)


def _alignment(operation: operation_pb2.Operation) -> Alignment:
    buffer, save = operation.buffer_misaligned, operation.save_area_misaligned
    work = operation.work_area_misaligned
    return Alignment(buffer, save, work) if buffer or save or work else ALIGNED
