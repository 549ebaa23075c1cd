# SPDX-License-Identifier: Apache-2.0
"""Element types and shapes of values as ONNX Runtime tells them.

ONNX's own shape inference does not know the operators of ONNX Runtime's domains and of ai.onnx.ml.
Source: ONNX Runtime, Python API, NodeArg.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import onnx

from nnpa_network.nodes import has_subgraph
from nnpa_network.program import Array, DType
from nnpa_network.running import host

Shape: TypeAlias = tuple[int, ...]
Dims: TypeAlias = tuple[int | str, ...]

MAX_CONSTANT_BYTES = 4096
"""Constants beyond this size are no shapes, pads or axes, and are not shown to shape inference."""


@dataclass(frozen=True, slots=True)
class Operand:
    """An input of a node; `shape` is None without a rank, -1 in it a dim that is not known."""

    name: str
    dtype: DType
    shape: Shape | None
    constant: Array | None = None

    @property
    def sample(self) -> Array:
        """The constant, or zeros; ValueError where the shape is not known."""
        if self.constant is not None:
            return self.constant
        if self.shape is None or -1 in self.shape:
            raise ValueError(f"the shape of {self.name} is not known")
        return np.full(self.shape, "" if self.dtype.kind == "O" else 0, self.dtype)


def node_types(
    node: onnx.NodeProto, opset: int, operands: Sequence[Operand]
) -> Mapping[str, tuple[DType | None, Shape | None]]:
    """Return the types of a node's outputs by name; raise `HostError` for a node it does not take.

    Outputs of ai.onnx.ml, and of operators without shape inference, get their shapes from a run
    over zeros: these shapes follow from input shapes and attributes alone.
    """
    constants = {
        operand.name: operand.constant
        for operand in operands
        if operand.constant is not None and operand.constant.nbytes <= MAX_CONSTANT_BYTES
    }
    session = host.node_session(
        node,
        opset,
        {operand.name: operand.dtype for operand in operands},
        {operand.name: operand.shape for operand in operands if operand.shape is not None},
        constants,
    )
    types = {
        name: (host.element_type(kind), _shape(dims))
        for name, (kind, dims) in session.types.items()
    }
    if all(shape is not None and -1 not in shape for _, shape in types.values()):
        return types
    if has_subgraph(node):  # zeros may not end it
        return types
    follows = node.domain == "ai.onnx.ml" or not host.infers_shapes(node.domain, node.op_type)
    try:
        feeds = {
            operand.name: operand.sample for operand in operands if operand.name not in constants
        }
        results = session.run(list(types), feeds)
    except (host.HostError, ValueError):
        return types
    return {
        name: (dtype, result.shape if follows or (shape is None and not result.shape) else shape)
        for (name, (dtype, shape)), result in zip(types.items(), results, strict=True)
    }


def output_types(model: onnx.ModelProto) -> Mapping[str, tuple[DType | None, Dims | None]]:
    """Return the types of a model's outputs by name, names for free dims; raise `HostError`."""
    types: dict[str, tuple[DType | None, Dims | None]] = {}
    for argument in host.load(model.SerializeToString()).get_outputs():
        dims = tuple(dim if isinstance(dim, int | str) else "" for dim in argument.shape)
        types[argument.name] = host.element_type(argument.type), dims or None
    return types


def _shape(dims: Sequence[int | str | None]) -> Shape | None:
    """Return a shape as ONNX Runtime tells it; no dims are a scalar, or no rank."""
    return tuple(dim if isinstance(dim, int) else -1 for dim in dims) or None
