# SPDX-License-Identifier: Apache-2.0
"""The model of the contract from which every SDK's verbs are generated.

A verb is an arm of `Operation`, or of MLI's `Kernel`. Names, types and comments come from the
messages; what these do not say comes from the options of `options.proto`.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from nnpa.zdnn.v1 import options_pb2 as pb

PROTOS = Path(__file__).resolve().parent.parent
APIS = ("mli", "zdnn")


class Kind(StrEnum):
    """The kind of a parameter."""

    ZTENSOR = "ztensor"  # of MLI: a tensor
    NEW_ZTENSOR = "new_ztensor"
    DESCRIPTOR = "descriptor"
    ARRAY = "array"
    ARRAYS = "arrays"
    ENUM = "enum"
    BOOL = "bool"
    FLOAT = "float"
    INT32 = "int32"
    UINT32 = "uint32"
    INT32S = "int32s"
    STRUCTURE = "structure"


class Absent(StrEnum):
    """The meaning of a parameter that the caller leaves out; `REQUIRED` refuses it."""

    REQUIRED = ""
    NULL = "null"
    ALL = "all"
    FALSE = "false"
    CREATED = "created"


class Value(StrEnum):
    """The value that a verb returns beside its status and its outputs."""

    NOTHING = ""
    BOOLEAN = "boolean"
    NUMBER = "number"
    RANGE = "range"
    DATA = "data"


# The verbs that make and end the SDK's own object; every SDK writes them by hand, with its ztensor.
_LIFE = frozenset((pb.ACCESS_CREATE, pb.ACCESS_ALLOCATE, pb.ACCESS_FREE))
_COMPUTING = range(pb.FAMILY_ELEMENTWISE, pb.FAMILY_RECURRENT + 1)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter, in C order.

    `name` is C's, `enum` the name of the type of an enum, or of numbers that stand for one, or "";
    `default` is the constant of that enum that asks for nothing, or "". `area` names the memory
    that C takes before this parameter, or is "". `doc` is its comment in one line.
    """

    name: str
    kind: Kind
    enum: str
    default: str
    absent: Absent
    area: str
    doc: str
    options: pb.ParameterOptions

    @property
    def output(self) -> bool:
        """True if the operation writes the parameter."""
        return self.options.access == pb.ACCESS_WRITE


@dataclass(frozen=True, slots=True)
class Verb:
    """An arm: `name` is the C function's without prefix, `title` the arm's comment.

    `message` is its message, `doc` the message's comment in paragraphs, the first of which begins
    with the C name, but of MLI.
    """

    name: str
    title: str
    message: str
    number: int
    doc: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    value: Value
    options: pb.FunctionOptions

    @property
    def family(self) -> str:
        """The family's name in small letters, for example "elementwise"."""
        return _word(pb.Family.Name(self.options.family))

    @property
    def computes(self) -> bool:
        """True if the verb is an operation of the machine."""
        return self.options.family in _COMPUTING

    @property
    def by_hand(self) -> bool:
        """True if every SDK writes this verb by hand, beside its ztensor."""
        return any(parameter.options.access in _LIFE for parameter in self.parameters)

    @property
    def summary(self) -> str:
        """The first sentence of the comment, without the C name, with a capital letter."""
        text = self.doc[0].partition(": ")[2]
        sentence = re.split(r"(?<=\.) (?=[A-Z])", text, maxsplit=1)[0]
        return sentence[:1].upper() + sentence[1:]

    @property
    def details(self) -> tuple[str, ...]:
        """The comment without the summary, in paragraphs."""
        text = self.doc[0].partition(": ")[2]
        rest = text[len(self.summary) :].strip()
        return (rest, *self.doc[1:]) if rest else self.doc[1:]

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        """The ztensors that must exist before: all but the outputs."""
        return tuple(
            parameter
            for parameter in self.parameters
            if parameter.kind is Kind.ZTENSOR and not parameter.output
        )

    @property
    def outputs(self) -> tuple[Parameter, ...]:
        """The ztensors that the operation writes."""
        return tuple(parameter for parameter in self.parameters if parameter.output)

    @property
    def scalars(self) -> tuple[Parameter, ...]:
        """The parameters that are neither ztensors nor arrays."""
        rest = (Kind.ZTENSOR, Kind.NEW_ZTENSOR, Kind.DESCRIPTOR, Kind.ARRAY, Kind.ARRAYS)
        return tuple(parameter for parameter in self.parameters if parameter.kind not in rest)

    @property
    def arrays(self) -> Parameter | None:
        """The user's array or arrays, of a transform."""
        kinds = (Kind.ARRAY, Kind.ARRAYS)
        return next((parameter for parameter in self.parameters if parameter.kind in kinds), None)

    @property
    def area(self) -> str:
        """The memory that only C passes; it does not travel: "save_area", "work_area" or ""."""
        return next((parameter.area for parameter in self.parameters if parameter.area), "")


@dataclass(frozen=True, slots=True)
class Constant:
    """A value of an enum; `options` are a function code's, `machine` a machine's, else empty."""

    name: str
    number: int
    doc: str
    options: pb.CodeOptions
    machine: pb.MachineOptions


@dataclass(frozen=True, slots=True)
class Enum:
    """An enum of the contract.

    `c_name` is its name in zdnn.h; then only zDNN's constants are here. It is "" for our own enums.
    `module` is the file of the contract that holds it, for example "operation".
    """

    name: str
    doc: str
    constants: tuple[Constant, ...]
    c_name: str
    module: str

    @property
    def zdnn(self) -> bool:
        """True if names and numbers are zDNN's own."""
        return bool(self.c_name)


@dataclass(frozen=True, slots=True)
class Contract:
    """The model that every template reads."""

    verbs: tuple[Verb, ...]
    kernels: tuple[Verb, ...]
    enums: tuple[Enum, ...]


def descriptor_set() -> FileDescriptorSet:
    """Compile the contract, comments included."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "contract.binpb"
        sources = [path for api in APIS for path in sorted(PROTOS.glob(f"nnpa/{api}/v1/*.proto"))]
        command = [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"-I{PROTOS}",
            "--include_source_info",
        ]
        names = [str(path.relative_to(PROTOS)) for path in sources]
        subprocess.run([*command, f"--descriptor_set_out={target}", *names], cwd=PROTOS, check=True)
        return FileDescriptorSet.FromString(target.read_bytes())


def read_contract() -> Contract:
    """Read the verbs, by arm number, and zDNN's enums, by file and place."""
    files = {Path(file.name).stem: file for file in descriptor_set().file}
    names = sorted(files.keys() - {"mli", "options"})
    enums = tuple(enum for name in names for enum in _enums(name, files[name]))
    defaults = {
        enum.name: next(value.name for value in enum.value if value.number == 0)
        for enum in files["operation"].enum_type
        if enum.options.Extensions[pb.zdnn_enum].zero_is_default
    }
    verbs = tuple(_verbs(files["operation"], "Operation", defaults))
    return Contract(verbs, tuple(_verbs(files["mli"], "Kernel", {})), enums)


def _word(value: str) -> str:
    """Return a value of an option's enum without the enum's name; "" for UNSPECIFIED."""
    return value.partition("_")[2].lower().removesuffix("unspecified")


def _comments(file: FileDescriptorProto) -> dict[tuple[int, ...], str]:
    """Return the comments before each element, by its path in the descriptor."""
    locations = file.source_code_info.location
    return {
        tuple(location.path): location.leading_comments
        for location in locations
        if location.leading_comments
    }


def _line(comment: str) -> str:
    return " ".join(comment.split())


def _paragraphs(comment: str) -> tuple[str, ...]:
    return tuple(_line(text) for text in re.split(r"\n[ \t]*\n", comment) if text.strip())


_MESSAGES = FileDescriptorProto.MESSAGE_TYPE_FIELD_NUMBER
_FIELDS = DescriptorProto.FIELD_FIELD_NUMBER
_ENUMS = FileDescriptorProto.ENUM_TYPE_FIELD_NUMBER
_ENUM_VALUES = EnumDescriptorProto.VALUE_FIELD_NUMBER


def _enums(module: str, file: FileDescriptorProto) -> Iterator[Enum]:
    comments = _comments(file)
    for place, enum in enumerate(file.enum_type):
        c_name = enum.options.Extensions[pb.zdnn_enum].c_name
        constants = tuple(
            Constant(
                value.name,
                value.number,
                _line(comments[(_ENUMS, place, _ENUM_VALUES, index)]),
                value.options.Extensions[pb.zdnn_code],
                value.options.Extensions[pb.zdnn_machine],
            )
            for index, value in enumerate(enum.value)
            if not (c_name and value.name.endswith("_UNSPECIFIED"))
        )
        yield Enum(enum.name, _line(comments[(_ENUMS, place)]), constants, c_name, module)


def _verbs(file: FileDescriptorProto, union: str, defaults: Mapping[str, str]) -> Iterator[Verb]:
    """Yield the arms of a message by number."""
    comments = _comments(file)
    places = {message.name: place for place, message in enumerate(file.message_type)}
    arms = enumerate(file.message_type[places[union]].field)
    for number, arm in sorted(arms, key=lambda pair: pair[1].number):
        if arm.HasField("oneof_index"):
            place = places[arm.type_name.rpartition(".")[2]]
            message = file.message_type[place]
            parameters = tuple(
                _parameter(field, _line(comments[(_MESSAGES, place, _FIELDS, index)]), defaults)
                for index, field in enumerate(message.field)
            )
            title = _line(comments[(_MESSAGES, places[union], _FIELDS, number)])
            doc = _paragraphs(comments[(_MESSAGES, place)])
            yield _verb(arm, title, message, doc, parameters)


def _verb(
    arm: FieldDescriptorProto,
    title: str,
    message: DescriptorProto,
    doc: tuple[str, ...],
    parameters: tuple[Parameter, ...],
) -> Verb:
    options = message.options.Extensions[pb.zdnn_function]
    if options.parmblk_format == 1:
        doc = (*doc, "Needs Telum II.")
    value = Value(_word(pb.Answer.Name(options.answer)))
    return Verb(arm.name, title, message.name, arm.number, doc, parameters, value, options)


def _parameter(field: FieldDescriptorProto, doc: str, defaults: Mapping[str, str]) -> Parameter:
    kind, options = _kind(field), field.options.Extensions[pb.zdnn_parameter]
    if kind is Kind.ARRAYS and options.single:
        kind = Kind.ARRAY
    enum = field.type_name.rpartition(".")[2] if kind is Kind.ENUM else options.enumeration
    absent = Absent(_word(pb.Absence.Name(options.absence)))
    if options.access == pb.ACCESS_WRITE and not options.must_exist:
        absent = Absent.CREATED
    area = f"{_word(pb.Area.Name(options.area))}_area" if options.area else ""
    return Parameter(field.name, kind, enum, defaults.get(enum, ""), absent, area, doc, options)


_SCALARS = {
    FieldDescriptorProto.TYPE_ENUM: Kind.ENUM,
    FieldDescriptorProto.TYPE_BOOL: Kind.BOOL,
    FieldDescriptorProto.TYPE_FLOAT: Kind.FLOAT,
    FieldDescriptorProto.TYPE_INT32: Kind.INT32,
    FieldDescriptorProto.TYPE_UINT32: Kind.UINT32,
    FieldDescriptorProto.TYPE_UINT64: Kind.NEW_ZTENSOR,
}
_LISTS = {
    FieldDescriptorProto.TYPE_BYTES: Kind.ARRAYS,
    FieldDescriptorProto.TYPE_INT32: Kind.INT32S,
}
_MESSAGE_KINDS = {"TensorRef": Kind.ZTENSOR, "TensorDesc": Kind.DESCRIPTOR}


def _kind(field: FieldDescriptorProto) -> Kind:
    if field.type == FieldDescriptorProto.TYPE_MESSAGE:
        return _MESSAGE_KINDS.get(field.type_name.rpartition(".")[2], Kind.STRUCTURE)
    repeated = field.label == FieldDescriptorProto.LABEL_REPEATED
    return (_LISTS if repeated else _SCALARS)[field.type]
