# SPDX-License-Identifier: Apache-2.0
"""Describe how each arm of Operation is read: its fields are the function's arguments.

An `OperationSpec` is built once, from the options of the arm's message and the emulator's function
of the same name; no operation is named here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from nnpa.zdnn.v1 import operation_pb2, tensor_pb2
from nnpa.zdnn.v1 import options_pb2 as pb
from nnpa_emulator import FUNCTIONS, TensorDesc
from nnpa_emulator.machine import LIBRARY_VERSIONS
from nnpa_emulator.pipeline import Function

from nnpa_server.errors import invalid, unspecified

Reader: TypeAlias = Callable[[Message, str], object]

_UNSIGNED = 0xFFFFFFFF
_COMPUTING = range(pb.FAMILY_ELEMENTWISE, pb.FAMILY_RECURRENT + 1)
_FILLED = frozenset((pb.ACCESS_WRITE, pb.ACCESS_FILL, pb.ACCESS_ALLOCATE))
_READ = frozenset((pb.ACCESS_UNSPECIFIED, pb.ACCESS_ALLOCATE))


@dataclass(frozen=True, slots=True)
class OperationSpec:
    """An arm of Operation: its tensors, their use by the function, and readers of other fields.

    creates     the field with the id of a tensor to create
    written     tensors that results report
    filled      written tensors whose buffer is written
    may_be_new  outputs that the server may create
    read        tensors whose contents are read
    may_leave   the function may end before it has written a whole output
    hints       values for output shape inference alone
    pattern     inputs whose pre-transformed descriptors shape inference starts from
    since       the first library version with the function
    """

    name: str
    function: Function
    tensors: tuple[str, ...]
    values: tuple[tuple[str, Reader], ...]
    hints: tuple[tuple[str, Reader], ...]
    creates: str | None
    frees: bool
    written: tuple[str, ...]
    filled: frozenset[str]
    may_be_new: frozenset[str]
    read: frozenset[str]
    may_leave: bool
    needs_pre: bool
    pattern: frozenset[str]
    compute: bool
    since: int


# One object for equal descriptors: prepared calls compare them by identity.
_same_desc = lru_cache(maxsize=4096)(TensorDesc)


def read_desc(message: tensor_pb2.TensorDesc, path: str, *, transformed: bool) -> TensorDesc:
    """Return a descriptor; refuse it without layout, type or, if transformed, format."""
    if not message.HasField("layout"):
        raise unspecified(f"{path}.layout")
    if not message.HasField("type"):
        raise unspecified(f"{path}.type")
    if transformed and not message.HasField("format"):
        raise unspecified(f"{path}.format")
    return _same_desc(
        message.layout & _UNSIGNED,
        message.format & _UNSIGNED,
        message.type & _UNSIGNED,
        message.dim4,
        message.dim3,
        message.dim2,
        message.dim1,
    )


def _desc_reader(name: str) -> Reader:
    transformed = name == "transformed_desc"

    def read(message: Message, path: str) -> TensorDesc:
        if not message.HasField(name):
            raise unspecified(f"{path}.{name}")
        return read_desc(getattr(message, name), f"{path}.{name}", transformed=transformed)

    return read


def _scalar_reader(name: str, required: bool, default: object) -> Reader:
    def read(message: Message, path: str) -> object:
        if message.HasField(name):
            value: object = getattr(message, name)
            return value
        if required:
            raise unspecified(f"{path}.{name}")
        return default

    return read


def _int8_reader(name: str) -> Reader:
    """Return a reader for C's int8_t, which refuses numbers out of its range."""
    scalar = _scalar_reader(name, True, None)

    def read(message: Message, path: str) -> int:
        number = scalar(message, path)
        if not isinstance(number, int) or not -128 <= number <= 127:
            raise invalid(f"{path}.{name}", number, "-128 to 127")
        return number

    return read


def _count_reader(name: str, codes: str) -> Reader:
    """Return a reader for C's count of variadic codes, which refuses more than there are."""

    def read(message: Message, path: str) -> int | None:
        if not message.HasField(name):
            return None
        limit, count = len(getattr(message, codes)), int(getattr(message, name))
        if count > limit:
            raise invalid(f"{path}.{name}", count, f"at most {limit}, the number of {codes}")
        return count

    return read


def _list_reader(name: str) -> Reader:
    def read(message: Message, _path: str) -> list[object]:
        return list(getattr(message, name))

    return read


def _parameter(field: FieldDescriptor) -> pb.ParameterOptions:
    return field.GetOptions().Extensions[pb.zdnn_parameter]


def _reader(field: FieldDescriptor, function: Function) -> Reader:
    name, options = field.name, _parameter(field)
    if field.is_repeated:
        return _list_reader(name)
    if field.message_type is not None:
        return _desc_reader(name)
    if options.bits == 8 and field.type == FieldDescriptor.TYPE_INT32:
        return _int8_reader(name)
    if options.counts:
        return _count_reader(name, options.counts)
    parameter = function.parameters.get(name)
    if parameter is None:
        return _scalar_reader(name, False, False)
    required = parameter.default is parameter.empty
    return _scalar_reader(name, required, None if required else parameter.default)


def _is_tensor(field: FieldDescriptor) -> bool:
    return field.message_type is tensor_pb2.TensorRef.DESCRIPTOR


def _make(arm: FieldDescriptor, function: Function) -> OperationSpec:
    message: Descriptor | None = arm.message_type
    assert message is not None, arm.name
    options = message.GetOptions().Extensions[pb.zdnn_function]
    parameters = {field.name: _parameter(field) for field in message.fields}
    access = {name: parameter.access for name, parameter in parameters.items()}
    tensors = tuple(field.name for field in message.fields if _is_tensor(field))
    creates = next((name for name in access if access[name] == pb.ACCESS_CREATE), None)
    readers = [
        (field.name, _reader(field, function))
        for field in message.fields
        if field.name not in (*tensors, creates)
    ]
    outputs = [name for name in tensors if access[name] == pb.ACCESS_WRITE]
    return OperationSpec(
        name=arm.name,
        function=function,
        tensors=tensors,
        values=tuple(reader for reader in readers if reader[0] in function.parameters),
        hints=tuple(reader for reader in readers if reader[0] not in function.parameters),
        creates=creates,
        frees=pb.ACCESS_FREE in access.values(),
        written=tuple(name for name in access if access[name] != pb.ACCESS_UNSPECIFIED),
        filled=frozenset(name for name in tensors if access[name] in _FILLED),
        may_be_new=frozenset(name for name in outputs if not parameters[name].must_exist),
        read=frozenset(name for name in tensors if access[name] in _READ),
        may_leave=options.may_end_early,
        needs_pre=options.reads_pre_transformed,
        pattern=frozenset(options.pattern or tensors[:1]),
        compute=options.family in _COMPUTING,
        since=LIBRARY_VERSIONS[function.since],
    )


_FIELDS = operation_pb2.Operation.DESCRIPTOR.oneofs_by_name["operation"].fields
# Arms of the contract that the emulator knows; the others are FUNCTION_NOT_IMPLEMENTED.
OPERATION_SPECS: Mapping[str, OperationSpec] = MappingProxyType(
    {
        field.name: _make(field, FUNCTIONS[field.name])
        for field in _FIELDS
        if field.name in FUNCTIONS
    }
)
