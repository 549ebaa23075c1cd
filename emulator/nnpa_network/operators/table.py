# SPDX-License-Identifier: Apache-2.0
"""The table of ONNX operators that the accelerator takes, and the shared parts of their rules."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from nnpa_network.building.arrangement import (
    ELEMENT_TYPES,
    FLOATS,
    Arrangement,
    NotMapped,
    Shape,
    axes_of,
    channels_last,
    plain,
)
from nnpa_network.building.builder import Builder
from nnpa_network.building.type_inference import OnnxNode, Value
from nnpa_network.program import Array

MAX_VIEWS = 64
"""Most changes of shape or order, one behind the other, that are put off."""


@dataclass(slots=True)
class Graph:
    """The surroundings of a node.

    `follower(value)` returns the only reader of a value, None if there are several. `absorb(node)`
    marks a node as computed by the present one. `beyond(limit, remedy)` records a limit for which
    the machine's compiler leaves the node to the host, and the remedy of the placement `all`.
    `remark` adds a sentence to the node's row of the report.
    """

    follower: Callable[[Value], OnnxNode | None]
    absorb: Callable[[OnnxNode], None]
    is_read: Callable[[Value | None], bool]
    offload_integer: bool
    beyond: Callable[[str, str], None]
    remark: Callable[[str], None]


Lower: TypeAlias = Callable[[Builder, OnnxNode, Graph], None]


@dataclass(frozen=True, slots=True)
class Operator:
    """One row: the ONNX operator, the zDNN functions that stand for it, and the rule.

    `beyond` says what the placement `all` makes of an operator that the compiler for the machine
    does not have, and is empty for those it has.
    """

    name: str
    functions: tuple[str, ...]
    doc: str
    lower: Lower
    beyond: str = ""
    domain: str = ""


_OPERATORS: dict[str, Operator] = {}
OPERATORS: Mapping[str, Operator] = MappingProxyType(_OPERATORS)


def operator(
    *names: str, functions: tuple[str, ...], beyond: str = "", domain: str = ""
) -> Callable[[Lower], Lower]:
    """Register a rule for ONNX operators; its docstring is their row in the documentation."""

    def decorate(lower: Lower) -> Lower:
        for name in names:
            if name in _OPERATORS:
                raise ValueError(f"{name} is defined twice")
            doc = " ".join((lower.__doc__ or "").split())
            _OPERATORS[name] = Operator(name, functions, doc, lower, beyond, domain)
        return lower

    return decorate


def required_input(node: OnnxNode, index: int) -> Value:
    """Return an input that must be there."""
    value = node.input(index)
    if value is None:
        raise NotMapped(f"input {index} is left out, must be there")
    return value


def required_output(node: OnnxNode, index: int = 0) -> Value:
    """Return an output that must be there."""
    value = node.output(index)
    if value is None:
        raise NotMapped(f"output {index} is left out, must be there")
    return value


def ends_of(builder: Builder, node: OnnxNode, verb: str) -> tuple[Value, Value]:
    """Return the float operand and the output of a node, which needs a function."""
    value, output = required_input(node, 0), required_output(node)
    require_float(value)
    builder.require(verb)
    return value, output


def optional_constant(node: OnnxNode, index: int, what: str) -> Array | None:
    """Return an optional input that must be known at import; None where it is left out."""
    value = node.input(index)
    if value is None:
        return None
    if value.constant is None:
        raise NotMapped(f"{what} is known only at run time, must be a constant")
    return value.constant


def scalar(array: Array | None, default: float) -> float:
    """Return the one element of a constant, or a default where it is left out."""
    return default if array is None else float(np.asarray(array).reshape(-1)[0])


def require_float(value: Value) -> None:
    """Refuse element types that do not travel as DLFLOAT16."""
    if value.dtype not in ELEMENT_TYPES:
        raise NotMapped(f"element type is {value.dtype}, must be {FLOATS}")


def require_rank(value: Value, *ranks: int) -> None:
    """Refuse a value of another rank."""
    if len(value.dims) not in ranks:
        expected = " or ".join(str(rank) for rank in ranks)
        raise NotMapped(f"rank {len(value.dims)}, must be {expected}")


def axis_in(axis: int, rank: int) -> int:
    """Return an axis counted from the front; refuse one that a value of this rank has not."""
    if not -rank <= axis < rank:
        raise NotMapped(f"axis is {axis}, must be {-rank} to {rank - 1}")
    return axis % rank


def reshaped(value: Value, shape: Shape) -> Value:
    """Return a value in another shape of the same number of elements; nothing moves."""
    if value.dims == shape:
        return value
    if value.constant is not None:
        array = value.constant.reshape(shape)
        return Value(value.name, value.dtype, shape, constant=array)
    return Value(value.name, value.dtype, shape, view=(value, None))


def expanded(builder: Builder, value: Value, shape: Shape) -> Value:
    """Return a value broadcast to `shape` as ONNX does it: constants at import, others by host."""
    if value.dims == shape:
        return value
    if np.prod(value.dims) == np.prod(shape):
        return reshaped(value, shape)
    return builder.host("Expand", [value, builder.integers(*shape)])


def part(builder: Builder, value: Value, axis: int, start: int, end: int) -> Value:
    """Return the elements of a value from `start` up to `end` along an axis, cut by the host."""
    bounds = [builder.integers(bound) for bound in (start, end, axis)]
    return builder.host("Slice", [value, *bounds])


def axis_last(shape: Shape, axes: tuple[int, ...]) -> tuple[Arrangement, tuple[int, ...]]:
    """Return an arrangement whose vectors (dim1) run over `axes`, and the axes that are kept."""
    kept = tuple(axis for axis in range(len(shape)) if axis not in axes)
    inner = int(np.prod([shape[axis] for axis in axes], dtype=np.int64))
    rows = shape[kept[-1]] if kept else 1
    stack = int(np.prod([shape[axis] for axis in kept[:-1]], dtype=np.int64))
    order = axes_of(shape, (*kept, *axes))
    return Arrangement(order, (stack, 1, rows, inner)), kept


def preferred(builder: Builder, *values: Value) -> Arrangement:
    """Return the arrangement that costs the fewest conversions for values of one shape."""
    for value in values:
        arrangements = list(builder.available(value))
        if arrangements:
            return arrangements[-1]
    if any(map(builder.is_image, values)):
        return channels_last(values[0].dims)
    return plain(values[0].dims)


def become(builder: Builder, output: Value, value: Value, permutation: Shape | None = None) -> None:
    """Let an output be another value, in another shape or with its axes in another order."""
    if value.views >= MAX_VIEWS:
        limit = f"must be at most {MAX_VIEWS} one behind the other"
        raise NotMapped(f"changes of shape or order before it are {value.views}, {limit}")
    if permutation is None and output.dims == value.dims:
        permutation = tuple(range(len(value.dims)))
    builder.touch(output)
    output.view = (value, permutation)
    builder.views[output] = builder.node
