# SPDX-License-Identifier: Apache-2.0
"""Enclose nodes that exchange sequences or optionals in one node over tensors.

The node is an If whose condition holds, so that ONNX Runtime runs all of them at once. Nodes on a
path from one of them to another are enclosed, too.
Sources: ONNX operators Sequence..., SplitToSequence, ConcatFromSequence, Optional...; If.
"""

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from nnpa_network.building.type_inference import ENCLOSING
from nnpa_network.importing.completion import sort_nodes
from nnpa_network.nodes import captured
from nnpa_network.program import Array

_MAKERS = frozenset(
    ("Optional", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert",
     "SequenceMap", "SplitToSequence")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Nodes:
    """The nodes of a graph in order: the names that each reads, the maker and readers of a name."""

    nodes: Sequence[onnx.NodeProto]
    reads: Sequence[tuple[str, ...]]
    makers: dict[str, int]
    readers: dict[str, list[int]]


def enclose_sequences(proto: onnx.ModelProto) -> dict[str, Array]:
    """Enclose the nodes that sequences, optionals or maps go between; raise `ModelRefused`.

    Return the constants that the enclosing nodes read. Values have inferred types, and nodes follow
    those that they read.
    """
    carried = _carried(proto.graph)
    if not carried:
        return {}
    graph = _nodes_of(proto.graph)
    outputs = {info.name for info in proto.graph.output}
    infos = {info.name: info for info in (*proto.graph.value_info, *proto.graph.output)}
    groups, constants = list(_groups(graph, carried)), dict[str, Array]()
    enclosed = set[int]().union(*groups)
    used = {info.name for info in proto.graph.input} | graph.makers.keys() | graph.readers.keys()
    nodes = [node for at, node in enumerate(graph.nodes) if at not in enclosed]
    for group in groups:
        names = [
            name
            for at in sorted(group)
            for name in graph.nodes[at].output
            if name not in carried
            and (name in outputs or not group.issuperset(graph.readers.get(name, ())))
        ]
        if names:
            condition = _new_name(f"{names[0]}/always", used)
            constants[condition] = np.array(True)
            parts = [graph.nodes[at] for at in sorted(group)]
            nodes.append(_enclosing(condition, parts, [infos.get(name) for name in names], names))
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    sort_nodes(proto)
    return constants


def _new_name(name: str, used: Collection[str]) -> str:
    while name in used:
        name = f"{name}_"
    return name


def _carried(graph: onnx.GraphProto) -> set[str]:
    """Return the names of the values that are no tensors, by their types or their operators."""
    inferred = {
        info.name
        for info in (*graph.value_info, *graph.output)
        if info.type.WhichOneof("value") not in (None, "tensor_type")
    }
    makers = (
        node
        for node in graph.node
        if node.op_type in _MAKERS and node.domain in ("", "ai.onnx") and node.output
    )
    return inferred.union(node.output[0] for node in makers)


def _nodes_of(graph: onnx.GraphProto) -> _Nodes:
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node]
    reads = [(*node.input, *captured(node)) for node in nodes]
    makers = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    readers: dict[str, list[int]] = {}
    for at, names in enumerate(reads):
        for name in names:
            readers.setdefault(name, []).append(at)
    return _Nodes(nodes, reads, makers, readers)


def _groups(graph: _Nodes, carried: set[str]) -> Iterator[set[int]]:
    """Yield the nodes to be enclosed together; no way leads out of a group and back."""
    makers = {name: graph.makers[name] for name in carried & graph.makers.keys()}
    ends = ((at, max([at, *graph.readers.get(name, ())])) for name, at in makers.items())
    spans = deque(sorted(ends))
    touching = {*makers.values(), *(at for name in carried for at in graph.readers.get(name, ()))}
    while spans:
        first, last = spans.popleft()
        while spans and spans[0][0] <= last:
            last = max(last, spans.popleft()[1])
        yield _between(graph, first, last, touching)


def _between(graph: _Nodes, first: int, last: int, touching: set[int]) -> set[int]:
    """Return the nodes of a span that are touching, or on a way from such a node to another."""
    behind, before = set[int](), set[int]()
    for at in range(first, last + 1):
        makers = {graph.makers.get(name) for name in graph.reads[at]}
        if at in touching or not behind.isdisjoint(makers):
            behind.add(at)
    for at in range(last, first - 1, -1):
        if at in touching or at in before:
            before.add(at)
            before.update(graph.makers.get(name, at) for name in graph.reads[at])
    return behind & before


def _enclosing(
    condition: str,
    parts: Sequence[onnx.NodeProto],
    infos: Sequence[onnx.ValueInfoProto | None],
    names: Sequence[str],
) -> onnx.NodeProto:
    """Return an If of which both branches are these nodes."""
    ends = [helper.make_empty_tensor_value_info(name) for name in names]
    for end, info in zip(ends, infos, strict=True):
        if info is not None and info.type.HasField("tensor_type"):
            end.type.tensor_type.elem_type = info.type.tensor_type.elem_type
    branch = helper.make_graph(parts, "enclosed", [], ends)
    operators = ", ".join(dict.fromkeys(part.op_type for part in parts))
    return helper.make_node(
        "If", [condition], list(names), parts[0].name or f"{names[0]}/sequences",
        f"{ENCLOSING} {operators}", then_branch=branch, else_branch=branch,
    )  # fmt: skip
