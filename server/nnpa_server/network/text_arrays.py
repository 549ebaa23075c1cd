# SPDX-License-Identifier: Apache-2.0
"""Arrays of text as bytes: the length of each text, 4 bytes, little-endian, then its UTF-8."""

import math
import struct
from collections.abc import Iterator
from itertools import islice

import numpy as np
from nnpa_network.program import Array

TEXT = np.dtype(object)
"""The type of arrays of text, as ONNX Runtime has them."""
_LENGTH = struct.Struct("<I")
LENGTH_BYTES = _LENGTH.size


def encode_text(array: Array) -> Array:
    """Return an array of text as bytes."""
    parts = [str(text).encode() for text in array.reshape(-1).tolist()]
    data = b"".join(_LENGTH.pack(len(part)) + part for part in parts)
    return np.frombuffer(data, np.uint8)


def decode_text(data: Array, shape: tuple[int, ...]) -> Array:
    """Return an array of text; raise ValueError for bytes that are none of this shape."""
    try:
        texts = list(islice(_texts(data.tobytes()), math.prod(shape) + 1))
        array = np.empty(len(texts), TEXT)
        array[:] = texts
        return array.reshape(shape)
    except (struct.error, ValueError) as error:
        raise ValueError(f"{data.nbytes} bytes are no texts of shape {shape}") from error


def _texts(data: bytes) -> Iterator[str]:
    position = 0
    while position < len(data):
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        part = data[position : position + length]
        if len(part) != length:
            raise ValueError("a text that ends early")
        yield part.decode()
        position += length
