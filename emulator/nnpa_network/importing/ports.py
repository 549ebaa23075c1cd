# SPDX-License-Identifier: Apache-2.0
"""Inputs and outputs of a model, which are tensors of types that messages carry."""

from collections.abc import Iterable, Mapping, Sequence

import onnx

from nnpa_network.building.arrangement import ELEMENT_TYPES, Shape
from nnpa_network.building.type_inference import type_of
from nnpa_network.program import ANY_RANK, Array, DType, ModelRefused, Port
from nnpa_network.running.host_models import WIDER

_REMEDIES = {
    "map_type": ", but a map: make the tensors of which it consists {}s",
    "sequence_type": ", but a sequence: make its elements {}s, or one tensor of them: "
    "ConcatFromSequence and SplitToSequence may be inside of the model",
    "optional_type": ", but an optional: make what it holds the {}",
}


def input_ports(infos: Sequence[onnx.ValueInfoProto]) -> tuple[Port, ...]:
    """Return the required inputs of a run; raise `ModelRefused` for a type that is not hosted."""
    return tuple(_input(info, index) for index, info in enumerate(infos))


def optional_ports(
    infos: Iterable[onnx.ValueInfoProto], defaults: Mapping[str, Array]
) -> tuple[Port, ...]:
    """Return the inputs with a default for runs that have no value for them.

    Inputs of types that no message carries are left out.
    """
    ports = list[Port]()
    for index, info in enumerate(info for info in infos if info.name in defaults):
        array = defaults[info.name]
        if type_of(info.type)[1] is None:
            ports.append(Port(info.name, array.dtype, array.shape, ("",) * array.ndim))
        elif _is_exchanged(array.dtype):
            ports.append(_input(info, index))
    return tuple(ports)


def _input(info: onnx.ValueInfoProto, index: int) -> Port:
    dtype, shape = _exchanged_type("input", info)
    if shape is None:
        remedy = "add its type and shape to the model's graph.input"
        raise ModelRefused(f"input {info.name} has no shape, not even a rank: {remedy}")
    dims = info.type.tensor_type.shape.dim
    symbols = tuple(
        "" if size >= 0 else str(dim.dim_param or f"?{index}.{axis}")  # bytes if no UTF-8
        for axis, (size, dim) in enumerate(zip(shape, dims, strict=True))
    )
    return Port(info.name, dtype, shape, symbols)


def output_port(info: onnx.ValueInfoProto) -> Port:
    """Return an output; raise `ModelRefused` for a type that is not hosted."""
    dtype, shape = _exchanged_type("output", info)
    return Port(info.name, dtype, shape if shape is not None else ANY_RANK)


def _exchanged_type(end: str, info: onnx.ValueInfoProto) -> tuple[DType, Shape | None]:
    """Return the type of an input or output; refuse what no message carries."""
    dtype, shape = type_of(info.type)
    if dtype is None:
        kind = str(info.type.WhichOneof("value"))
        if kind == "sequence_type" and info.type.sequence_type.elem_type.HasField("map_type"):
            kind = "map_type"
        remedy = _REMEDIES.get(kind, "").format(end)
        text = f"{end} {info.name} is not a tensor of a type that is hosted{remedy}"
        raise ModelRefused(text)
    if not _is_exchanged(dtype):
        remedy = f"a Cast makes {WIDER[dtype]} of it"
        text = f"{end} {info.name} is of {dtype}, which messages do not carry: {remedy}"
        raise ModelRefused(text)
    return dtype, shape


def _is_exchanged(dtype: DType) -> bool:
    """Return True unless a type stays inside of a model."""
    return dtype not in WIDER or dtype in ELEMENT_TYPES
