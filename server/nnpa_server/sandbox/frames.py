# SPDX-License-Identifier: Apache-2.0
"""Frames between server and worker: lengths first, arrays in memory that both have.

A frame is a header and a body. The body of a job and of an answer is a table of arrays and a text
of the callers' own; the arrays' elements lie in the arena, where the table says. Nothing is
believed that comes from a worker: every length, type, shape and place is checked, nothing is
unpickled, and elements are copied before they are looked at.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.generic]

HEADER: Final = struct.Struct("<4sIIQ")  # magic, kind, length of the body, a size in bytes
MAX_BODY: Final = 64 << 20
MAX_ARRAYS: Final = 200_000
MAX_DIMS: Final = 32
OUT_OF_MEMORY, OTHER_FAILURE = 1, 2
"""Sizes that a FAILED frame has."""
_MAGIC = b"nnpw"
_COUNT, _ENTRY = struct.Struct("<I"), struct.Struct("<BBQ")  # arrays; type, dims, place
_ALIGNMENT = 64
TYPES: Final = tuple(
    np.dtype(name)
    for name in (
        "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
        "float16", "float32", "float64", "complex64", "complex128",
        ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz,
        ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz, ml_dtypes.int4, ml_dtypes.uint4,
    )
)  # fmt: skip
"""Element types of arrays that travel."""


class Kind(IntEnum):
    """What a frame is for; ROOM asks for a larger arena, GROWN says that it is."""

    JOB = 1
    GROWN = 2
    READY = 3
    ANSWER = 4
    ROOM = 5
    FAILED = 6


_KINDS: Final = frozenset(Kind)


class Malformed(ValueError):
    """Bytes that are no frame, or no table of arrays."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A header with its body; `size` is bytes of the arena, or a count that its kind explains."""

    kind: Kind
    body: bytes = b""
    size: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """What is asked of a worker, or what it answers: a text of the callers' own, and arrays."""

    text: bytes
    arrays: tuple[Array, ...] = ()


@dataclass(frozen=True, slots=True)
class Slot:
    """Where an array lies in the arena."""

    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return math.prod(self.shape) * self.dtype.itemsize


def encode_header(frame: Frame) -> bytes:
    """Return a frame's header."""
    return HEADER.pack(_MAGIC, frame.kind, len(frame.body), frame.size)


def decode_header(header: bytes) -> tuple[Kind, int, int]:
    """Return a frame's kind, the length of its body, and its size; raise `Malformed`."""
    magic, kind, length, size = HEADER.unpack(header)
    if magic != _MAGIC or kind not in _KINDS:
        raise Malformed("bytes that begin no frame")
    if length > MAX_BODY:
        raise Malformed(f"a body of {length} bytes, at most {MAX_BODY} may come")
    return Kind(kind), length, size


def dense(array: Array) -> Array:
    """Return an array with its elements in row-major order, in the host's order of bytes."""
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return np.ascontiguousarray(native).reshape(array.shape)


def plan_slots(arrays: Sequence[Array], begin: int) -> tuple[tuple[Slot, ...], int]:
    """Return places of dense arrays in the arena, from `begin` on, and where the last one ends."""
    slots: list[Slot] = []
    for array in arrays:
        begin = -(-begin // _ALIGNMENT) * _ALIGNMENT
        slots.append(Slot(array.dtype, array.shape, begin))
        begin += array.nbytes
    return tuple(slots), begin


def encode_body(slots: Sequence[Slot], text: bytes) -> bytes:
    """Return the table of arrays with the text behind it."""
    parts = [_COUNT.pack(len(slots))]
    for slot in slots:
        if slot.dtype not in TYPES:
            raise Malformed(f"arrays of {slot.dtype} do not travel")
        parts.append(_ENTRY.pack(TYPES.index(slot.dtype), len(slot.shape), slot.offset))
        parts.append(struct.pack(f"<{len(slot.shape)}Q", *slot.shape))
    body = b"".join((*parts, text))
    if len(body) > MAX_BODY:
        raise Malformed(f"a body of {len(body)} bytes, at most {MAX_BODY} may go")
    return body


def decode_body(body: bytes, arena: int) -> tuple[tuple[Slot, ...], bytes]:
    """Return the places of arrays, all within `arena` bytes, and the text; raise `Malformed`."""
    slots: list[Slot] = []
    try:
        (count,) = _COUNT.unpack_from(body)
        if count > MAX_ARRAYS:
            raise Malformed(f"{count} arrays, at most {MAX_ARRAYS} may come")
        position = _COUNT.size
        for _ in range(count):
            slot, position = _decode_slot(body, position)
            if slot.offset % _ALIGNMENT or slot.offset + slot.nbytes > arena:
                raise Malformed(f"an array of {slot.nbytes} bytes beside the arena")
            slots.append(slot)
    except struct.error as error:
        raise Malformed("a table of arrays that ends early") from error
    if sum(slot.nbytes for slot in slots) > arena:
        raise Malformed("arrays that share their places")
    return tuple(slots), body[position:]


def _decode_slot(body: bytes, position: int) -> tuple[Slot, int]:
    kind, n_dims, offset = _ENTRY.unpack_from(body, position)
    if kind >= len(TYPES) or n_dims > MAX_DIMS:
        raise Malformed(f"an array of type {kind} with {n_dims} dims")
    position += _ENTRY.size
    shape = struct.unpack_from(f"<{n_dims}Q", body, position)
    return Slot(TYPES[kind], shape, offset), position + 8 * n_dims
