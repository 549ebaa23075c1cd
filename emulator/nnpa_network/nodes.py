# SPDX-License-Identifier: Apache-2.0
"""ONNX nodes: their operators, their subgraphs and what these capture, and equal nodes."""

import onnx

from nnpa_network.containment import subgraphs

DRAWING = frozenset(
    ("Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
     "RandomUniformLike")
)  # fmt: skip
"""Operators that draw random numbers."""


def captured(node: onnx.NodeProto) -> tuple[str, ...]:
    """Return the names that a node's subgraphs take from outside, sorted."""
    return tuple(sorted(set[str]().union(*map(_free, subgraphs(node)))))


def unnamed(node: onnx.NodeProto) -> onnx.NodeProto:
    """Return a node without its name, with operands named by their places: equal for equal work.

    Nodes with subgraphs, and nodes that draw random numbers, are returned as they are.
    """
    if node.op_type in DRAWING or has_subgraph(node):
        return node
    places = {"": ""}
    for place, name in enumerate(node.input):
        places.setdefault(name, f"i{place}")
    return onnx.NodeProto(
        op_type=node.op_type,
        domain=node.domain,
        input=[places[name] for name in node.input],
        output=[name and f"o{place}" for place, name in enumerate(node.output)],
        attribute=node.attribute,
    )


def _free(graph: onnx.GraphProto) -> set[str]:
    defined = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    free: set[str] = set()
    for node in graph.node:
        free |= {name for name in (*node.input, *captured(node)) if name} - defined
        defined |= set(node.output)
    return free | ({info.name for info in graph.output} - defined)


def has_subgraph(node: onnx.NodeProto) -> bool:
    """Return whether a node is an If, a Loop, a Scan or the like."""
    return bool(subgraphs(node))


def holds_subgraph(serialised: bytes) -> bool:
    """Return whether a serialised NodeProto has a subgraph."""
    return has_subgraph(onnx.NodeProto.FromString(serialised))


def in_onnx(op_type: str, version: int, domain: str) -> bool:
    """Return whether ONNX itself has an operator, of any name and version that a file may say."""
    try:
        return bool(onnx.defs.has(op_type, version, domain))
    except TypeError:  # a version beyond 31 bits, or a name that is no UTF-8
        return False
