# SPDX-License-Identifier: Apache-2.0
"""Conversion of C's and NumPy's values to fields of messages."""

from collections.abc import Mapping
from numbers import Integral, Real
from operator import index
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

import ml_dtypes
import numpy as np
import numpy.typing as npt
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from nnpa.zdnn.v1.tensor_pb2 import (
    BFLOAT,
    FP16,
    FP32,
    INT8,
    INT32,
    ZDNN_1D,
    ZDNN_2D,
    ZDNN_2DS,
    ZDNN_3D,
    ZDNN_3DS,
    ZDNN_4D,
    ZDNN_4DS,
    ZDNN_HWCK,
    ZDNN_NCHW,
    ZDNN_NHWC,
    TensorDesc,
)
from nnpa_wire import byte_strings

Array: TypeAlias = npt.NDArray[Any]
"""An array of whatever element type its user chose."""

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
"""A value of a JSON document."""

TEXT = np.dtype(object)
"""The type of arrays of text."""

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
    _F.CPPTYPE_BOOL: ((np.bool_, Integral), "True or False"),
    _F.CPPTYPE_FLOAT: ((Real,), "a number"),
    _F.CPPTYPE_DOUBLE: ((Real,), "a number"),
    _F.CPPTYPE_STRING: ((str,), "text"),
}

# numpy's types for zDNN's pre-transformed types; user arrays travel little-endian.
DTYPES: Mapping[int, np.dtype[np.generic]] = MappingProxyType(
    {
        FP32: np.dtype("<f4"),
        FP16: np.dtype("<f2"),
        BFLOAT: np.dtype(ml_dtypes.bfloat16),
        INT8: np.dtype("i1"),
        INT32: np.dtype("<i4"),
    }
)

# How many dims a layout has; concatenated layouts, which no user array has, are not here.
RANKS: Mapping[int, int] = MappingProxyType(
    dict[int, int]({ZDNN_1D: 1, ZDNN_2D: 2, ZDNN_2DS: 2, ZDNN_3D: 3, ZDNN_3DS: 3})
    | dict.fromkeys((ZDNN_4D, ZDNN_4DS, ZDNN_NHWC, ZDNN_NCHW, ZDNN_HWCK), 4)
)


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
    if not isinstance(value, types):
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


def dims(desc: TensorDesc) -> tuple[int, int, int, int]:
    """Return the four dims of a descriptor, outermost first."""
    return desc.dim4, desc.dim3, desc.dim2, desc.dim1


def layout_shape(desc: TensorDesc) -> tuple[int, ...]:
    """Return the dims that the descriptor's layout has, outermost first."""
    return dims(desc)[4 - RANKS.get(desc.layout, 0) :]


def join_texts(array: Array) -> bytes:
    """Return an array of text as bytes; TypeError for an element that is not `str`."""
    texts = array.reshape(-1).tolist()
    if strange := [element for element in texts if not isinstance(element, str)]:
        raise TypeError(f"an element of text is {type(strange[0]).__name__}, expected str")
    return byte_strings.join(text.encode() for text in texts)


def split_texts(data: bytes) -> Array:
    """Return the texts of `join_texts` as an array of `str`."""
    texts = [string.decode() for string in byte_strings.split(data)]
    array = np.empty(len(texts), TEXT)
    array[:] = texts
    return array
