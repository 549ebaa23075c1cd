# SPDX-License-Identifier: Apache-2.0
"""Arrays of text as bytes: UTF-8, the length of each text before it."""

import math
from itertools import islice

import numpy as np
from nnpa_network.program import Array
from nnpa_wire import byte_strings

TEXT = np.dtype(object)
"""The type of arrays of text, as ONNX Runtime has them."""


def encode_text(array: Array) -> Array:
    """Return an array of text as bytes."""
    texts = array.reshape(-1).tolist()
    return np.frombuffer(byte_strings.join(str(text).encode() for text in texts), np.uint8)


def decode_text(data: Array, shape: tuple[int, ...]) -> Array:
    """Return an array of text; raise ValueError for bytes that are none of this shape."""
    try:
        strings = islice(byte_strings.split(data.tobytes()), math.prod(shape) + 1)
        texts = [string.decode() for string in strings]
        array = np.empty(len(texts), TEXT)
        array[:] = texts
        return array.reshape(shape)
    except ValueError as error:
        raise ValueError(f"{data.nbytes} bytes are no texts of shape {shape}") from error
