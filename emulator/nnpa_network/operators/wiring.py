# SPDX-License-Identifier: Apache-2.0
"""The wiring of a model's nodes: the maker and the readers of a value, and its formula."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import onnx
from onnx import helper

from nnpa_network.program import Array

Powers: TypeAlias = tuple[int, ...]
Polynomial: TypeAlias = dict[Powers, float]
"""Coefficients by the powers of the variables."""

# Of any spelling: the degree, and the nodes one behind the other.
_MAX_DEGREE, _MAX_DEPTH = 4, 6
_NEAR = 1e-3  # a constant of FP16 or DLFLOAT16 is as near to its number as that


@dataclass(frozen=True, slots=True)
class Wiring:
    """The nodes of a graph in order.

    `makers` are the nodes that make values, `readers` those that read them, once for each time,
    with the number of nodes for an output of the graph; `ranks` are those that are known.
    """

    nodes: Sequence[onnx.NodeProto]
    makers: Mapping[str, int]
    readers: Mapping[str, Sequence[int]]
    constants: Mapping[str, Array]
    ranks: Mapping[str, int]

    def maker(self, name: str, *op_types: str) -> onnx.NodeProto | None:
        """Return the node that makes a value, None for none of these operators of ONNX's own."""
        index = self.makers.get(name)
        if index is None:
            return None
        node = self.nodes[index]
        own = node.op_type in op_types and node.domain in ("", "ai.onnx")
        return node if own else None

    def only_reader(self, name: str) -> int | None:
        """Return the one node that reads a value, once; None where there are others."""
        readers = self.readers.get(name, ())
        return readers[0] if len(readers) == 1 and readers[0] < len(self.nodes) else None

    def number(self, name: str) -> float | None:
        """Return the value of a constant of one element."""
        array = self.constants.get(name)
        if array is None or array.size != 1 or array.dtype.kind not in "fiuV":
            return None
        return float(array.reshape(-1)[0])

    def other_operand(self, node: onnx.NodeProto, name: str) -> str:
        """Return the operand of a node of two that is not `name`."""
        return node.input[1] if node.input[0] == name else node.input[0]

    def attributes(self, node: onnx.NodeProto) -> dict[str, Any]:
        """Return a node's attributes."""
        return {field.name: helper.get_attribute_value(field) for field in node.attribute}

    def enclosed(self, nodes: Collection[int], output: str) -> bool:
        """Return True if no node outside reads values of these nodes, except `output`."""
        written = {name for index in nodes for name in self.nodes[index].output} - {output}
        return all(reader in nodes for name in written for reader in self.readers.get(name, ()))

    def polynomial(
        self, name: str, variables: Sequence[str], nodes: set[int], depth: int = _MAX_DEPTH
    ) -> Polynomial | None:
        """Return a value as a polynomial of variables, and add its nodes to `nodes`.

        None where `depth` nodes one behind the other do not reach the variables, or where other
        than additions, products and whole powers with constants are among them.
        """
        if name in variables:
            return {tuple(int(name == variable) for variable in variables): 1.0}
        if (number := self.number(name)) is not None:
            return {(0,) * len(variables): number}
        node = self.maker(name, "Add", "Sub", "Mul", "Div", "Pow")
        if node is None or not depth or len(node.input) != 2:
            return None
        nodes.add(self.makers[name])
        first = self.polynomial(node.input[0], variables, nodes, depth - 1)
        if first is None:
            return None
        second = self.polynomial(node.input[1], variables, nodes, depth - 1)
        return None if second is None else _combined(node.op_type, first, second)


def _combined(op_type: str, first: Polynomial, second: Polynomial) -> Polynomial | None:
    """Return the sum, difference, product, quotient or power of polynomials."""
    if op_type in ("Add", "Sub"):
        sign = 1 if op_type == "Add" else -1
        powers = first.keys() | second.keys()
        return {at: first.get(at, 0.0) + sign * second.get(at, 0.0) for at in powers}
    if op_type == "Mul":
        return _product(first, second)
    number = sum(second.values())
    if any(map(any, second)) or not number:  # only constants divide, and are exponents
        return None
    if op_type == "Div":
        return {at: coefficient / number for at, coefficient in first.items()}
    if number not in range(1, _MAX_DEGREE + 1):
        return None
    power: Polynomial | None = first
    for _ in range(int(number) - 1):
        power = None if power is None else _product(power, first)
    return power


def _product(first: Polynomial, second: Polynomial) -> Polynomial | None:
    """Return the product, None beyond the degree that any spelling has."""
    if max(map(sum, first)) + max(map(sum, second)) > _MAX_DEGREE:
        return None
    product: Polynomial = {}
    for at, a in first.items():
        for by, b in second.items():
            powers = tuple(i + j for i, j in zip(at, by, strict=True))
            product[powers] = product.get(powers, 0.0) + a * b
    return product


def is_near(polynomial: Polynomial | None, expected: Polynomial) -> bool:
    """Tell whether a polynomial has the expected terms, within the rounding of a constant."""
    if polynomial is None:
        return False
    terms = {at: number for at, number in polynomial.items() if number}
    return terms.keys() == expected.keys() and all(
        abs(terms[at] - number) <= _NEAR * abs(number) for at, number in expected.items()
    )
