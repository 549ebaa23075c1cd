# SPDX-License-Identifier: Apache-2.0
"""Fields of a message's wire form: where they are, and how they are written.

Source: Protocol Buffers, "Encoding".
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from google.protobuf.message import DecodeError

BYTES = 2
"""The wire type of length-delimited fields."""
_VARINT = 0
_FIXED = {1: 8, 5: 4}


class Field(NamedTuple):
    """A field on the wire: its number, its wire type, and where it, its value and its end are."""

    number: int
    kind: int
    start: int
    value: int
    end: int


def fields(view: memoryview) -> Iterator[Field]:
    """Yield the fields of a message's wire form; groups, which no message of ours has, are errors.

    Raises DecodeError.
    """
    position, end = 0, len(view)
    while position < end:
        start = position
        tag, position = read_varint(view, position)
        kind = tag & 7
        value = position
        if kind == BYTES:
            size, value = read_varint(view, position)
            position = value + size
        elif kind == _VARINT:
            _, position = read_varint(view, position)
        else:
            position += _FIXED.get(kind, end)
        if position > end:
            raise DecodeError("a field goes beyond its message")
        yield Field(tag >> 3, kind, start, value, position)


def read_varint(view: memoryview | bytes, position: int) -> tuple[int, int]:
    """Return a number and where it ends."""
    number = 0
    for shift in range(0, 70, 7):
        if position >= len(view):
            break
        byte = view[position]
        number |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return number, position
    raise DecodeError("a number that does not end")


def varint(number: int) -> bytes:
    """Return the wire form of a number."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


@lru_cache(maxsize=256)
def head(number: int, size: int) -> bytes:
    """Return the tag and length of a field of `size` bytes."""
    return varint(number << 3 | BYTES) + varint(size)


def delimited(number: int, contents: bytes) -> bytes:
    """Return a field of bytes with its tag and length."""
    return head(number, len(contents)) + contents
