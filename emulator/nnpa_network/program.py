# SPDX-License-Identifier: Apache-2.0
"""A hosted network as a list of steps of the accelerator and the host, with their operands.

Arrays (host memory) and tensors (sticks) share one space of numeric ids, from 1 on; names are a
side table. A call of the accelerator is a verb and its keyword arguments as the emulator takes
them, an id in place of every ztensor. A program is made for one machine and one set of input
shapes and holds every constant; constants of the accelerator are stickified once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from nnpa_emulator import FUNCTIONS, TensorDesc, Ztensor
from nnpa_emulator.ztensor import init_quantized_ztensor

Array: TypeAlias = npt.NDArray[Any]
DType: TypeAlias = np.dtype[Any]

ABSENT = 0
"""The id of an optional ONNX input or output that is left out."""
ANY_RANK = (-1,)
"""The shape of an array of which not even the rank is known, or of rows of any number."""
BOUNDARY = -1
"""The `node` of steps that serve no node: outputs of the network leave the accelerator."""


class ModelRefused(ValueError):
    """A model that cannot be hosted; `node` names the node it fails at, empty for the whole."""

    def __init__(self, reason: str, node: str = "") -> None:
        self.reason, self.node = reason, node
        super().__init__(f"node {node}: {reason}" if node else reason)


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output of a network in ONNX's terms.

    `shape` has -1 where a dim is free until run, `symbols` its name in the model, else "".
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    symbols: tuple[str, ...] = ()


def fits(shape: tuple[int, ...], declared: tuple[int, ...]) -> bool:
    """Tell whether a shape is the declared one, in which -1 is any size."""
    return len(shape) == len(declared) and all(
        size >= 0 and dim in (-1, size) for size, dim in zip(shape, declared, strict=True)
    )


def may_be(shape: tuple[int, ...], declared: tuple[int, ...]) -> bool:
    """Return True if a result's shape is the declared one; a declared shape may be of any rank."""
    return declared == ANY_RANK or fits(shape, declared)


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """An array on the host; -1 in `shape` is a dim known only at run time."""

    dtype: DType
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor of the accelerator; `scale` and `offset` are init_quantized_ztensor's, 0: none."""

    pre_transformed_desc: TensorDesc
    transformed_desc: TensorDesc
    scale: float = 0.0
    offset: float = 0.0


@dataclass(frozen=True, slots=True)
class AcceleratorStep:
    """One call: `arguments` hold ids for ztensors.

    A transform's `data` is a tuple of array ids; `result` is the array that receives the value
    which the function returns, ABSENT where it returns none.
    """

    node: int
    verb: str
    arguments: Mapping[str, Any]
    result: int = ABSENT


@dataclass(frozen=True, slots=True)
class HostStep:
    """One ONNX node, serialised as NodeProto, over arrays; ABSENT where the node leaves one out.

    `opset` is the version of the node's domain that it is to be run in.
    """

    node: int
    onnx: bytes
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    opset: int


Step: TypeAlias = AcceleratorStep | HostStep


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the model and where it went.

    `device` is "accelerator", "host", or "folded" (computed at import, or nothing left to do);
    `functions` are the zDNN functions that stand for it, without prefix; `reason` says why it is
    not on the accelerator, or what is special about it there. `macc` are multiply-accumulates,
    `weights` the bytes of its constants as the model stores them, `output_shapes` parallel to
    `outputs`.
    """

    index: int
    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    device: str
    functions: tuple[str, ...] = ()
    reason: str = ""
    macc: int = 0
    weights: int = 0
    output_shapes: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a named value of the model lives: an array, or a tensor.

    `shape` is the value's own in the model. `order` are the axes of `shape` that are not 1, in the
    order in which the array, or transform_origtensor of the tensor, has the elements.
    """

    id: int
    shape: tuple[int, ...]
    order: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """A program for one `machine`: see the module.

    `placement` is one of PLACEMENTS, by which it was made, "" for a program of another compiler.
    `places` is the side table of names: the ids that hold a value of the model, in turn.
    """

    name: str
    machine: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    input_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    arrays: Mapping[int, ArrayInfo]
    tensors: Mapping[int, TensorInfo]
    constants: Mapping[int, Array | Ztensor]
    steps: tuple[Step, ...]
    nodes: tuple[Node, ...] = ()
    places: Mapping[str, tuple[Place, ...]] = field(default_factory=dict[str, tuple[Place, ...]])
    placement: str = ""

    @property
    def macc(self) -> int:
        """Multiply-accumulates of one run."""
        return sum(node.macc for node in self.nodes)


def described(info: TensorInfo) -> Ztensor:
    """Return a tensor without storage."""
    pre, transformed = info.pre_transformed_desc, info.transformed_desc
    return init_quantized_ztensor(pre, transformed, info.scale, info.offset)


def reads(step: AcceleratorStep | HostStep) -> tuple[int, ...]:
    """Return the ids that a step needs, ids of tensors that it makes included."""
    if isinstance(step, HostStep):
        return step.inputs
    tensors = (step.arguments[name] for name in FUNCTIONS[step.verb].tensors)
    return (*tensors, *step.arguments.get("data", ()))


def writes(step: AcceleratorStep | HostStep) -> tuple[int, ...]:
    """Return the ids that a step makes: outputs, and the tensor that a transform fills."""
    if isinstance(step, HostStep):
        return step.outputs
    if step.verb in ("transform_origtensor", "getrange_ztensor"):
        return (step.result,)
    if step.verb == "reshape_ztensor":
        return (step.arguments["dest"],)
    return tuple(step.arguments[name] for name in FUNCTIONS[step.verb].written)


def used(step: AcceleratorStep | HostStep) -> tuple[int, ...]:
    """Return the ids that a step needs or makes."""
    return (*reads(step), *writes(step))


def uses_of(program: Program) -> dict[int, tuple[int, int]]:
    """Return the first and the last step that need or make each id, in the order of the first."""
    uses: dict[int, tuple[int, int]] = {}
    for index, step in enumerate(program.steps):
        for number in used(step):
            uses[number] = uses.get(number, (index, index))[0], index
    return uses
