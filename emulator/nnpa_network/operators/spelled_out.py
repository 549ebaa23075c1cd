# SPDX-License-Identifier: Apache-2.0
"""Operators that exporters spell out in smaller ones, recognised by the placement `all`.

A spelling is taken as a whole or not at all: if a constant or an axis differs, or another node
reads a value inside, its nodes are placed one by one.
Sources: ONNX operators Gelu and LayerNormalization, their function bodies.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from nnpa_network.operators.wiring import Polynomial, Wiring, is_near

_HALF_GELU: Polynomial = {(1, 0): 0.5, (1, 1): 0.5}  # of x and of its erf or tanh
_ERF_ARGUMENT: Polynomial = {(1,): 1 / math.sqrt(2)}
_TANH_ARGUMENT: Polynomial = {
    (1,): math.sqrt(2 / math.pi),
    (3,): 0.044715 * math.sqrt(2 / math.pi),
}
_MAX_OPERANDS = 12


@dataclass(frozen=True, slots=True)
class Spelling:
    """Nodes that together are one operator: its type, inputs, output and attributes."""

    op_type: str
    nodes: tuple[int, ...]
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Any]


Find: TypeAlias = Callable[[Wiring, int], Spelling | None]


PATTERNS: dict[str, Find] = {}
"""What recognises a spelling, by the operator of the node that it is found from."""


def pattern(found_from: str) -> Callable[[Find], Find]:
    """Register a function that recognises a spelling; its docstring is the documentation's row."""

    def decorate(find: Find) -> Find:
        PATTERNS[found_from] = find
        return find

    return decorate


def spellings(wiring: Wiring) -> dict[int, Spelling]:
    """Return the spellings of a graph, by the first node of each."""
    spellings: dict[int, Spelling] = {}
    for index, node in enumerate(wiring.nodes):
        if node.op_type in PATTERNS and node.domain in ("", "ai.onnx"):
            spelling = PATTERNS[node.op_type](wiring, index)
            if spelling is not None and wiring.enclosed(spelling.nodes, spelling.output):
                spellings[spelling.nodes[0]] = spelling
    return spellings


@pattern(found_from="Erf")
def gelu_by_erf(wiring: Wiring, index: int) -> Spelling | None:
    """X / 2 * (1 + erf(x / sqrt(2))), its products in any order: one gelu, which is the tanh form,
    within 5e-4 of this one.
    """
    return _gelu(wiring, index, _ERF_ARGUMENT, "none")


@pattern(found_from="Tanh")
def gelu_by_tanh(wiring: Wiring, index: int) -> Spelling | None:
    """X / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))), its products in any order: one
    gelu.
    """
    return _gelu(wiring, index, _TANH_ARGUMENT, "tanh")


def _gelu(wiring: Wiring, index: int, argument: Polynomial, approximate: str) -> Spelling | None:
    node = wiring.nodes[index]
    for operand in _operands_before(wiring, node.input[0]):
        nodes = {index}
        if is_near(wiring.polynomial(node.input[0], [operand], nodes), argument):
            return _gelu_of(wiring, operand, node.output[0], nodes, approximate)
    return None


def _operands_before(wiring: Wiring, name: str) -> Iterator[str]:
    """Yield the values of which a value may be a polynomial, the nearest first."""
    seen, waiting = {name}, [name]
    while waiting and len(seen) < _MAX_OPERANDS:
        node = wiring.maker(waiting.pop(0), "Add", "Sub", "Mul", "Div", "Pow")
        for operand in () if node is None else node.input:
            if operand not in seen and operand not in wiring.constants:
                seen.add(operand)
                waiting.append(operand)
                yield operand


def _gelu_of(
    wiring: Wiring, operand: str, inner: str, nodes: set[int], approximate: str
) -> Spelling | None:
    """Follow the readers of a value's erf or tanh up to its gelu."""
    name = inner
    for _ in range(3):  # 1 + inner, and two products
        reader = wiring.only_reader(name)
        if reader is None:
            return None
        name = wiring.nodes[reader].output[0]
        members = set(nodes)
        if is_near(wiring.polynomial(name, [operand, inner], members), _HALF_GELU):
            form = {"approximate": approximate}
            return Spelling("Gelu", tuple(sorted(members)), (operand,), name, form)
    return None


@pattern(found_from="Sqrt")
def layer_normalization(wiring: Wiring, index: int) -> Spelling | None:
    """D / sqrt(mean(d ** 2) + epsilon) with d = x - mean(x), means over the last axes, with or
    without a constant scale and a constant bias behind: as LayerNormalization.
    """
    root = wiring.nodes[index]
    total = wiring.maker(root.input[0], "Add")
    end = wiring.only_reader(root.output[0])
    if total is None or end is None or wiring.nodes[end].op_type != "Div":
        return None
    for variance in total.input:
        epsilon = wiring.number(wiring.other_operand(total, variance))
        nodes = {index, end, wiring.makers[root.input[0]]}
        normal = _normalised(wiring, wiring.nodes[end].input[0], variance, nodes)
        if normal is not None and epsilon is not None and epsilon > 0:
            value, axes = normal
            return _scaled(wiring, nodes, value, end, {"axis": -axes, "epsilon": epsilon})
    return None


def _normalised(
    wiring: Wiring, difference: str, variance: str, nodes: set[int]
) -> tuple[str, int] | None:
    """Return the value of which these are the difference from its mean, and the variance.

    With it, over how many of its last axes; add the nodes between to `nodes`.
    """
    center = wiring.maker(difference, "Sub")
    if center is None:
        return None
    value, mean = center.input
    of_value, of_square = _mean(wiring, mean), _mean(wiring, variance)
    if of_value is None or of_square is None:
        return None
    (averaged, axes), (square, axes_of_square) = of_value, of_square
    nodes.update(wiring.makers[name] for name in (difference, mean, variance))
    is_square = is_near(wiring.polynomial(square, [difference], nodes), {(2,): 1.0})
    same = averaged == value and axes == axes_of_square
    return (value, axes) if is_square and same else None


def _mean(wiring: Wiring, name: str) -> tuple[str, int] | None:
    """Return the value whose mean over its last axes, which are kept, this is, and their number."""
    node = wiring.maker(name, "ReduceMean")
    if node is None:
        return None
    attributes, rank = wiring.attributes(node), wiring.ranks.get(node.input[0])
    axes = attributes.get("axes")
    if len(node.input) > 1:
        axes = wiring.constants.get(node.input[1])
    if axes is None or not rank or not attributes.get("keepdims", 1):
        return None
    numbers = [int(axis) for axis in np.asarray(axes).reshape(-1)]
    averaged = sorted({axis % rank for axis in numbers if -rank <= axis < rank})
    if any(not -rank <= axis < rank for axis in numbers):
        return None
    count = len(averaged)
    return (node.input[0], count) if averaged == list(range(rank - count, rank)) and count else None


def _scaled(
    wiring: Wiring, nodes: set[int], value: str, end: int, attributes: Mapping[str, Any]
) -> Spelling:
    """Add the product with a constant scale and the sum with a constant bias, where they follow."""
    operands = [value, "", ""]
    output = wiring.nodes[end].output[0]
    for place, op_type in ((1, "Mul"), (2, "Add")):
        reader = wiring.only_reader(output)
        if reader is None or wiring.nodes[reader].op_type != op_type:
            continue
        operand = wiring.other_operand(wiring.nodes[reader], output)
        if operand in wiring.constants:
            operands[place], output = operand, wiring.nodes[reader].output[0]
            nodes.add(reader)
    while not operands[-1]:
        operands.pop()
    return Spelling("LayerNormalization", tuple(sorted(nodes)), tuple(operands), output, attributes)
