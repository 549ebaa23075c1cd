# SPDX-License-Identifier: Apache-2.0
"""Inputs and outputs of a model, which are tensors of types that messages carry."""

import onnx

from nnpa_network.building.arrangement import ELEMENT_TYPES
from nnpa_network.building.type_inference import type_of
from nnpa_network.program import ANY_RANK, DType, ModelRefused, Port
from nnpa_network.running import host

_REMEDIES = {
    "map_type": ", but a map: make the tensors of which it consists outputs",
    "sequence_type": ", but a sequence: make its elements outputs, or join them by "
    "ConcatFromSequence and simplify the model by onnxsim",
    "optional_type": ", but an optional: make what it holds the output",
}


def input_port(info: onnx.ValueInfoProto, index: int) -> Port:
    """Return an input, the `index` of which makes names for dims without one."""
    dtype, shape = type_of(info.type)
    if dtype is None:
        raise ModelRefused(f"input {info.name} is not a tensor of a type that is hosted")
    _require_exchanged(f"input {info.name}", dtype)
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
    """Return an output."""
    dtype, shape = type_of(info.type)
    if dtype is None:
        kind = info.type.WhichOneof("value")
        remedy = _REMEDIES.get(str(kind), "")
        if kind == "sequence_type" and info.type.sequence_type.elem_type.HasField("map_type"):
            remedy = _REMEDIES["map_type"]
        raise ModelRefused(f"output {info.name} is not a tensor of a type that is hosted{remedy}")
    _require_exchanged(f"output {info.name}", dtype)
    return Port(info.name, dtype, shape if shape is not None else ANY_RANK)


def _require_exchanged(title: str, dtype: DType) -> None:
    """Refuse element types in which no message has values: they stay inside of a model."""
    if dtype in host.WIDER and dtype not in ELEMENT_TYPES:
        remedy = f"a Cast makes {host.WIDER[dtype]} of it"
        raise ModelRefused(f"{title} is of {dtype}, which messages do not carry: {remedy}")
