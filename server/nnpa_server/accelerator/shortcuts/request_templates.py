# SPDX-License-Identifier: Apache-2.0
"""Request templates: lists that differ in the names of cached contents alone are decoded once.

A C program brings its tensors inline, by names in the content cache, which are others each time.
Where all other bytes are those of a list that came before, so is everything that was decoded.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from google.protobuf.message import DecodeError
from nnpa.zdnn.v1 import accelerator_pb2, operation_pb2, tensor_pb2
from nnpa_wire.fields import BYTES, Field, fields

from nnpa_server.accelerator.decode import Request, Step, attach_shared
from nnpa_server.accelerator.operation_specs import ARMS
from nnpa_server.accelerator.seams import CallPath, Decode
from nnpa_server.accelerator.shortcuts.step_memo import with_memo
from nnpa_server.rpc.codec import WireRequest
from nnpa_server.sessions.store import Session

_OPERATIONS = accelerator_pb2.ExecuteRequest.OPERATIONS_FIELD_NUMBER
_INLINE = tensor_pb2.TensorRef.INLINE_ZTENSOR_FIELD_NUMBER
_NAMES = {
    tensor_pb2.Ztensor.DESCRIPTOR.fields_by_name[name].number: name
    for name in ("cached", "cache_as", "cache_instead_of")
}
# By field number of an operation: its tensors by their field numbers.
_TENSORS = {
    arm.number: {
        field.number: field.name for field in arm.message_type.fields if field.name in tensors
    }
    for arm in operation_pb2.Operation.DESCRIPTOR.oneofs_by_name["operation"].fields
    if arm.message_type is not None and (tensors := getattr(ARMS.get(arm.name), "tensors", ()))
}
_MAX_BYTES = 4096  # of a list that becomes a template
_MAX_SIZES, _MAX_OF_A_SIZE = 256, 8  # templates: of so many sizes each so many
_MAX_STEPS = 4096  # of all templates of a session


def wrap(path: CallPath, session: Session) -> None:
    """Decode by templates; not for sessions that sanitize, whose steps name their origin."""
    if not session.options.sanitize:
        path.decode = TemplateDecoder(path.decode)


class NameField(NamedTuple):
    """A name of contents: the message and its field that have it, where it lies in a list."""

    message: tensor_pb2.Ztensor
    field: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Template:
    """Lists of one size that differ in names: `fixed` are the bytes around names, at `starts`."""

    fixed: Sequence[bytes]
    starts: Sequence[int]
    names: Sequence[NameField]
    steps: Sequence[Step]

    def fits(self, raw: bytes) -> bool:
        """Tell whether a list of this size fits the template."""
        return all(map(raw.startswith, self.fixed, self.starts))

    def fill(self, raw: bytes) -> None:
        """Write the names of a list into the messages of the steps."""
        for message, name, start, end in self.names:
            setattr(message, name, raw[start:end])


@dataclass(slots=True)
class Templates:
    """Templates by the size of their lists, the last one first."""

    _by_size: dict[int, list[Template]] = field(default_factory=dict[int, list[Template]])
    _steps: int = 0

    def find(self, raw: bytes) -> Template | None:
        """Return the template that a list fits."""
        for template in self._by_size.get(len(raw), ()):
            if template.fits(raw):
                return template
        return None

    def expects(self, size: int) -> bool:
        """Tell whether a list of this size came before: then a template may pay."""
        if size in self._by_size:
            return True
        if len(self._by_size) >= _MAX_SIZES:
            self._clear()
        self._by_size[size] = []
        return False

    def keep(self, size: int, template: Template) -> None:
        """Keep a template; all are dropped when they have too many steps together."""
        if self._steps + len(template.steps) > _MAX_STEPS:
            self._clear()
        templates = self._by_size.setdefault(size, [])
        templates.insert(0, template)
        self._steps += len(template.steps)
        for dropped in templates[_MAX_OF_A_SIZE:]:
            self._steps -= len(dropped.steps)
        del templates[_MAX_OF_A_SIZE:]

    def _clear(self) -> None:
        self._by_size.clear()
        self._steps = 0


@dataclass(slots=True)
class TemplateDecoder:
    """Decodes lists by the templates of a session."""

    plain: Decode
    templates: Templates = field(default_factory=Templates)

    def __call__(self, session: Session, request: Request) -> Sequence[Step]:
        """Return the steps of a list, by its template or decoded."""
        if not isinstance(request, WireRequest):
            return self.plain(session, request)
        raw = request.raw
        template = self.templates.find(raw)
        if template is not None:
            template.fill(raw)
            return attach_shared(session, template.steps)
        steps = self.plain(session, request)
        is_short = len(raw) <= _MAX_BYTES
        if is_short and all(map(_is_inline, steps)) and self.templates.expects(len(raw)):
            self._keep(raw, steps)
        return steps

    def _keep(self, raw: bytes, steps: Sequence[Step]) -> None:
        """Make a template of a list, if protobuf reads it as it stands."""
        bare = [with_memo(_without_shared(step)) for step in steps]
        try:
            names = tuple(_names(memoryview(raw), bare))
        except DecodeError:
            return
        if all(getattr(name.message, name.field) == raw[name.start : name.end] for name in names):
            self.templates.keep(len(raw), _template(raw, names, bare))


def _without_shared(step: Step) -> Step:
    """Return a step without what it had in shared memory when it was decoded."""
    if step.origin is None or not step.origin.shared_data:
        return step._replace(origin=None)
    if step.place is not None:
        return step._replace(place=None)
    return step._replace(values={**step.values, "data": []})


def _is_inline(step: Step) -> bool:
    """Tell whether a step depends on nothing but the list itself and what it names."""
    return not step.ids and not step.new_ids and not step.creates


def _template(raw: bytes, names: Sequence[NameField], steps: Sequence[Step]) -> Template:
    fixed, starts, since = list[bytes](), list[int](), 0
    for start, end in (*((name.start, name.end) for name in names), (len(raw), len(raw))):
        fixed.append(raw[since:start])
        starts.append(since)
        since = end
    return Template(tuple(fixed), tuple(starts), names, steps)


def _names(view: memoryview, steps: Sequence[Step]) -> Iterator[NameField]:
    """Yield the names of contents in a list.

    Raises DecodeError for a message that comes in parts, which becomes no template.
    """
    whole = Field(0, BYTES, 0, 0, len(view))
    lists = [part for part in _inside(view, whole) if part.number == _OPERATIONS]
    if len(lists) != len(steps):
        raise DecodeError("an operation that is none")
    for step, operation in zip(steps, lists, strict=True):
        arm = _only(_inside(view, operation), _TENSORS)
        tensors = _TENSORS[arm.number]
        references = [part for part in _inside(view, arm) if part.number in tensors]
        if len({reference.number for reference in references}) < len(references):
            raise DecodeError("a tensor in parts")
        for reference in references:
            inline = _only(_inside(view, reference), (_INLINE,))
            message = step.inline[tensors[reference.number]]
            for name in _inside(view, inline):
                if name.number in _NAMES and name.kind == BYTES:
                    yield NameField(message, _NAMES[name.number], name.value, name.end)


def _inside(view: memoryview, outer: Field) -> Iterator[Field]:
    """Yield the fields of a message in a field, where they lie in the whole.

    All that are looked for are messages and bytes; a field of another kind is none to protobuf.
    """
    if outer.kind != BYTES:
        raise DecodeError("a message that is none")
    at = outer.value
    for inner in fields(view[at : outer.end]):
        yield Field(inner.number, inner.kind, inner.start + at, inner.value + at, inner.end + at)


def _only(candidates: Iterable[Field], numbers: Collection[int]) -> Field:
    matches = [candidate for candidate in candidates if candidate.number in numbers]
    if len(matches) != 1:
        raise DecodeError("a message in parts")
    return matches[0]
