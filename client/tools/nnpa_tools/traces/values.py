# SPDX-License-Identifier: Apache-2.0
"""Distances of recorded contents: user arrays, and sticks by their elements."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import ml_dtypes
import numpy as np
from nnpa.zdnn.v1.tensor_pb2 import (
    BYTE_ORDER_BIG_ENDIAN,
    ZDNN_BINARY_FP32,
    ZDNN_BINARY_INT8,
    ZDNN_BINARY_INT32,
    ZDNN_DLFLOAT16,
    ZDNN_FORMAT_4DFEATURE,
    TensorDesc,
    Ztensor,
)
from nnpa.zdnn.v1.trace_pb2 import TracedContents
from nnpa_client._values.ulp import Codes, codes_of, distances, values_of
from nnpa_client._values.user_arrays import DTYPES, Array, dims, layout_shape

_STICK_BYTES, _ROWS = 128, 32  # of one stick, and of one page; source: zDNN API Reference 1.2.0
_DIGEST_BYTES = 16  # source: nnpa/zdnn/v1/trace.proto, TracedContents.digest
_HASH_BYTES = 1 << 20  # hashed at a time
_MAX_ZERO_BYTES = 1 << 26  # above which contents are not recognised as zeros
_MAX_NEUTRAL_BYTES = 1 << 32  # source: the largest tensor of any machine, NNPA-QAF
_STICK_TYPES: Mapping[int, np.dtype[np.generic]] = {
    ZDNN_DLFLOAT16: np.dtype("<u2"),
    ZDNN_BINARY_INT8: np.dtype("i1"),
    ZDNN_BINARY_INT32: np.dtype("<i4"),
    ZDNN_BINARY_FP32: np.dtype("<f4"),
}


@dataclass(frozen=True, slots=True)
class ValueDifference:
    """A difference of two contents: in `count` of `size` elements, by at most `ulp`.

    `at` is the index of the first differing element, `left` and `right` its values. `ulp` counts
    units in the last place of DLFLOAT16, or integers; None if NINF is on one side only.
    """

    count: int
    size: int
    ulp: int | None
    at: tuple[int, ...]
    left: float
    right: float


def array_elements(contents: bytes, structure: Ztensor | None) -> Array:
    """Return a user array in its ztensor's pre-transformed type and, if it fits, shape."""
    if structure is None:
        return np.frombuffer(contents, np.uint8)
    pre = structure.pre_transformed_desc
    dtype = DTYPES.get(pre.type, np.dtype(np.uint8))
    if len(contents) % dtype.itemsize:
        return np.frombuffer(contents, np.uint8)
    array, shape = np.frombuffer(contents, dtype), layout_shape(pre)
    return array.reshape(shape) if shape and array.size == np.prod(shape) else array


def stick_elements(contents: bytes, structure: Ztensor | None) -> Array:
    """Return the elements of sticks by (dim4, dim3, dim2, dim1), without padding.

    DLFLOAT16 is returned as codes, uint16; formats other than 4DFEATURE are flat, with padding.
    """
    held = Ztensor() if structure is None else structure
    desc, dtype = held.transformed_desc, _stick_type(held)
    if len(contents) % dtype.itemsize:
        return np.frombuffer(contents, np.uint8)
    flat = np.frombuffer(contents, dtype)
    cells = _STICK_BYTES // dtype.itemsize
    dim4, dim3, dim2, dim1 = dims(desc)
    rows, sticks = -(-dim2 // _ROWS) * _ROWS, -(-dim1 // cells)
    is_feature = desc.format == ZDNN_FORMAT_4DFEATURE
    if not is_feature or flat.size != dim4 * sticks * dim3 * rows * cells:
        return flat
    ordered = flat.reshape(dim4, sticks, dim3, rows, cells).transpose(0, 2, 3, 1, 4)
    whole: Array = ordered.reshape(dim4, dim3, rows, sticks * cells)
    return whole[:, :, :dim2, :dim1]


def value_difference(left: Array, right: Array, is_codes: bool) -> ValueDifference | None:
    """Compare two arrays of the same shape and type; return None if they are equal.

    `is_codes` marks arrays of DLFLOAT16 codes.
    """
    if is_codes or left.dtype.kind == "f" or left.dtype == ml_dtypes.bfloat16:
        distance, has_one_ninf = distances(_codes(left, is_codes), _codes(right, is_codes))
    else:
        distance = np.abs(left.astype(np.int64) - right.astype(np.int64))
        has_one_ninf = np.zeros(left.shape, np.bool_)
    differs = has_one_ninf | (distance != 0)
    if not differs.any():
        return None
    at = tuple(int(index) for index in np.argwhere(differs)[0])
    worst = None if has_one_ninf.any() else int(distance.max())
    return ValueDifference(
        int(differs.sum()),
        left.size,
        worst,
        at,
        _value(left, at, is_codes),
        _value(right, at, is_codes),
    )


def _codes(values: Array, is_codes: bool) -> Codes:
    return values.astype(np.int64) if is_codes else codes_of(values.astype(np.float64))


def _value(values: Array, at: tuple[int, ...], is_codes: bool) -> float:
    element = values[at]
    return float(values_of(np.asarray(element, np.int64))) if is_codes else float(element)


def stick_bytes_per_element(desc: TensorDesc) -> int:
    """Return the bytes of one element in sticks."""
    return _STICK_TYPES.get(desc.type, np.dtype(np.uint8)).itemsize


def is_zeros(contents: TracedContents) -> bool:
    """Return True if contents are all zeros by their digest."""
    return contents.size <= _MAX_ZERO_BYTES and contents.digest == zeros_digest(contents.size)


@lru_cache(maxsize=256)
def zeros_digest(size: int) -> bytes:
    """Return the digest in traces of `size` zero bytes."""
    whole = hashlib.sha256()
    for start in range(0, size, _HASH_BYTES):
        whole.update(bytes(min(_HASH_BYTES, size - start)))
    return whole.digest()[:_DIGEST_BYTES]


def neutral_array(size: int, structure: Ztensor | None) -> bytes:
    """Return `size` bytes of ones in the pre-transformed type of a ztensor."""
    kind = -1 if structure is None else structure.pre_transformed_desc.type
    return _filled(size, DTYPES.get(kind, np.dtype(np.uint8)), 1)


def neutral_sticks(size: int, structure: Ztensor | None) -> bytes:
    """Return `size` bytes of ones in the transformed type of a ztensor."""
    if structure is None:
        return _filled(size, np.dtype(np.uint8), 1)
    is_dlfloat = structure.transformed_desc.type == ZDNN_DLFLOAT16
    unit = 31 << 9 if is_dlfloat else 1  # 1.0 of DLFLOAT16: bias 31, fraction 0
    return _filled(size, _stick_type(structure), unit)


def _stick_type(structure: Ztensor) -> np.dtype[np.generic]:
    dtype = _STICK_TYPES.get(structure.transformed_desc.type, np.dtype(np.uint8))
    return dtype.newbyteorder(">") if structure.byte_order == BYTE_ORDER_BIG_ENDIAN else dtype


def _filled(size: int, dtype: np.dtype[np.generic], element: int) -> bytes:
    if size > _MAX_NEUTRAL_BYTES:
        raise ValueError(f"contents: {size} bytes, at most {_MAX_NEUTRAL_BYTES}")
    whole = np.full(-(-size // dtype.itemsize), element, dtype).tobytes()
    return whole[:size]
