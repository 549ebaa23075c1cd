# SPDX-License-Identifier: Apache-2.0
"""The wire contract as pages: services, methods, messages, fields and enums with their comments."""

import posixpath
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from google.protobuf import descriptor_pb2 as pb

PROTOS = Path(__file__).resolve().parents[2] / "protos"
Route = tuple[int, ...]  # the place of a declaration in a file, as `SourceCodeInfo` numbers it
Composite = pb.DescriptorProto | pb.EnumDescriptorProto
_FILE, _DESCRIPTOR = pb.FileDescriptorProto, pb.DescriptorProto
_SYNTAX = (_FILE.SYNTAX_FIELD_NUMBER,)
_MARKUP = re.compile(r"(`[^`\n]+`)|([\\_\[\]<|#]|(?<=\S)\*|\*(?=\S))")


@cache
def files() -> Mapping[str, pb.FileDescriptorProto]:
    """Return the files of the contract by their names, with the comments of their sources."""
    names = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.glob("nnpa/**/*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "contract.binpb"
        protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}"]
        options = ["--include_source_info", f"--descriptor_set_out={target}"]
        subprocess.run([*protoc, *options, *names], cwd=PROTOS, check=True)
        contract = pb.FileDescriptorSet.FromString(target.read_bytes())
    return {file.name: file for file in contract.file}


def escaped(comment: str) -> str:
    """Return a comment as Markdown that shows its characters; code and lists stay what they are."""
    return _MARKUP.sub(lambda match: match[1] or f"\\{match[2]}".replace("\\<", "&lt;"), comment)


@dataclass(frozen=True, slots=True)
class Page:
    """A file of the contract, the comments of its declarations, and the file of each type."""

    file: pb.FileDescriptorProto
    comments: Mapping[Route, str]
    homes: Mapping[str, str]

    def comment(self, *route: int) -> str:
        """Return the comment of a declaration as Markdown, or nothing."""
        return escaped(self.comments.get(route, ""))

    def cell(self, *route: int) -> str:
        """Return the comment of a declaration as a cell of a table: a paragraph is a line."""
        lines = re.sub(r"\n(?=\n|\s*\* )", "\0", self.comment(*route))
        return re.sub(r"\0\s*", "<br>", lines.replace("\n", " ")).strip()

    def link(self, type_name: str) -> str:
        """Return a link to a message or an enum, by its full name; code where it is Google's."""
        name = type_name.removeprefix(".")
        if name not in self.homes:
            return f"`{name}`"
        home = posixpath.relpath(self.homes[name], posixpath.dirname(self.file.name))
        page = "" if self.homes[name] == self.file.name else home
        return f"[{escaped(name.removeprefix(f'{self.file.package}.'))}]({page}#{name})"

    def heading(self, level: int, name: str, anchor: str) -> str:
        """Return a heading that links lead to."""
        return f"{'#' * level} {name} {{ #{self.file.package}.{anchor} }}"

    def services(self) -> Iterator[str]:
        """Yield each service with its methods."""
        for i, service in enumerate(self.file.service):
            route = (_FILE.SERVICE_FIELD_NUMBER, i)
            yield self.heading(2, service.name, service.name)
            yield self.comment(*route)
            for k, method in enumerate(service.method):
                yield self.heading(3, method.name, f"{service.name}.{method.name}")
                request, response = self.link(method.input_type), self.link(method.output_type)
                streams = ["stream " * method.client_streaming, "stream " * method.server_streaming]
                yield f"{streams[0]}{request} → {streams[1]}{response}"
                number = pb.ServiceDescriptorProto.METHOD_FIELD_NUMBER
                yield self.comment(*route, number, k)

    def declarations(self) -> Iterator[str]:
        """Yield each message and enum of the file, and what is declared inside, in their order."""
        for i, message in enumerate(self.file.message_type):
            yield from self.message(message, message.name, (_FILE.MESSAGE_TYPE_FIELD_NUMBER, i))
        for i, enum in enumerate(self.file.enum_type):
            yield from self.enum(enum, enum.name, (_FILE.ENUM_TYPE_FIELD_NUMBER, i))
        extensions = _FILE.EXTENSION_FIELD_NUMBER
        for i, field in enumerate(self.file.extension):
            yield self.heading(2, f"Option `{field.name}`", field.name)
            yield f"{self.link(field.type_name)}, of {self.link(field.extendee)}."
            yield self.comment(extensions, i)

    def message(self, message: pb.DescriptorProto, name: str, route: Route) -> Iterator[str]:
        """Yield a message, then the messages and enums that are declared in it."""
        yield self.heading(2, name, name)
        yield self.comment(*route)
        if message.field:
            head = ["| field | number | type | meaning |", "|---|---|---|---|"]
            yield "\n".join([*head, *self.fields(message, route)])
        for i, inner in enumerate(message.nested_type):
            if not inner.options.map_entry:
                place = (*route, _DESCRIPTOR.NESTED_TYPE_FIELD_NUMBER, i)
                yield from self.message(inner, f"{name}.{inner.name}", place)
        for i, enum in enumerate(message.enum_type):
            place = (*route, _DESCRIPTOR.ENUM_TYPE_FIELD_NUMBER, i)
            yield from self.enum(enum, f"{name}.{enum.name}", place)

    def fields(self, message: pb.DescriptorProto, route: Route) -> Iterator[str]:
        """Yield the row of each field, and before the fields of a choice the row of the choice."""
        shown = -1
        for i, field in enumerate(message.field):
            chosen = field.HasField("oneof_index") and not field.proto3_optional
            if chosen and field.oneof_index != shown:
                shown = field.oneof_index
                meaning = self.cell(*route, _DESCRIPTOR.ONEOF_DECL_FIELD_NUMBER, shown)
                name = message.oneof_decl[shown].name
                yield f"| **one of: `{name}`** | | | {meaning} |"
            meaning = self.cell(*route, _DESCRIPTOR.FIELD_FIELD_NUMBER, i)
            kind = self.type_of(field, message)
            yield f"| `{field.name}` | {field.number} | {kind} | {meaning} |"

    def type_of(self, field: pb.FieldDescriptorProto, message: pb.DescriptorProto) -> str:
        """Return the type of a field as the source spells it, with links."""
        if not field.type_name:
            name = pb.FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
        else:
            name = self.link(field.type_name)
        for entry in message.nested_type:
            of_field = field.type_name.endswith(f".{message.name}.{entry.name}")
            if entry.options.map_entry and of_field:
                key, value = (self.type_of(part, entry) for part in entry.field)
                return f"map of {key} to {value}"
        repeated = field.label == pb.FieldDescriptorProto.LABEL_REPEATED
        return f"{'repeated ' * repeated}{'optional ' * field.proto3_optional}{name}"

    def enum(self, enum: pb.EnumDescriptorProto, name: str, route: Route) -> Iterator[str]:
        """Yield an enum with its values."""
        yield self.heading(2, name, name)
        yield self.comment(*route)
        number = pb.EnumDescriptorProto.VALUE_FIELD_NUMBER
        rows = [
            f"| `{value.name}` | {value.number} | {self.cell(*route, number, i)} |"
            for i, value in enumerate(enum.value)
        ]
        yield "\n".join(["| name | number | meaning |", "|---|---|---|", *rows])


def type_names(prefix: str, types: Sequence[Composite]) -> Iterator[str]:
    """Yield the full names of messages and enums, and of those declared in them."""
    for declared in types:
        name = f"{prefix}.{declared.name}"
        yield name
        if isinstance(declared, pb.DescriptorProto):
            yield from type_names(name, [*declared.nested_type, *declared.enum_type])


def written_before(place: pb.SourceCodeInfo.Location) -> Iterator[str]:
    """Yield the comments in front of a declaration, the one that touches it last."""
    if tuple(place.path) != _SYNTAX:  # in front of the file's comment stands its licence
        yield from place.leading_detached_comments
    yield place.leading_comments


def text(name: str) -> str:
    """Return the page of a file, such as nnpa/zdnn/v1/tensor.proto, in Markdown."""
    file = files()[name]
    comments = {
        tuple(place.path): re.sub(r"^ ", "", "\n".join(written_before(place)), flags=re.M).strip()
        for place in file.source_code_info.location
    }
    homes = {
        full: home.name
        for home in files().values()
        for full in type_names(home.package, [*home.message_type, *home.enum_type])
    }
    page = Page(file, comments, homes)
    title = f"# {posixpath.basename(name)}\n\nPackage `{file.package}`."
    parts = [title, page.comment(*_SYNTAX), *page.services(), *page.declarations()]
    return "\n\n".join(part for part in parts if part) + "\n"
