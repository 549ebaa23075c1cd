# SPDX-License-Identifier: Apache-2.0
"""Arrays of users: their element types, ranks and dims beside zDNN's, and arrays of text."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt
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

TEXT = np.dtype(object)
"""The type of arrays of text."""

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
