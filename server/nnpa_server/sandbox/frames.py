# SPDX-License-Identifier: Apache-2.0
"""The frames between server and worker, and the arrays in the arena, memory that both map.

A frame is a header and a body. The body of a job or an answer is a table of arrays, followed by
bytes whose meaning the caller defines. The elements of the arrays lie in the arena, at the offsets
in the table. A worker is not trusted: the server checks every length, type, shape and offset, and
copies elements before it looks at them. Nothing is pickled.
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
"""The sizes in a FAILED frame, which say how the job failed."""
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
"""Element types that arrays of jobs and answers may have."""


class Kind(IntEnum):
    """The kind of a frame; ROOM asks for a larger arena, GROWN confirms it."""

    JOB = 1
    GROWN = 2
    READY = 3
    ANSWER = 4
    ROOM = 5
    FAILED = 6


_KINDS: Final = frozenset(Kind)


class Malformed(ValueError):
    """Bytes are no valid frame or table of arrays."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame; `size` is the arena's size in bytes, or in a FAILED frame the failure."""

    kind: Kind
    body: bytes = b""
    size: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """A job for a worker, or its answer: bytes whose meaning the caller defines, and arrays."""

    text: bytes
    arrays: tuple[Array, ...] = ()


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of an array in the arena."""

    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        """The size of the elements in bytes."""
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
    """Return an array with row-major elements in the host's byte order."""
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return np.ascontiguousarray(native).reshape(array.shape)


def plan_slots(arrays: Sequence[Array], begin: int) -> tuple[tuple[Slot, ...], int]:
    """Return slots for dense arrays from offset `begin` on, and the offset of their end."""
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
    """Return the slots of arrays in an arena of `arena` bytes, and the text; raise `Malformed`."""
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
