# SPDX-License-Identifier: Apache-2.0
"""The verbs that every SDK offers, read from the wire contract and its comments.

A verb is an arm of `Operation`. What the types of a message do not say, its comments do, in words
that the contract keeps to: "Absent is C's NULL", "Default: all", "Default false", "`new_id` is
FIELD_INVALID", "result `boolean`", "OperationResult.range".
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
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

PROTOS = Path(__file__).resolve().parent.parent
PACKAGE = "nnpa.zdnn.v1"
# First number of each family, as the comment of Operation.operation has them.
FAMILIES = {
    1: "life cycle",
    20: "elementwise",
    40: "activation",
    50: "normalization and reduction",
    60: "matmul",
    70: "pooling and convolution",
    80: "recurrent",
    100: "environment",
}
# The arms that make and end the SDK's own object; every SDK writes them by hand, with its ztensor.
LIFE = frozenset(
    {"init_ztensor", "init_quantized_ztensor", "allochelper_ztensor", "free_ztensor_buffer"}
)


class Kind(StrEnum):
    """What a parameter is."""

    ZTENSOR = "ztensor"
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


class Absent(StrEnum):
    """What it means to leave a parameter out; `REQUIRED`: it must be given."""

    REQUIRED = ""
    NULL = "NULL"
    ALL = "all"
    FALSE = "false"
    CREATED = "created"


class Value(StrEnum):
    """What a verb answers beside its status and its outputs."""

    NOTHING = ""
    BOOLEAN = "boolean"
    NUMBER = "number"
    RANGE = "range"
    DATA = "data"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter, in C order.

    `name` is C's, `enum` the name of the type of an enum, or of numbers that stand for one, or "";
    `output` tells whether the operation writes it, `doc` is its comment in one line.
    """

    name: str
    kind: Kind
    enum: str
    output: bool
    absent: Absent
    doc: str


@dataclass(frozen=True, slots=True)
class Verb:
    """One arm: `name` is the C function's without "zdnn_", `message` the arm's message.

    `doc` is the message's comment in paragraphs, the first of which begins with the C name.
    """

    name: str
    message: str
    number: int
    family: str
    doc: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    value: Value

    @property
    def by_hand(self) -> bool:
        """Whether every SDK writes this verb with its ztensor, instead of generating it."""
        return self.name in LIFE

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        """The ztensors that must exist before: all but the outputs."""
        return tuple(one for one in self.parameters if one.kind is Kind.ZTENSOR and not one.output)

    @property
    def outputs(self) -> tuple[Parameter, ...]:
        """The ztensors that the operation writes, of another name than an input's."""
        return tuple(one for one in self.parameters if one.kind is Kind.ZTENSOR and one.output)

    @property
    def scalars(self) -> tuple[Parameter, ...]:
        """What is neither a ztensor nor an array."""
        others = (Kind.ZTENSOR, Kind.NEW_ZTENSOR, Kind.DESCRIPTOR, Kind.ARRAY, Kind.ARRAYS)
        return tuple(one for one in self.parameters if one.kind not in others)

    @property
    def arrays(self) -> Parameter | None:
        """The user's array or arrays, of a transform."""
        return next((one for one in self.parameters if one.kind in (Kind.ARRAY, Kind.ARRAYS)), None)


@dataclass(frozen=True, slots=True)
class Constant:
    """One value of an enum."""

    name: str
    number: int
    doc: str


@dataclass(frozen=True, slots=True)
class Enum:
    """One enum of the contract.

    `zdnn` tells whether names and numbers are zDNN's own; then only zDNN's names are here.
    """

    name: str
    doc: str
    constants: tuple[Constant, ...]
    zdnn: bool


@dataclass(frozen=True, slots=True)
class Contract:
    """All that a template needs."""

    verbs: tuple[Verb, ...]
    enums: tuple[Enum, ...]


def descriptor_set() -> FileDescriptorSet:
    """Compile the contract, comments included."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "contract.binpb"
        sources = sorted(PROTOS.glob(f"{PACKAGE.replace('.', '/')}/*.proto"))
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
    """Read the verbs, by arm number, and the enums, by file and place."""
    files = {file.name.rpartition("/")[2]: file for file in descriptor_set().file}
    enums = tuple(one for name in sorted(files) for one in _enums(files[name]))
    return Contract(tuple(_verbs(files["operation.proto"])), enums)


def _comments(file: FileDescriptorProto) -> dict[tuple[int, ...], str]:
    """Return the comments before each element, by its path in the descriptor."""
    places = file.source_code_info.location
    return {tuple(one.path): one.leading_comments for one in places if one.leading_comments}


def _line(comment: str) -> str:
    return " ".join(comment.split())


def _paragraphs(comment: str) -> tuple[str, ...]:
    return tuple(_line(one) for one in re.split(r"\n[ \t]*\n", comment) if one.strip())


_MESSAGES = FileDescriptorProto.MESSAGE_TYPE_FIELD_NUMBER
_FIELDS = DescriptorProto.FIELD_FIELD_NUMBER
_ENUMS = FileDescriptorProto.ENUM_TYPE_FIELD_NUMBER
_VALUES = EnumDescriptorProto.VALUE_FIELD_NUMBER


def _enums(file: FileDescriptorProto) -> Iterator[Enum]:
    told = _comments(file)
    for place, enum in enumerate(file.enum_type):
        constants = tuple(
            Constant(one.name, one.number, _line(told[(_ENUMS, place, _VALUES, index)]))
            for index, one in enumerate(enum.value)
        )
        zdnn = enum.name.startswith("Nnpa") or not _unspecified(constants[0])
        if zdnn:
            constants = tuple(one for one in constants if not _unspecified(one))
        yield Enum(enum.name, _line(told[(_ENUMS, place)]), constants, zdnn)


def _unspecified(constant: Constant) -> bool:
    return constant.name.endswith("_UNSPECIFIED")


def _verbs(file: FileDescriptorProto) -> Iterator[Verb]:
    told = _comments(file)
    places = {message.name: place for place, message in enumerate(file.message_type)}
    arms = file.message_type[places["Operation"]].field
    for arm in sorted(arms, key=lambda one: one.number):
        if arm.HasField("oneof_index"):
            place = places[arm.type_name.rpartition(".")[2]]
            yield _verb(arm, file.message_type[place], place, told)


def _verb(
    arm: FieldDescriptorProto,
    message: DescriptorProto,
    place: int,
    told: dict[tuple[int, ...], str],
) -> Verb:
    family = FAMILIES[max(first for first in FAMILIES if first <= arm.number)]
    doc = _paragraphs(told[(_MESSAGES, place)])
    parameters = tuple(
        _parameter(field, _line(told[(_MESSAGES, place, _FIELDS, index)]))
        for index, field in enumerate(message.field)
    )
    return Verb(arm.name, message.name, arm.number, family, doc, parameters, _value(" ".join(doc)))


def _value(doc: str) -> Value:
    found = re.search(r"result `(boolean|number)`|OperationResult\.(range|data)\b", doc)
    return Value(found[1] or found[2]) if found else Value.NOTHING


def _parameter(field: FieldDescriptorProto, doc: str) -> Parameter:
    kind, name = _kind(field), field.name
    if kind is Kind.ARRAYS and doc.startswith("One array."):
        kind = Kind.ARRAY
    written = kind is Kind.ZTENSOR and (name == "dest" or "output" in name.split("_"))
    told = re.search(r"of enum (\w+)", doc) if kind is Kind.INT32S else None
    enum = told[1] if told else field.type_name.rpartition(".")[2] if kind is Kind.ENUM else ""
    return Parameter(name, kind, enum, written, _absent(written, doc), doc)


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
        return _MESSAGE_KINDS[field.type_name.rpartition(".")[2]]
    repeated = field.label == FieldDescriptorProto.LABEL_REPEATED
    return (_LISTS if repeated else _SCALARS)[field.type]


def _absent(written: bool, doc: str) -> Absent:
    if written:
        return Absent.REQUIRED if "`new_id` is FIELD_INVALID" in doc else Absent.CREATED
    for words, meaning in (
        ("Absent is C's NULL", Absent.NULL),
        ("Default: all", Absent.ALL),
        ("Default false", Absent.FALSE),
    ):
        if words in doc:
            return meaning
    return Absent.REQUIRED
