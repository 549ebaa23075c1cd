# SPDX-License-Identifier: Apache-2.0
"""How lists of one form are recognised: where in their wire form the names of contents lie.

What is remembered of them is in `nnpa_server.sessions.request_cache`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from google.protobuf.message import DecodeError
from nnpa.zdnn.v1 import accelerator_pb2, operation_pb2, tensor_pb2

from nnpa_server.accelerator.operation_specs import ARMS
from nnpa_server.rpc.wire_fields import BYTES, Field, fields
from nnpa_server.sessions.request_cache import Form, Forms, NamedAt

_OPERATIONS = accelerator_pb2.ExecuteRequest.OPERATIONS_FIELD_NUMBER
_INLINE = tensor_pb2.TensorRef.INLINE_ZTENSOR_FIELD_NUMBER
_NAMES = {
    tensor_pb2.Ztensor.DESCRIPTOR.fields_by_name[name].number: name
    for name in ("cached", "cache_as", "cache_instead_of")
}
# By field number of an arm: its tensors by their field numbers.
_TENSORS = {
    arm.number: {one.number: one.name for one in arm.message_type.fields if one.name in tensors}
    for arm in operation_pb2.Operation.DESCRIPTOR.oneofs_by_name["operation"].fields
    if arm.message_type is not None and (tensors := getattr(ARMS.get(arm.name), "tensors", ()))
}
_MOST_BYTES = 4096  # of a list that is remembered


def wants(forms: Forms, raw: bytes, steps: Sequence[Any]) -> bool:
    """Tell whether a list that was read is worth a form: not long, and the second of its size."""
    return len(raw) <= _MOST_BYTES and all(map(_is_inline, steps)) and forms.expects(len(raw))


def note(forms: Forms, raw: bytes, steps: Sequence[Any], sharing: Sequence[Any]) -> None:
    """Remember the form of a list that was read."""
    try:
        names = tuple(_names(memoryview(raw), steps))
    except DecodeError:
        return
    if all(getattr(one.message, one.field) == raw[one.start : one.end] for one in names):
        forms.keep(len(raw), _form(raw, names, steps, sharing))


def _is_inline(step: Any) -> bool:
    """Tell whether a step depends on nothing but the list itself and what it names."""
    all_inline = all(which == "inline_ztensor" for which, _ in step.others.values())
    return all_inline and not step.ids and not step.creates


def _form(
    raw: bytes, names: tuple[NamedAt, ...], steps: Sequence[Any], sharing: Sequence[Any]
) -> Form:
    fixed, starts, since = list[bytes](), list[int](), 0
    for _, _, start, end in (*names, NamedAt(None, "", len(raw), len(raw))):
        fixed.append(raw[since:start])
        starts.append(since)
        since = end
    return Form(tuple(fixed), tuple(starts), names, steps, sharing)


def _names(view: memoryview, steps: Sequence[Any]) -> Iterator[NamedAt]:
    """Yield the names of contents in a list.

    Raises DecodeError for a message that comes in parts, which is not remembered.
    """
    whole = Field(0, BYTES, 0, 0, len(view))
    lists = [one for one in _inside(view, whole) if one.number == _OPERATIONS]
    if len(lists) != len(steps):
        raise DecodeError("an operation that is none")
    for step, operation in zip(steps, lists, strict=True):
        arm = _only(_inside(view, operation), _TENSORS)
        tensors = _TENSORS[arm.number]
        references = [one for one in _inside(view, arm) if one.number in tensors]
        if len({one.number for one in references}) < len(references):
            raise DecodeError("a tensor in parts")
        for one in references:
            inline = _only(_inside(view, one), (_INLINE,))
            message = step.others[tensors[one.number]][1]
            for name in _inside(view, inline):
                if name.number in _NAMES and name.kind == BYTES:
                    yield NamedAt(message, _NAMES[name.number], name.value, name.end)


def _inside(view: memoryview, outer: Field) -> Iterator[Field]:
    """Yield the fields of a message in a field, where they lie in the whole.

    All that are looked for are messages and bytes; one that is not would be none to protobuf.
    """
    if outer.kind != BYTES:
        raise DecodeError("a message that is none")
    at = outer.value
    for one in fields(view[at : outer.end]):
        yield Field(one.number, one.kind, one.start + at, one.value + at, one.end + at)


def _only(found: Iterable[Field], numbers: Any) -> Field:
    wanted = [one for one in found if one.number in numbers]
    if len(wanted) != 1:
        raise DecodeError("a message in parts")
    return wanted[0]
