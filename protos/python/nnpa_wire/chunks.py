# SPDX-License-Identifier: Apache-2.0
"""Chunks of WriteTensor and ReadTensor as bytes, past the protobuf runtime, which would copy them.

A chunk is field 2 of WriteTensorRequest and of ReadTensorResponse: a tag, a length, the bytes.
"""

from nnpa_wire.fields import BYTES, Field, fields, head

CHUNK = 2
"""The number of the field."""
_TAG = CHUNK << 3 | BYTES


def serialize_chunk(chunk: memoryview) -> bytes:
    """Return the wire form of a message that is a chunk."""
    return head(CHUNK, chunk.nbytes) + chunk


def parse_chunk(raw: bytes) -> memoryview | None:
    """Return the bytes of a chunk; None for any other message."""
    if raw[:1] != bytes((_TAG,)):
        return None
    view = memoryview(raw)
    field: Field = next(fields(view))
    return view[field.value :] if field.end == len(raw) else None
