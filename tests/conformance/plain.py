# SPDX-License-Identifier: Apache-2.0
"""Vectors as testees get them: numbers for names, whole buffers, nothing of what is expected.

deploy/docs/develop/sdk-contract.md, "Testee", is the protocol.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from nnpa.zdnn.v1 import operation_pb2 as wire
from nnpa.zdnn.v1 import tensor_pb2 as tensors

from tests.vector_runner import Json, Vector, cell_bytes, machine_spec
from tests.vector_runner import sticks_of as laid_out

# Operands that functions write; `ztensor` only where it is not read.
WRITTEN = frozenset(("output", "output_a", "output_b", "hn_output", "cf_output", "dest"))
READ_ZTENSOR = frozenset(("transform_origtensor", "getrange_ztensor"))
LARGEST_BUFFER = 1 << 26
_ENUMS = (tensors.DataTypes, tensors.DataLayouts, tensors.QuantizedTransformTypes)
_NAMED = ("layout", "type", "transform_type", "transformed_type", "pre_transformed_type")


def words_of(raw: bytes, width: int) -> str:
    """Return little-endian bytes as text of words, `width` bytes each; runs as `word*count`."""
    cells = np.frombuffer(raw, f"<u{width}")
    starts = np.flatnonzero(np.diff(cells, prepend=~cells[:1]))
    counts = np.diff(starts, append=cells.size)
    runs = zip(cells[starts].tolist(), counts.tolist(), strict=True)
    return " ".join(
        f"{cell:0{2 * width}X}" + (f"*{count}" if count > 1 else "") for cell, count in runs
    )


def plain(vector: Vector) -> Json:
    """Return the vector of operations as a testee gets it."""
    line = vector.line
    machine = {"machine": line.get("machine", "telum2"), "machine_spec": _spec(line)}
    session = {"library": line.get("library", "1.2.0"), "precheck": line.get("precheck", False)}
    written = set(_written(line["steps"]))
    held = {
        key: _ztensor(tensor, key in written)
        for key, tensor in sorted(line.get("tensors", {}).items())
    }
    steps = [_step(step) for step in line["steps"]]
    return {"name": line["name"], **machine, **session, "tensors": held, "steps": steps}


def plain_local(vector: Vector) -> Json:
    """Return the vector of a local function as a testee gets it."""
    arguments = {key: _argument(key, value) for key, value in vector.line["arguments"].items()}
    return {"name": vector.line["name"], "arguments": arguments}


def _argument(key: str, value: Any) -> Any:
    if isinstance(value, dict):
        return descriptor(value)
    return number(value) if key in _NAMED else value


def number(name: str | int) -> int:
    """Return the number of a type, layout or transform type."""
    for enum in _ENUMS:
        if isinstance(name, str) and name in enum.keys():  # noqa: SIM118 - no mapping
            return enum.Value(name)
    return int(name)


def descriptor(line: Json) -> Json:
    """Return a descriptor with all of C's fields, as numbers."""
    message = json_format.ParseDict(dict(line), tensors.TensorDesc())
    return {field.name: int(getattr(message, field.name)) for field in message.DESCRIPTOR.fields}


def _integers(message: Any) -> Any:
    """Return proto JSON with numbers for enums and for 64-bit integers."""
    fields = json_format.MessageToDict(
        message, preserving_proto_field_name=True, use_integers_for_enums=True
    )
    for field, value in message.ListFields():
        if field.cpp_type in (FieldDescriptor.CPPTYPE_UINT64, FieldDescriptor.CPPTYPE_INT64):
            fields[field.name] = value
    return fields


def _spec(line: Json) -> Json:
    spec: Json = _integers(machine_spec(line))
    return spec


def _written(steps: Sequence[Json]) -> Iterator[str]:
    """Yield the ids of the vector's tensors that some step writes."""
    for step in steps:
        for name, arm in step.get("operation", {}).items():
            for operand, argument in arm.items() if isinstance(arm, Mapping) else ():
                reads = operand not in WRITTEN and (operand != "ztensor" or name in READ_ZTENSOR)
                if isinstance(argument, Mapping) and "id" in argument and not reads:
                    yield str(argument["id"])


def _ztensor(line: Json, written: bool) -> Json:
    """Return a tensor whose buffer is there as a whole, or NULL."""
    structure = {key: value for key, value in line.items() if key not in ("codes", "memory")}
    message = json_format.ParseDict(structure, tensors.Ztensor())
    desc = message.transformed_desc
    size = _stick_bytes(desc)
    plain_tensor: dict[str, Any] = {
        "pre_transformed_desc": descriptor(line.get("pre_transformed_desc", {})),
        "transformed_desc": descriptor(line["transformed_desc"]),
        "buffer_size": message.buffer_size if message.HasField("buffer_size") else size,
        "is_transformed": message.is_transformed,
        "rec_scale": message.rec_scale,
        "offset": message.offset,
    }
    if "memory" in line:
        plain_tensor["memory"] = line["memory"]
    elif "codes" in line:
        buffer = laid_out(desc, line["codes"])
        plain_tensor["memory"] = words_of(buffer.tobytes(), cell_bytes(desc))
    elif written and not message.null_buffer and 0 < size <= LARGEST_BUFFER:
        width = cell_bytes(desc)
        plain_tensor["memory"] = f"{'0' * 2 * width}*{size // width}"
    else:
        plain_tensor["null_buffer"] = True
    return plain_tensor


def _stick_bytes(desc: tensors.TensorDesc) -> int:
    """Return what zdnn_getsize_ztensor returns: whole pages of 32 sticks of 128 bytes.

    Source: zDNN API Reference 1.2.0, zdnn_getsize_ztensor.
    """
    cells = {tensors.ZDNN_BINARY_INT8: 128, tensors.ZDNN_BINARY_INT32: 32}.get(desc.type, 64)
    rows = desc.dim2
    if desc.format == tensors.ZDNN_FORMAT_4DWEIGHTS and desc.type == tensors.ZDNN_BINARY_INT8:
        cells, rows = 64, -(-rows // 2)
    return desc.dim4 * desc.dim3 * -(-rows // 32) * -(-desc.dim1 // cells) * 4096


def _step(step: Json) -> Json:
    if "machine" in step:
        return {"machine": step["machine"], "machine_spec": _spec(step)}
    operation: dict[str, Any] = {}
    for name, arm in step["operation"].items():
        field = wire.Operation.DESCRIPTOR.fields_by_name[name]
        message = field.message_type
        operation[name] = arm if message is None else _arm(arm, message)
    answer: dict[str, Any] = {"operation": operation}
    if "data" in step:
        answer["data"] = step["data"]
    return answer


def _arm(line: Json, message: Descriptor) -> Json:
    """Return the arguments by C parameter name, with numbers for enums, defaults filled in."""
    arguments: dict[str, Any] = {}
    for field in message.fields:
        if field.name in line:
            arguments[field.name] = _value(line[field.name], field)
        elif field.name != "data" and not field.has_presence:
            arguments[field.name] = [] if field.is_repeated else field.default_value
    return arguments


def _value(value: Any, field: FieldDescriptor) -> Any:
    if field.message_type is not None and field.message_type.name == "TensorDesc":
        return descriptor(value)
    if field.enum_type is not None and isinstance(value, list):
        return [_value(element, field) for element in value]
    if field.enum_type is not None and isinstance(value, str):
        return field.enum_type.values_by_name[value].number
    if field.cpp_type == FieldDescriptor.CPPTYPE_FLOAT and isinstance(value, str):
        return json_float(float(value))
    return value


def json_float(value: float) -> float | str:
    """Return a number as proto JSON has it."""
    if np.isfinite(value):
        return float(value)
    return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
