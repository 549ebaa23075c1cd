# SPDX-License-Identifier: Apache-2.0
"""Decode a list of operations, as a whole, into steps before any tensor is touched."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from nnpa.zdnn.v1 import accelerator_pb2, operation_pb2, tensor_pb2
from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator import ALIGNED, Alignment, Guest, Ztensor
from nnpa_emulator.status import NotInLibrary

from nnpa_server.accelerator.operands import (
    Operand,
    check_extent,
    decode_inline,
    id_in_use,
    read_arrays,
    tensor_not_found,
)
from nnpa_server.accelerator.operation_specs import OPERATION_SPECS, OperationSpec
from nnpa_server.errors import CallRefused, from_exception, invalid, unspecified
from nnpa_server.rpc.codec import WireRequest
from nnpa_server.sessions.store import Session

Request: TypeAlias = accelerator_pb2.ExecuteRequest | WireRequest
"""A list of operations: a message, or what a codec parses in its place."""
_NONE: Mapping[str, Any] = {}


class Step(NamedTuple):
    """One decoded operation.

    ids         operands named by the id of a tensor
    inline      operands that come with the list
    new_ids     outputs that the server allocates, by the id that they get
    creates     the id of a tensor to create, or 0
    origin      the message of the operation
    of_program  the program made the call, not a client library or the server on its behalf
    place       the place in shared memory for the array that the operation returns
    """

    spec: OperationSpec
    path: str
    ids: Mapping[str, int]
    inline: Mapping[str, Operand]
    new_ids: Mapping[str, int]
    values: Mapping[str, Any]
    hints: Mapping[str, Any]
    creates: int
    alignment: Alignment
    origin: operation_pb2.Operation | None
    of_program: bool
    place: tensor_pb2.Extent | None = None


class Holder(Protocol):
    """The holder of a list's tensors: a session, or a program that is read from a message."""

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
    """The ids that exist at a point of a list: its session's, with created and without freed."""

    session: Holder
    changes: dict[int, bool] = field(default_factory=dict[int, bool])

    def has(self, tensor_id: int) -> bool:
        """Return True if an id names a tensor at this point."""
        return self.changes.get(tensor_id, tensor_id in self.session.tensors)

    def require(self, tensor_id: int, path: str) -> None:
        """Refuse an id that names no tensor at this point."""
        if self.has(tensor_id):
            return
        if tensor_id == 0:
            raise invalid(path, 0, "an id that is not 0")
        raise tensor_not_found(tensor_id, path)

    def create(self, tensor_id: int, path: str) -> None:
        """Add an id; refuse it if it names a tensor already."""
        if tensor_id == 0:
            raise invalid(path, 0, "an id that is not 0")
        if self.has(tensor_id):
            raise id_in_use(tensor_id, path)
        self.changes[tensor_id] = True


def decode(session: Session, request: Request) -> Sequence[Step]:
    """Return the steps of a list of operations; raise CallRefused for the whole list."""
    ids = LiveIds(session)
    steps: list[Step] = []
    shares_memory = False
    for index, operation in enumerate(request.operations):
        name = operation.WhichOneof("operation")
        try:
            steps.append(decode_operation(ids, operation, name, f"operations[{index}]"))
        except (CallRefused, NotInLibrary) as error:
            raise from_exception(error, operation_index=index, operation=name or "") from error
        shares_memory |= bool(operation.shared_data)
    return _attach_shared(session, steps) if shares_memory else steps


def _attach_shared(session: Session, steps: Iterable[Step]) -> list[Step]:
    """Return the steps with arrays in shared memory attached."""
    whole = list(steps)
    for index, step in enumerate(whole):
        if step.origin is not None and step.origin.shared_data:
            path, name = f"operations[{index}].shared_data", step.spec.name
            try:
                whole[index] = _with_shared(session, step, step.origin.shared_data, path)
            except CallRefused as error:
                raise from_exception(error, operation_index=index, operation=name) from error
    return whole


def _with_shared(
    session: Session, step: Step, extents: Sequence[tensor_pb2.Extent], path: str
) -> Step:
    """Return a step with its input arrays from shared memory, or the place for its result there."""
    if "data" in step.values and not step.values["data"]:
        arrays = read_arrays(session, extents, path)
        return step._replace(values={**step.values, "data": arrays})
    if step.spec.name != "transform_origtensor" or len(extents) != 1:
        limit = "the arrays of a transform without data, or one of transform_origtensor"
        raise invalid(path, f"{len(extents)} extents", limit)
    check_extent(session, extents[0], extents[0].size, path)
    return step._replace(place=extents[0])


def decode_operation(
    ids: LiveIds, operation: operation_pb2.Operation, name: str | None, path: str
) -> Step:
    """Decode one operation: its arm, its fields, and the tensors it names."""
    spec = OPERATION_SPECS.get(name or "")
    if spec is None or spec.since > ids.session.guest.library_version:
        raise _no_such_arm(ids.session, name, path)
    path = f"{path}.{spec.name}"
    message = getattr(operation, spec.name)
    creates = 0
    if spec.creates is not None:
        creates = message.ztensor
        ids.create(creates, f"{path}.{spec.creates}")
    named: dict[str, int] = {}
    inline: dict[str, Operand] = {}
    new_ids: dict[str, int] = {}
    for tensor in spec.tensors:
        reference: tensor_pb2.TensorRef = getattr(message, tensor)
        if number := reference.id:
            if ids.changes or number not in ids.session.tensors:
                ids.require(number, f"{path}.{tensor}.id")
            named[tensor] = number
        elif reference.HasField("inline_ztensor"):
            place = f"{path}.{tensor}.inline_ztensor"
            inline[tensor] = decode_inline(reference.inline_ztensor, place, spec, tensor, message)
        else:
            new_ids[tensor] = _check_new(reference, spec, tensor, path)
    for tensor, number in new_ids.items():
        ids.create(number, f"{path}.{tensor}.new_id")
    if spec.frees:
        ids.changes.update(dict.fromkeys(named.values(), False))
    values = {name: read(message, path) for name, read in spec.values} if spec.values else _NONE
    hints = {name: read(message, path) for name, read in spec.hints} if spec.hints else _NONE
    of_program = spec.compute or not operation.housekeeping
    misaligned = (
        operation.buffer_misaligned,
        operation.save_area_misaligned,
        operation.work_area_misaligned,
    )
    alignment = Alignment(*misaligned) if any(misaligned) else ALIGNED
    return Step(
        spec, path, named, inline, new_ids, values, hints, creates, alignment, operation, of_program
    )


def _no_such_arm(session: Holder, name: str | None, path: str) -> CallRefused | NotInLibrary:
    if name is None:
        text = f"{path} has no arm, or one that this server does not know"
        facts = {"field": path, "value": "none", "limit": "an arm of Operation"}
        return CallRefused(wire.ERROR_REASON_OPERATION_UNKNOWN, text, **facts)
    spec = OPERATION_SPECS.get(name)
    if spec is None:
        text = f"{path}: this server does not implement zdnn_{name}"
        return CallRefused(wire.ERROR_REASON_FUNCTION_NOT_IMPLEMENTED, text, field=path)
    return NotInLibrary(name, spec.function.since, session.guest.library)


def _check_new(reference: tensor_pb2.TensorRef, spec: OperationSpec, name: str, path: str) -> int:
    """Return the id of an output that the server allocates."""
    path = f"{path}.{name}"
    match reference.WhichOneof("tensor"):
        case "new_id" if name in spec.may_be_new:
            return reference.new_id
        case "new_id":
            raise invalid(f"{path}.new_id", reference.new_id, "an id or an inline tensor")
        case None:
            raise unspecified(path)
        case _:
            raise invalid(f"{path}.id", 0, "an id that is not 0")
