# SPDX-License-Identifier: Apache-2.0
"""Refusals of untrusted models at any depth: external data, foreign code, bombs.

Sources: ONNX intermediate representation specification, "External Tensor Data", "Functions".
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, TypeAlias

import onnx

DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
"""ONNX's own domains; `running.host` knows those of ONNX Runtime."""
MAX_TRIPS = 10_000
"""Most iterations of a Loop."""
MAX_NODES = 100_000
"""Most nodes of a model whose local functions have been inlined."""
NO_TRIP_COUNT = (
    "a Loop needs a trip count, its first input, which is left out: "
    f"give the largest that is needed, at most {MAX_TRIPS}"
)
_OUTSIDE = "EPContext"  # source: ONNX Runtime, EPContext design: ep_cache_context may be a path

Tensor: TypeAlias = onnx.TensorProto | onnx.SparseTensorProto
Operator: TypeAlias = tuple[str, str]
"""Domain and name."""


def tensors(message: Any, node: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor and sparse tensor in a message, with the node it belongs to."""
    if isinstance(message, onnx.TensorProto | onnx.SparseTensorProto):
        yield node, message
        return
    if isinstance(message, onnx.NodeProto):
        node = message.name or message.op_type
    for field, value in message.ListFields():
        if field.message_type is not None:
            for child in [value] if hasattr(value, "ListFields") else value:
                yield from tensors(child, node)


def fault_of(node: str, tensor: Tensor) -> str:
    """Return why a tensor is refused wherever it is; empty when it may be there."""
    if isinstance(tensor, onnx.SparseTensorProto):
        return fault_of(node, tensor.values) or fault_of(node, tensor.indices)
    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
        where = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
        title = f"tensor {tensor.name}" if tensor.name else "a tensor"
        return (
            f"{title} lies outside of the model ({where[:80]!r}); external data is refused: load "
            "the path of the file, or onnx.save(onnx.load(path), path, save_as_external_data=False)"
        )
    return ""


def fault_in(node: onnx.NodeProto) -> str:
    """Return why a single node with its subgraphs is refused for its contents; else empty."""
    if any(part.op_type == _OUTSIDE for part in (node, *inner_nodes(node))):
        return f"{_OUTSIDE} refers to what lies outside of the model, which is refused"
    for title, tensor in tensors(node):
        if isinstance(tensor, onnx.SparseTensorProto):
            return f"sparse tensors are not hosted in single nodes, there is one in {title}"
        if fault := fault_of(title, tensor):
            return fault
    return fault_of_loops(node)


def fault_of_loops(node: onnx.NodeProto) -> str:
    """Return why a node's inner Loops are refused: trips that multiply, or cannot be checked."""
    loops = sum(inner.op_type == "Loop" for inner in inner_nodes(node))
    if any(loop.input[:1] in ([], [""]) for loop in _loops(node)):
        return NO_TRIP_COUNT
    if node.op_type != "If":
        return "a Loop inside of a Loop or Scan is not hosted" if loops else ""
    for graph in subgraphs(node):
        direct = [child for child in graph.node if child.op_type == "Loop"]
        loops -= len(direct)
        inside = {info.name for info in graph.input} | {each.name for each in graph.initializer}
        inside.update(name for child in graph.node for name in child.output)
        for name in inside.intersection("".join(child.input[:1]) for child in direct):
            text = "a Loop inside of an If, or one that hands on sequences, needs a trip count"
            return f"{text} from outside of it, which {name} is not"
    return "a Loop inside of a Loop, Scan or second If is not hosted" if loops else ""


def trip_counts(node: onnx.NodeProto) -> list[str]:
    """Return the names of the trip counts of a Loop, or of Loops in the branches of an If."""
    return list(dict.fromkeys(name for loop in _loops(node) for name in loop.input[:1]))


def _loops(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return a node that is a Loop, or the Loops in the branches of an If."""
    if node.op_type != "If":
        return [node] if node.op_type == "Loop" else []
    return [child for graph in subgraphs(node) for child in graph.node if child.op_type == "Loop"]


def subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """Return the graphs that a node has as attributes, such as branches and bodies."""
    graphs: list[onnx.GraphProto] = []
    for attribute in node.attribute:
        if attribute.HasField("g"):
            graphs.append(attribute.g)
        graphs.extend(attribute.graphs)
    return graphs


def inner_nodes(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a node's subgraphs, at any depth."""
    for graph in subgraphs(node):
        for child in graph.node:
            yield child
            yield from inner_nodes(child)


def all_nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a model and of its functions, at any depth."""
    for nodes in (proto.graph.node, *(function.node for function in proto.functions)):
        for node in nodes:
            yield node
            yield from inner_nodes(node)


def expanded_nodes(proto: onnx.ModelProto) -> int:
    """Return how many nodes a model has once its functions are inlined.

    A function counts as `MAX_NODES` + 1 at most; ValueError for one that leads to itself.
    """
    functions = {(each.domain, each.name): _operators(each.node) for each in proto.functions}
    called = {key: functions.keys() & operators for key, operators in functions.items()}
    sizes: dict[Operator, int] = {}
    try:
        for key in TopologicalSorter(called).static_order():
            sizes[key] = min(_size(functions[key], sizes), MAX_NODES + 1)
    except CycleError as error:
        raise ValueError(f"function {error.args[1][0][1]} leads to itself") from error
    return _size(_operators(proto.graph.node), sizes)


def _operators(nodes: Iterable[onnx.NodeProto]) -> Counter[Operator]:
    """Count the operators of nodes, at any depth."""
    parts = (part for node in nodes for part in (node, *inner_nodes(node)))
    return Counter((part.domain, part.op_type) for part in parts)


def _size(operators: Counter[Operator], sizes: Mapping[Operator, int]) -> int:
    """Return how many nodes operators are, of which functions have these sizes."""
    return sum(count * sizes.get(operator, 1) for operator, count in operators.items())
