# SPDX-License-Identifier: Apache-2.0
"""Conversion of Python's, C's and NumPy's values to fields of messages, without importing NumPy."""

from collections.abc import Mapping
from numbers import Integral, Real
from operator import index
from typing import Any, TypeAlias, TypeVar

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
"""A value of a JSON document."""

UINT32_MAX = 0xFFFFFFFF

AnyMessage = TypeVar("AnyMessage", bound=Message)
_F = FieldDescriptor
_RANGES = {
    _F.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    _F.CPPTYPE_UINT32: (0, UINT32_MAX),
    _F.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    _F.CPPTYPE_UINT64: (0, (1 << 64) - 1),
}
_KINDS: Mapping[int, tuple[tuple[type, ...], str]] = {
    _F.CPPTYPE_BOOL: ((Integral,), "True or False"),
    _F.CPPTYPE_FLOAT: ((Real,), "a number"),
    _F.CPPTYPE_DOUBLE: ((Real,), "a number"),
    _F.CPPTYPE_STRING: ((str,), "text"),
}


def message_of(kind: type[AnyMessage], fields: Mapping[str, Any]) -> AnyMessage:
    """Return a message with fields; TypeError or ValueError names the first that does not fit.

    The number of an enum may have 32 bits, with or without a sign, as in C; its name is taken, too.
    """
    try:
        return kind(**fields)
    except (TypeError, ValueError):
        described = kind.DESCRIPTOR.fields_by_name
        return kind(**{name: _fitting(described[name], name, fields[name]) for name in fields})


def set_field(message: Message, field: str, name: str, value: object) -> None:
    """Set a scalar field of a message, called `name` in errors; raise as `message_of`."""
    setattr(message, field, _fitting(message.DESCRIPTOR.fields_by_name[field], name, value))


def _fitting(field: Any, name: str, value: Any) -> Any:
    """Return a value that a field takes, or raise as `message_of`; None leaves the field unset."""
    if value is None:
        return None
    if isinstance(value, list):
        return [_fitting(field, name, each) for each in value]
    if field.enum_type is not None:
        return c_enum(enum_number(field.enum_type, name, value))
    if field.cpp_type in _RANGES:
        low, high = _RANGES[field.cpp_type]
        number = whole(name, value)
        if not low <= number <= high:
            raise ValueError(f"{name}: {number}, expected {low} to {high}")
        return number
    kind = field.message_type
    described = ((Message,), f"a {kind.name}") if kind else _KINDS.get(field.cpp_type)
    types, expected = described or ((bytes,), "bytes")
    is_numpy_bool = field.cpp_type == _F.CPPTYPE_BOOL and type(value).__name__ in ("bool", "bool_")
    if not isinstance(value, types) and not is_numpy_bool:
        raise TypeError(f"{name}: {value!r}, expected {expected}")
    return value


def whole(name: str, value: Any) -> int:
    """Return a whole number; raise TypeError for anything else."""
    try:
        return index(value)
    except TypeError:
        raise TypeError(f"{name}: {value!r}, expected a whole number") from None


def c_enum(value: int) -> Any:
    """Return the int32 with the bits of a 32-bit C enum value, as a plain int."""
    bits = int(value) & UINT32_MAX
    return bits - (1 << 32) if bits > 0x7FFFFFFF else bits


def enum_number(enum: EnumDescriptor, field: str, value: int | str, prefix: str = "") -> int:
    """Return the number of an enum's value from its number or name.

    A name has any case, with or without `prefix`. Raises ValueError that lists the names for an
    unknown one, TypeError for a value that is neither a name nor a whole number.
    """
    if isinstance(value, str):
        name = value.upper()
        member = enum.values_by_name.get(name) or enum.values_by_name.get(prefix + name)
        if member is not None:
            return int(member.number)
    elif hasattr(value, "__index__"):
        return index(value)
    names = ", ".join(member.removeprefix(prefix) for member in enum.values_by_name)
    kind = ValueError if isinstance(value, str) else TypeError
    raise kind(f"{field}: {value!r}, expected one of {names}")


def enum_of_word(enum: EnumDescriptor, field: str, word: object) -> int:
    """Return the number of an enum's value by its lower-case name without the enum's.

    Raises ValueError that lists the names for any other word.
    """
    unspecified, *members = enum.values
    prefix = unspecified.name.removesuffix("UNSPECIFIED")
    numbers = {member.name.removeprefix(prefix).lower(): member.number for member in members}
    if not isinstance(word, str) or word not in numbers:
        raise ValueError(f"{field}: {word!r}, expected one of {', '.join(numbers)}")
    return numbers[word]


def enum_name(enum: EnumDescriptor, number: int) -> str:
    """Return the name of an enum's value, or its number if it has no name."""
    value = enum.values_by_number.get(number)
    return str(number) if value is None else value.name


def c_uint32(name: str, value: int) -> int:
    """Return the value, or raise ValueError or TypeError when a uint32_t cannot hold it."""
    number = whole(name, value)
    if not 0 <= number <= UINT32_MAX:
        raise ValueError(f"{name}: {number}, expected 0 to {UINT32_MAX}")
    return number
