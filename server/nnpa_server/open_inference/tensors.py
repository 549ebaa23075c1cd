# SPDX-License-Identifier: Apache-2.0
"""Tensors of the Open Inference Protocol: element types, raw and typed contents.

Elements of BYTES are text in UTF-8, as in ONNX: models compute with `str`.
Sources: Open Inference Protocol, version 2, "Tensor Data"; for BF16 and raw BYTES, Triton.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt
from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_wire import byte_strings

from nnpa_server.errors import CallRefused, invalid

if TYPE_CHECKING:
    from nnpa_network.program import Array, DType

Buffer: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Datatype:
    """An element type: its NumPy type, and the field of its typed contents ("": raw only)."""

    name: str
    dtype: "DType"
    field: str


DATATYPES: Mapping[str, Datatype] = MappingProxyType(
    {
        name: Datatype(name, np.dtype(kind), field)
        for name, kind, field in (
            ("BOOL", "?", "bool_contents"),
            ("UINT8", "u1", "uint_contents"),
            ("UINT16", "<u2", "uint_contents"),
            ("UINT32", "<u4", "uint_contents"),
            ("UINT64", "<u8", "uint64_contents"),
            ("INT8", "i1", "int_contents"),
            ("INT16", "<i2", "int_contents"),
            ("INT32", "<i4", "int_contents"),
            ("INT64", "<i8", "int64_contents"),
            ("FP16", "<f2", ""),
            ("BF16", ml_dtypes.bfloat16, ""),
            ("FP32", "<f4", "fp32_contents"),
            ("FP64", "<f8", "fp64_contents"),
            ("BYTES", "O", "bytes_contents"),
        )
    }
)
"""All element types by name."""
_CAST = frozenset("?bBhHiIlLqQfd")  # NumPy types whose memory Python can view as bytes, by letter
# What typed fields hold, by the kind of NumPy type.
_WIDE: Mapping[str, npt.DTypeLike] = {"b": "?", "i": "i8", "u": "u8", "f": "f8"}
_BY_DTYPE = {datatype.dtype: datatype for datatype in DATATYPES.values()}


def datatype_of(dtype: "DType") -> Datatype | None:
    """Return the protocol's type for a NumPy type; None if it has none, as for complex."""
    return _BY_DTYPE.get(np.dtype(object) if dtype.kind in "USO" else dtype)


def said(name: str, shape: Iterable[int]) -> str:
    """Return a type and a shape for an error: FP32 [1, 1024]."""
    return f"{name} [{', '.join(map(str, shape))}]"


def mismatched(path: str, got: str, expected: str) -> CallRefused:
    """Return the error for a tensor that the model does not take."""
    return _unexpected(wire.ERROR_REASON_FIELD_INVALID, path, got, expected)


def wrong_size(path: str, got: object, expected: object) -> CallRefused:
    """Return the error for contents whose size does not fit shape and type."""
    return _unexpected(wire.ERROR_REASON_DATA_SIZE_MISMATCH, path, got, expected)


def _unexpected(reason: int, path: str, got: object, expected: object) -> CallRefused:
    text = f"{path}: got {got}, expected {expected}"
    return CallRefused(reason, text, field=path, value=got, limit=expected)


def read_raw(kind: Datatype, shape: Sequence[int], data: Buffer, path: str) -> "Array":
    """Return raw contents as an array, without a copy if they are aligned."""
    dtype = kind.dtype
    if dtype.kind == "O":
        return _read_strings(data, math.prod(shape), path).reshape(shape)
    expected = math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        what = f"{expected} bytes for {said(kind.name, shape)}"
        raise wrong_size(path, f"{len(data)} bytes", what)
    if kind.name == "BOOL":
        truths: Array = np.frombuffer(data, np.uint8) != 0
        return truths.reshape(shape)
    array: Array = np.ndarray(shape, dtype, data)
    return array if array.flags.aligned else array.copy()


def _read_strings(data: Buffer, count: int, path: str) -> "Array":
    """Return the texts of `count` byte strings, each with its length before it."""
    least = count * byte_strings.LENGTH_BYTES
    if least > len(data):
        raise wrong_size(path, f"{len(data)} bytes", f"at least {least} for {count} elements")
    try:
        strings = list(islice(byte_strings.split(bytes(data)), count + 1))
    except ValueError as error:
        raise wrong_size(path, error, f"{count} elements within their bytes") from error
    if len(strings) != count:
        raise wrong_size(path, f"{len(data)} bytes, more elements", f"{count} elements")
    return _texts(strings, path)


def _texts(strings: Sequence[bytes], path: str) -> "Array":
    """Return byte strings as an array of `str`; raise CallRefused if one is not UTF-8."""
    array = np.empty(len(strings), object)
    for index, string in enumerate(strings):
        try:
            array[index] = string.decode()
        except UnicodeDecodeError as error:
            value = f"byte 0x{string[error.start]:02x} at {error.start}"
            limit = "text in UTF-8: other bytes travel as UINT8"
            raise invalid(f"{path}: element {index}", value, limit) from error
    return array


def read_typed(
    kind: Datatype, shape: Sequence[int], contents: pb.InferTensorContents, path: str
) -> "Array":
    """Return typed contents as an array; raise CallRefused if they are in another field."""
    filled = [field.name for field, _ in contents.ListFields()]
    if not kind.field:
        raise invalid(f"{path}: contents", "typed", f"raw_input_contents, as {kind.name} has none")
    if any(name != kind.field for name in filled):
        raise invalid(f"{path}: contents", ", ".join(filled), f"{kind.field} for {kind.name}")
    values = getattr(contents, kind.field)
    if len(values) != math.prod(shape):
        what = f"{math.prod(shape)} for {said(kind.name, shape)}"
        raise wrong_size(f"{path}: contents.{kind.field}", f"{len(values)} elements", what)
    if kind.dtype.kind == "O":
        return _texts(values, f"{path}: contents.{kind.field}").reshape(shape)
    wide = np.array(values, _WIDE[kind.dtype.kind])
    return _narrowed(wide, kind, path).reshape(shape)


def _narrowed(values: "Array", kind: Datatype, path: str) -> "Array":
    """Return numbers in the width of the type; refuse numbers that do not fit."""
    if kind.dtype.kind in "iu" and values.size:
        info = np.iinfo(kind.dtype)
        for extreme in (int(values.min()), int(values.max())):
            if not info.min <= extreme <= info.max:
                raise invalid(
                    f"{path}: contents.{kind.field}", extreme, f"{info.min} to {info.max}"
                )
    return values.astype(kind.dtype)


def raw_size(array: "Array") -> int:
    """Return the size in bytes of an array as raw contents."""
    if array.dtype.kind not in "USO":
        return array.nbytes
    strings = array.reshape(-1).tolist()
    return sum(len(as_bytes(string)) + byte_strings.LENGTH_BYTES for string in strings)


def raw_of(array: "Array") -> Buffer:
    """Return an array as little-endian row-major bytes, without a copy if it is that already."""
    dtype = array.dtype
    if dtype.char in _CAST and dtype.isnative and array.size and array.flags.c_contiguous:
        return array.data.cast("B")
    if dtype.kind in "USO":
        return byte_strings.join(map(as_bytes, array.reshape(-1).tolist()))
    if dtype.byteorder == ">":
        array = array.astype(dtype.newbyteorder("<"))
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def as_bytes(element: object) -> bytes:
    """Return an element of a string tensor as bytes: text in UTF-8."""
    return element if isinstance(element, bytes) else str(element).encode()
