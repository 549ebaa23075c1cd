# SPDX-License-Identifier: Apache-2.0
"""Encode arrays of text as bytes: each text in UTF-8, with its length before it."""

import math
from itertools import islice

import numpy as np
from nnpa_network.program import Array
from nnpa_wire import byte_strings

TEXT = np.dtype(object)
"""The dtype of arrays of text, the same as ONNX Runtime's."""


def encode_text(array: Array) -> Array:
    """Return an array of text as bytes."""
    texts = array.reshape(-1).tolist()
    return np.frombuffer(byte_strings.join(str(text).encode() for text in texts), np.uint8)


def decode_text(data: Array, shape: tuple[int, ...]) -> Array:
    """Return the array of text that bytes encode; raise ValueError for another number of texts."""
    try:
        strings = islice(byte_strings.split(data.tobytes()), math.prod(shape) + 1)
        texts = [string.decode() for string in strings]
        array = np.empty(len(texts), TEXT)
        array[:] = texts
        return array.reshape(shape)
    except ValueError as error:
        raise ValueError(f"{data.nbytes} bytes are no texts of shape {shape}") from error
