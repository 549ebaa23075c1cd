# SPDX-License-Identifier: Apache-2.0
"""Check the inputs, outputs and shared memory places in a request."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa.zdnn.v1 import status_pb2 as wire

from nnpa_server.errors import CallRefused, invalid
from nnpa_server.open_inference.repository import Model
from nnpa_server.open_inference.tensors import (
    Datatype,
    datatype_of,
    mismatched,
    read_typed,
    said,
    wrong_size,
)

if TYPE_CHECKING:
    from nnpa_network.program import Array, Port

LIMIT_PARAMETER = "nnpa_max_response_bytes"
_MAX_ELEMENTS = 1 << 48


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a tensor in shared memory: the region, the offset and the size in bytes."""

    region: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a request; `array` has its typed contents, `place` its shared memory."""

    name: str
    path: str
    kind: Datatype
    shape: tuple[int, ...]
    place: Place | None
    array: "Array | None"


@dataclass(frozen=True, slots=True)
class Output:
    """A requested output; `place` is its place in shared memory, or None."""

    name: str
    kind: Datatype
    place: Place | None


def require_place(name: str, place: Place, size: int) -> None:
    """Raise CallRefused for a place that is smaller than its output of `size` bytes."""
    if size > place.size:
        raise wrong_size(f"output {name}", f"{place.size} bytes of shared memory", f"{size}")


def not_offered(extension: str, how: str) -> CallRefused:
    """Return the error for an extension that this server does not offer."""
    text = f"{extension} is not offered: {how}"
    return CallRefused(wire.ERROR_REASON_EXTENSION_NOT_OFFERED, text, field=extension)


def response_limit(parameters: Mapping[str, pb.InferParameter]) -> int | None:
    """Return the most bytes of an answer by the request; 0 means any, None the default."""
    if LIMIT_PARAMETER not in parameters:
        return None
    value = _number(parameters[LIMIT_PARAMETER])
    if value is None or value < 0:
        raise invalid(f"parameters.{LIMIT_PARAMETER}", "no number", "bytes, or 0 for any")
    return value


def _number(parameter: pb.InferParameter) -> int | None:
    match parameter.WhichOneof("parameter_choice"):
        case "int64_param":
            return parameter.int64_param
        case "uint64_param":
            return parameter.uint64_param
        case _:
            return None


def _kind(model: Model, port: "Port") -> Datatype:
    kind = datatype_of(port.dtype)
    if kind is None:
        path = f"model {model.name}: {port.name}"
        raise invalid(path, str(port.dtype), "an element type of the protocol")
    return kind


def read_inputs(
    model: Model, tensors: Sequence[pb.ModelInferRequest.InferInputTensor], *, raw: bool
) -> list[Input]:
    """Return the inputs in the request's order; raise CallRefused if they do not fit the model.

    Each input of the model must come once; optional inputs may be left out.
    """
    required = [port.name for port in model.inputs]
    ports = {port.name: port for port in (*model.inputs, *model.plan.optional)}
    names = [tensor.name for tensor in tensors]
    for name in dict.fromkeys([*required, *(name for name in names if name in ports)]):
        if names.count(name) != 1:
            text = f"model {model.name}: input {name}"
            raise mismatched(text, f"{names.count(name)} tensors", "one")
    if unknown := [name for name in names if name not in ports]:
        from nnpa_network.importing.shapes import names_of  # not needed by a server without models

        expected = f"one of {names_of(model.inputs, model.plan.optional)}"
        raise invalid(f"model {model.name}: inputs", repr(unknown[0][:64]), expected)
    return [_read_input(model, ports[tensor.name], tensor, raw=raw) for tensor in tensors]


def _read_input(
    model: Model, port: "Port", tensor: pb.ModelInferRequest.InferInputTensor, *, raw: bool
) -> Input:
    kind, shape = _kind(model, port), tuple(tensor.shape)
    path = f"model {model.name}: input {port.name}"
    fits = len(shape) == len(port.shape) and all(
        size >= 0 and dim in (-1, size) for size, dim in zip(shape, port.shape, strict=True)
    )
    if tensor.datatype != kind.name or not fits or math.prod(shape) > _MAX_ELEMENTS:
        got, expected = said(tensor.datatype[:16], shape[:16]), said(kind.name, port.shape)
        if min(shape, default=0) < 0:
            expected += ", with dims from 0 up"
        elif fits and tensor.datatype == kind.name:
            expected += f", of at most {_MAX_ELEMENTS} elements"
        raise mismatched(path, got, expected)
    place = _place(tensor.parameters, path)
    if tensor.HasField("contents") and (raw or place is not None):
        where = "raw_input_contents" if place is None else "shared memory"
        raise invalid(f"{path}: contents", f"beside {where}", "in one place")
    array = None
    if place is None and not raw:
        array = read_typed(kind, shape, tensor.contents, path)
    return Input(port.name, path, kind, shape, place, array)


def _place(parameters: Mapping[str, pb.InferParameter], path: str) -> Place | None:
    """Return the place of a tensor in shared memory, or None."""
    names = [name for name in parameters if name.startswith("shared_memory_")]
    if not names:
        return None
    numbers = {name: _number(parameter) for name, parameter in parameters.items()}
    size = numbers.get("shared_memory_byte_size")
    offset = numbers.get("shared_memory_offset", 0)
    if "shared_memory_region" not in parameters or size is None or offset is None:
        needed = "shared_memory_region and shared_memory_byte_size, numbers for sizes"
        raise invalid(f"{path}: parameters", ", ".join(sorted(names)), needed)
    return Place(parameters["shared_memory_region"].string_param, offset, size)


def read_outputs(
    model: Model, tensors: Sequence[pb.ModelInferRequest.InferRequestedOutputTensor]
) -> list[Output]:
    """Return the requested outputs; all outputs of the model if the request names none."""
    ports = {port.name: port for port in model.plan.outputs}
    if not tensors:
        return [Output(port.name, _kind(model, port), None) for port in ports.values()]
    outputs: list[Output] = []
    for tensor in tensors:
        path = f"model {model.name}: output {tensor.name[:64]}"
        if tensor.name not in ports or any(tensor.name == output.name for output in outputs):
            raise invalid(path, "requested", f"one of {', '.join(ports)}, once")
        if "classification" in tensor.parameters:
            raise not_offered("classification", "read the output and sort it")
        outputs.append(
            Output(tensor.name, _kind(model, ports[tensor.name]), _place(tensor.parameters, path))
        )
    return outputs
