# SPDX-License-Identifier: Apache-2.0
"""The size and depth of forests of decision trees, computed without recursion.

ONNX Runtime descends into a tree by recursion, and ends its process where the stack does.
Sources: ONNX operators ai.onnx.ml TreeEnsemble, TreeEnsembleClassifier, TreeEnsembleRegressor; ONNX
Runtime, core/providers/cpu/ml/tree_ensemble_common.h, AddNodes.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
from onnx import AttributeProto

MAX_DEPTH = 2000
"""Most nodes one below the other; a stack of 8 MiB ends between 10,000 and 20,000."""
Numbers: TypeAlias = npt.NDArray[np.int64]
Edges: TypeAlias = tuple[Numbers, Numbers]
"""Places of parents and of their children."""


def tree_nodes(node: onnx.NodeProto) -> int:
    """Return how many nodes the trees of a forest have, 0 for any other operator."""
    if node.domain != "ai.onnx.ml":
        return 0
    name = "nodes_truenodeids"
    return max((len(part.ints) for part in node.attribute if part.name == name), default=0)


def fault_of_trees(node: onnx.NodeProto) -> str:
    """Return why a forest is refused: too deep, or in a circle; empty for any other node."""
    count = tree_nodes(node)
    if not count:
        return ""
    attributes = {attribute.name: attribute for attribute in node.attribute}
    edges = _edges_by_index if node.op_type == "TreeEnsemble" else _edges_by_id
    try:
        parents, children = edges(attributes, count)
    except (KeyError, ValueError):
        return ""  # lists of different lengths, which ONNX Runtime refuses
    return _fault_of_depth(parents, children, count)


def _fault_of_depth(parents: Numbers, children: Numbers, count: int) -> str:
    """Take away nodes that nothing leads to, level by level."""
    order = np.argsort(parents, kind="stable")
    children, begins = children[order], np.searchsorted(parents[order], np.arange(count + 1))
    waiting = np.bincount(children, minlength=count)
    level, left = np.flatnonzero(waiting == 0), count
    for _ in range(MAX_DEPTH):
        if not level.size:
            return "a tree goes in a circle" if left else ""
        left -= level.size
        starts, ends = begins[level], begins[level + 1]
        below = children[_ranges(starts, ends)]
        np.subtract.at(waiting, below, 1)
        ready = np.sort(below[waiting[below] == 0])
        level = ready[np.diff(ready, prepend=-1) != 0]
    return f"a tree is more than {MAX_DEPTH} nodes deep: train with a lower limit" if left else ""


def _ranges(starts: Numbers, ends: Numbers) -> Numbers:
    """Return the numbers of all ranges, one behind the other."""
    sizes = ends - starts
    offsets = np.repeat(np.cumsum(sizes) - sizes, sizes)
    ranges: Numbers = np.arange(sizes.sum()) - offsets + np.repeat(starts, sizes)
    return ranges


def _edges_by_index(attributes: dict[str, AttributeProto], count: int) -> Edges:
    """Return the edges of a TreeEnsemble, whose children are places of nodes, or leaves."""
    return _edges(
        count,
        [(_ints(attributes[f"nodes_{side}nodeids"], count),
          _ints(attributes[f"nodes_{side}leafs"], count) == 0) for side in ("true", "false")],
        lambda children: children,
    )  # fmt: skip


def _edges_by_id(attributes: dict[str, AttributeProto], count: int) -> Edges:
    """Return the edges where a node has the number of its tree, and its own within that."""
    trees = np.unique(_ints(attributes["nodes_treeids"], count), return_inverse=True)[1]
    names, ids = np.unique(_ints(attributes["nodes_nodeids"], count), return_inverse=True)
    modes = attributes["nodes_modes"].strings
    inner = np.fromiter((mode != b"LEAF" for mode in modes), np.bool_, count)
    keys = trees * len(names) + ids
    order = np.argsort(keys)

    def places(children: Numbers) -> Numbers:
        named = np.minimum(np.searchsorted(names, children), len(names) - 1)
        child_keys = trees * len(names) + named
        at = np.minimum(np.searchsorted(keys[order], child_keys), count - 1)
        exists = (names[named] == children) & (keys[order[at]] == child_keys)
        return np.where(exists, order[at], -1)

    sides = [_ints(attributes[f"nodes_{side}nodeids"], count) for side in ("true", "false")]
    return _edges(count, [(side, inner) for side in sides], places)


def _edges(
    count: int,
    sides: "list[tuple[Numbers, npt.NDArray[np.bool_]]]",
    places: Callable[[Numbers], Numbers],
) -> Edges:
    """Return the edges to both sides; those that lead to no node are ONNX Runtime's to refuse."""
    parents, children = list[Numbers](), list[Numbers]()
    for side, is_inner in sides:
        at = places(side)
        kept = np.flatnonzero(is_inner & (at >= 0) & (at < count))
        parents.append(kept)
        children.append(at[kept])
    return np.concatenate(parents), np.concatenate(children)


def _ints(attribute: Any, count: int) -> Numbers:
    """Return a list of `count` numbers; raise ValueError for another length."""
    if len(attribute.ints) != count:
        raise ValueError(attribute.name)
    return np.fromiter(attribute.ints, np.int64, count)
