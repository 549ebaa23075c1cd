# SPDX-License-Identifier: Apache-2.0
"""A random graph while it is drawn, and the table of functions that draw its nodes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from onnx import NodeProto, helper

from tests.network.hosting import Array

ML = "ai.onnx.ml"
"""The domain of ONNX's operators of classical machine learning."""
_POOL_SHARE, _CONSTANT_SHARE = 0.6, 0.4


@dataclass(slots=True)
class Sketch:
    """A graph that is being drawn: its operands so far with their arrays, and its nodes.

    `opset` is the opset of ONNX's own domain, `dtype` the type of its floating-point operands.
    """

    rng: np.random.Generator
    opset: int
    dtype: Any
    inputs: dict[str, Array] = field(default_factory=dict[str, Array])
    constants: dict[str, Array] = field(default_factory=dict[str, Array])
    values: dict[str, Array] = field(default_factory=dict[str, Array])
    nodes: list[NodeProto] = field(default_factory=list[NodeProto])

    def pick(self, *options: Any) -> Any:
        """Return one of the options."""
        return options[int(self.rng.integers(len(options)))]

    def flag(self, share: float = 0.5) -> bool:
        """Return whether a share of the cases is met."""
        return bool(self.rng.random() < share)

    def size(self, least: int = 1, most: int = 6) -> int:
        """Return a size from `least` to `most`, now and then 0 or one beyond a stick of 64."""
        if self.flag(0.02):
            return 0
        return int(self.rng.integers(65, 72)) if self.flag(0.04) else self.number(least, most)

    def number(self, least: int, most: int) -> int:
        """Return a number from `least` to `most`."""
        return int(self.rng.integers(least, most + 1))

    def dims(self, rank: int) -> tuple[int, ...]:
        """Return a shape."""
        return tuple(self.size() for _ in range(rank))

    def floats(self, *shape: int) -> Array:
        """Return random numbers of the graph's type."""
        return np.asarray(self.rng.normal(0, 1, shape)).astype(self.dtype)

    def new(self, array: Array, constant: bool | None = None) -> str:
        """Return the name of a new operand, a constant or an input."""
        is_constant = self.flag(_CONSTANT_SHARE) if constant is None else constant
        table = self.constants if is_constant else self.inputs
        name = f"{'c' if is_constant else 'x'}{len(self.values)}"
        table[name] = self.values[name] = array
        return name

    def integers(self, *numbers: int) -> str:
        """Return the name of a constant of axes, sizes or the like."""
        return self.new(np.array(numbers, np.int64), constant=True)

    def operand(self, *shape: int) -> str:
        """Return the name of an operand of a shape, an old one where there is one."""
        old = [name for name, array in self.values.items() if self._is_like(array, shape)]
        return self.pick(*old) if old and self.flag(_POOL_SHARE) else self.new(self.floats(*shape))

    def _is_like(self, array: Array, shape: Sequence[int]) -> bool:
        return bool(array.shape == tuple(shape) and array.dtype == self.dtype)

    def any_of(self, *ranks: int) -> str:
        """Return the name of an operand of one of these ranks."""
        old = [
            name
            for name, array in self.values.items()
            if array.ndim in ranks and array.dtype == self.dtype
        ]
        if old and self.flag(_POOL_SHARE):
            return str(self.pick(*old))
        return self.new(self.floats(*self.dims(self.pick(*ranks))), constant=self.flag(0.1))

    def shape(self, name: str) -> tuple[int, ...]:
        """Return an operand's shape."""
        return self.values[name].shape

    def broadcast(self, name: str) -> str:
        """Return an operand that can be broadcast to another, or another to it."""
        shape = [1 if self.flag(0.2) else size for size in self.shape(name)]
        return self.operand(*shape[self.number(0, len(shape)) if self.flag(0.3) else 0 :])

    def node(
        self, op_type: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any
    ) -> NodeProto:
        """Return a node with `outputs` new outputs; attributes that are None are left out."""
        kept = {name: value for name, value in attributes.items() if value is not None}
        at = len(self.nodes)
        names = [f"v{at}_{number}" for number in range(outputs)]
        return helper.make_node(op_type, list(inputs), names, f"n{at}_{op_type}", **kept)


Draw: TypeAlias = Callable[[Sketch], NodeProto]
DRAWS: dict[str, Draw] = {}
ANY_RANK = (1, 2, 3, 4, 5)


def draw(*names: str) -> Callable[[Callable[[Sketch, str], NodeProto]], Callable[..., NodeProto]]:
    """Register a function that draws nodes of operators."""

    def decorate(function: Callable[[Sketch, str], NodeProto]) -> Callable[..., NodeProto]:
        for name in names:
            DRAWS[name] = lambda sketch, name=name: function(sketch, name)  # type: ignore[misc]
        return function

    return decorate
