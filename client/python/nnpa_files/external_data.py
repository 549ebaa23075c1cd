# SPDX-License-Identifier: Apache-2.0
"""ONNX files with the external data beside them, as one message, without the onnx package.

A model's file may keep tensors in other files of its folder. Only files in that folder are read: a
path or link that leaves it is refused. A tensor gets exactly the bytes of its dims, and the total
is checked before any file is read.
Sources: ONNX, "External Data"; onnx.proto3 for field numbers and element types.
"""

import math
import os
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

MAX_BYTES = (1 << 31) - 1
"""Most bytes of a model with its external data: those of a message of protobuf."""
_EXTERNAL = 1  # TensorProto.DataLocation
_KEY = b"location"  # in every file that has external data
_SHOWN = 80
_FLAGS = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")  # those that the system has
_FIELD = descriptor_pb2.FieldDescriptorProto
# Fields on the path to tensors by message, (name, number, type); "*": repeated.
_SCHEMA = {
    "Entry": (("key", 1, "string"), ("value", 2, "string")),
    "Tensor": (
        ("dims", 1, "*int64"), ("data_type", 2, "int32"), ("float_data", 4, "*float"),
        ("int32_data", 5, "*int32"), ("int64_data", 7, "*int64"), ("name", 8, "string"),
        ("raw_data", 9, "bytes"), ("double_data", 10, "*double"), ("uint64_data", 11, "*uint64"),
        ("external_data", 13, "*Entry"), ("data_location", 14, "int32"),
    ),
    "Sparse": (("values", 1, "Tensor"), ("indices", 2, "Tensor")),
    "Attribute": (
        ("t", 5, "Tensor"), ("g", 6, "Graph"), ("tensors", 10, "*Tensor"),
        ("graphs", 11, "*Graph"), ("sparse_tensor", 22, "Sparse"),
        ("sparse_tensors", 23, "*Sparse"),
    ),
    "Node": (("attribute", 5, "*Attribute"),),
    "Graph": (
        ("node", 1, "*Node"), ("initializer", 5, "*Tensor"), ("sparse_initializer", 15, "*Sparse"),
    ),
    "Function": (("node", 7, "*Node"), ("attribute_proto", 11, "*Attribute")),
    "Training": (("initialization", 1, "Graph"), ("algorithm", 2, "Graph")),
    "Model": (("graph", 7, "Graph"), ("training_info", 20, "*Training"),
              ("functions", 25, "*Function")),
}  # fmt: skip
_SCALARS = {"string": _FIELD.TYPE_STRING, "bytes": _FIELD.TYPE_BYTES,
            "int32": _FIELD.TYPE_INT32, "int64": _FIELD.TYPE_INT64,
            "uint64": _FIELD.TYPE_UINT64, "float": _FIELD.TYPE_FLOAT,
            "double": _FIELD.TYPE_DOUBLE}  # fmt: skip
# Bits of an element by TensorProto.DataType; text, 8, cannot be external.
_BITS = {1: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, 10: 16, 11: 64, 12: 32, 13: 64,
         14: 64, 15: 128, 16: 16, 17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4, 24: 8, 25: 2,
         26: 2}  # fmt: skip


class ExternalDataError(ValueError):
    """External data are refused; the text names the tensor, the file and the reason."""


class _Place(NamedTuple):
    """Where a tensor's bytes are."""

    tensor: Any
    title: str
    path: Path
    offset: int
    size: int


def read_model(path: Path, most: int = MAX_BYTES) -> bytes:
    """Return the bytes of an ONNX file, with its external data moved into the model.

    `most` bounds the model with its external data. Raise ExternalDataError, and OSError for `path`.
    """
    data = path.read_bytes()
    if _KEY not in data:
        return data
    try:
        model = model_class().FromString(data)
    except DecodeError:
        return data  # no ONNX model, which its importer says
    folder = path.parent.resolve()
    places = [_place(tensor, folder) for tensor in _tensors(model) if _is_external(tensor)]
    if not places:
        return data
    size = len(data) + sum(place.size for place in places)
    if size > min(most, MAX_BYTES):
        text = f"{path.name} and its external data: {size} bytes"
        raise ExternalDataError(f"{text}, must be at most {min(most, MAX_BYTES)}")
    for place in places:
        place.tensor.raw_data = _read(place)
        place.tensor.ClearField("external_data")
        place.tensor.ClearField("data_location")
    return bytes(model.SerializeToString())


def _place(tensor: Any, folder: Path) -> _Place:
    """Return the place of a tensor's bytes, in the folder and of the size of its dims."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    title = f"tensor {tensor.name[:_SHOWN]!r}: external data {location[:_SHOWN]!r}"
    path = _inside(folder, location, title)
    if tensor.data_type not in _BITS or any(dim < 0 for dim in tensor.dims):
        kind = f"element type {tensor.data_type}, dims {list(tensor.dims)[:8]}"
        raise ExternalDataError(f"{title}: {kind}, must be a type of fixed size, and dims of 0 up")
    size = (math.prod(tensor.dims) * _BITS[tensor.data_type] + 7) // 8
    length = _number(entries, "length", str(size), title)
    if length != size:
        dims = f"{size}, which dims {list(tensor.dims)[:8]} take"
        raise ExternalDataError(f"{title}: length is {length}, must be {dims}")
    return _Place(tensor, title, path, _number(entries, "offset", "0", title), size)


def _inside(folder: Path, location: str, title: str) -> Path:
    """Return the file of a location, with links followed; refuse a file outside of the folder."""
    try:
        path = (folder / location).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a zero byte
        raise ExternalDataError(f"{title}: no name of a file") from error
    if not path.is_relative_to(folder) or Path(location).is_absolute():
        raise ExternalDataError(f"{title} must be in the model's folder, by links as well")
    return path


def _number(entries: dict[str, str], key: str, default: str, title: str) -> int:
    text = entries.get(key, default)
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise ExternalDataError(f"{title}: {key} is {text[:20]!r}, must be a number of bytes")
    return int(text)


def _read(place: _Place) -> bytes:
    """Return a tensor's bytes; refuse anything but a regular file that is long enough."""
    end = place.offset + place.size
    try:
        flags = sum(getattr(os, flag, 0) for flag in _FLAGS)
        opened = os.open(place.path, os.O_RDONLY | flags)
        with open(opened, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
            facts = os.fstat(opened)
            if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
                raise ExternalDataError(f"{place.title} must be a regular file without hard links")
            if end > facts.st_size:
                text = f"bytes {place.offset} to {end}, must be within the file's {facts.st_size}"
                raise ExternalDataError(f"{place.title}: {text}")
            file.seek(place.offset)
            return file.read(place.size)
    except OSError as error:
        raise ExternalDataError(f"{place.title}: {error.strerror}") from error


def _is_external(tensor: Any) -> bool:
    return bool(tensor.data_location == _EXTERNAL)


def _tensors(message: Any) -> Iterator[Any]:
    """Yield every tensor in a message, at any depth."""
    if message.DESCRIPTOR.name == "Tensor":
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for child in [value] if hasattr(value, "ListFields") else value:
                yield from _tensors(child)


@cache
def model_class() -> Any:
    """Return a message class that knows these fields of ModelProto, and keeps all others."""
    file = descriptor_pb2.FileDescriptorProto(
        name="nnpa_external_data.proto", package="nnpa_external_data", syntax="proto3"
    )
    for message, members in _SCHEMA.items():
        described = file.message_type.add(name=message)
        for name, number, kind in members:
            label = _FIELD.LABEL_REPEATED if kind.startswith("*") else _FIELD.LABEL_OPTIONAL
            kind = kind.removeprefix("*")
            field = described.field.add(name=name, number=number, label=label)
            if kind in _SCALARS:
                field.type = _SCALARS[kind]
            else:
                field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".nnpa_external_data.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("nnpa_external_data.Model"))
