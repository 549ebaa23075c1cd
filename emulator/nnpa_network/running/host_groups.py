# SPDX-License-Identifier: Apache-2.0
"""Shortcut host-groups: neighbouring host nodes run as one session of ONNX Runtime.

A session takes about 3 us for its inputs and outputs, and each of its nodes a tenth of that. As
nothing is optimised, a node computes in a group what it computes alone. Operators of our own that
only move elements join where they lie between nodes of ONNX Runtime. If a group fails, its nodes
run one by one, and the failing one is named.
"""

from collections.abc import Iterator, Mapping, Sequence

import onnx

from nnpa_network.containment import inner_nodes, subgraphs, trip_counts
from nnpa_network.nodes import captured, in_onnx
from nnpa_network.program import ABSENT, ANY_RANK, AcceleratorStep, HostStep, used
from nnpa_network.running import host
from nnpa_network.running.host_models import Nodes, is_int8_matrix
from nnpa_network.running.host_operators import MOVES
from nnpa_network.running.loading import HostGroup, LoadedProgram
from nnpa_network.running.plain import Run, RunProgram, run_on_host

_NAME = "host value "  # how values are named within a group, by their ids
_LEAST_NODES = 2  # of ONNX Runtime
# Operators whose newer versions take more types or inputs, and are else the same.
_EXTENDED = MOVES | {"Cast"}


def group_host_nodes(loaded: LoadedProgram, run_program: RunProgram) -> RunProgram:
    """Wrap a program's run: neighbouring host nodes run at once."""
    loaded.groups = _same_groups(loaded) if loaded.root is not loaded else find_groups(loaded)
    groups = {group.first: group for group in loaded.groups}
    if not groups:
        return run_program
    for group in groups.values():
        loaded.deferred.update(range(group.first, group.last + 1))

    def run_grouped(run: Run) -> None:
        run.run_host_step = _GroupedSteps(groups)
        run_program(run)

    return run_grouped


class _GroupedSteps:
    """Runs the host steps of one run, a group at its first step."""

    def __init__(self, groups: Mapping[int, HostGroup]) -> None:
        self._groups, self._last = groups, -1

    def __call__(self, run: Run, index: int) -> None:
        """Run a step unless its group has run; a group that fails runs step by step."""
        if index <= self._last:
            return
        group = self._groups.get(index)
        if group is not None:
            try:
                results = group.kernel([run.arrays[number] for number in group.inputs])
            except host.HostError:
                pass
            else:
                run.keep(group.outputs, results)
                self._last = group.last
                return
        run_on_host(run, index)


def _same_groups(loaded: LoadedProgram) -> list[HostGroup]:
    """Return the groups of the program for the first size over which nothing grows."""
    growing, steps = loaded.growing(loaded.root), loaded.program.steps
    return [
        group for group in loaded.root.groups
        if growing.isdisjoint(
            number for step in steps[group.first : group.last + 1] for number in used(step)
        )
    ]  # fmt: skip


def find_groups(loaded: LoadedProgram) -> list[HostGroup]:
    """Return the groups of a program."""
    nodes = {
        index: onnx.NodeProto.FromString(step.onnx)
        for index, step in enumerate(loaded.program.steps)
        if isinstance(step, HostStep)
    }
    joining = {index for index, node in nodes.items() if _may_join(loaded, index, node)}
    bounds = (_trimmed(loaded, nodes, *each) for each in _ranges(joining))
    groups = (_group(loaded, nodes, first, last) for first, last in bounds)
    return [group for group in groups if group is not None]


def _ranges(indices: set[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of indices in a row."""
    for first in sorted(index for index in indices if index - 1 not in indices):
        last = first
        while last + 1 in indices:
            last += 1
        yield first, last


def _may_join(loaded: LoadedProgram, index: int, node: onnx.NodeProto) -> bool:
    """Return whether a step may be part of a group.

    FP16 may not: ONNX Runtime computes it in FP32, and leaves out roundings between two nodes.
    """
    step = loaded.program.steps[index]
    if index in loaded.own:
        return node.op_type in MOVES
    if not isinstance(step, HostStep) or node.op_type in host.NEVER_EMPTY or trip_counts(node):
        return False
    constants = [loaded.arrays[number] for number in step.inputs if number in loaded.arrays]
    dtypes = [dtype for dtype in loaded.dtypes((*step.inputs, *step.outputs)) if dtype is not None]
    return not any(map(is_int8_matrix, constants)) and all(
        dtype.kind in "fiub" and dtype != "float16" for dtype in dtypes
    )


def _trimmed(
    loaded: LoadedProgram, nodes: Mapping[int, onnx.NodeProto], first: int, last: int
) -> tuple[int, int]:
    """Return the range without moves at its ends, and without a Clip before its transform."""
    steps = loaded.program.steps
    while first <= last and first in loaded.own:
        first += 1
    while first <= last:
        following = steps[last + 1] if last + 1 < len(steps) else None
        clips = isinstance(following, AcceleratorStep) and nodes[last].op_type == "Clip"
        if not clips and last not in loaded.own:
            break
        last -= 1
    return first, last


def _group(
    loaded: LoadedProgram, nodes: Mapping[int, onnx.NodeProto], first: int, last: int
) -> HostGroup | None:
    """Return a range of steps as a group; None for a single node, or if it cannot be compiled."""
    indices = range(first, last + 1)
    if sum(index not in loaded.own for index in indices) < _LEAST_NODES:
        return None
    steps = [step for step in loaded.program.steps[first : last + 1] if isinstance(step, HostStep)]
    made = {number for step in steps for number in step.outputs} - {ABSENT}
    read = dict.fromkeys(number for step in steps for number in step.inputs if number not in made)
    inputs = tuple(number for number in read if number not in loaded.arrays and number != ABSENT)
    outputs = tuple(made.difference(*(loaded.last_used[index] for index in indices)))
    infos = {number: loaded.program.arrays[number] for number in inputs}
    shapes = {_name(number): info.shape for number, info in infos.items() if info.shape != ANY_RANK}
    constants = {_name(number): loaded.arrays[number] for number in read if number in loaded.arrays}
    members = [nodes[index] for index in indices]
    try:
        graph = Nodes(
            list(map(_renamed, members, steps)),
            _opsets(steps, members),
            {_name(number): info.dtype for number, info in infos.items()},
            list(map(_name, outputs)),
            shapes,
            constants,
        )
        kernel = host.compile_nodes(graph, list(map(_name, inputs)))
    except host.HostError:
        return None
    return HostGroup(first, last, inputs, outputs, kernel)


def _opsets(steps: Sequence[HostStep], nodes: Sequence[onnx.NodeProto]) -> dict[str, int]:
    """Return the versions of domains; raise `HostError` where no version of one suits all nodes."""
    domains: dict[str, list[tuple[onnx.NodeProto, int]]] = {"": []}
    for step, node in zip(steps, nodes, strict=True):
        domain = "" if node.domain == "ai.onnx" else node.domain
        domains.setdefault(domain, []).append((node, step.opset))
    return {domain: _version(members) for domain, members in domains.items()}


def _version(members: Sequence[tuple[onnx.NodeProto, int]]) -> int:
    for version in dict.fromkeys(opset for _, opset in members):
        if all(_is_alike(node, opset, version) for node, opset in members):
            return version
    if members:
        raise host.HostError("no version of a domain suits all nodes")
    return host.newest_opset()


def _is_alike(node: onnx.NodeProto, opset: int, other: int) -> bool:
    """Return whether a node means the same in another version of its domain."""
    parts = (node, *inner_nodes(node))
    if opset == other:
        return True
    if not all(in_onnx(each.op_type, end, "") for each in parts for end in (opset, other)):
        return False
    if node.op_type in _EXTENDED:
        schema = onnx.defs.get_schema(node.op_type, other, "")
        attributes = {attribute.name for attribute in node.attribute}
        has_inputs = schema.min_input <= len(node.input) <= schema.max_input
        return has_inputs and attributes <= schema.attributes.keys()
    return all(
        onnx.defs.get_schema(each.op_type, opset, "").since_version
        == onnx.defs.get_schema(each.op_type, other, "").since_version
        for each in parts
    )


def _renamed(node: onnx.NodeProto, step: HostStep) -> onnx.NodeProto:
    """Return a node whose values are named by ids, in its subgraphs too; raise `HostError`."""
    host.require_hosted(node)
    if [bool(name) for name in node.output] != [number != ABSENT for number in step.outputs]:
        raise host.HostError("outputs that are not the node's")
    outside = (name for name in captured(node) if name not in node.input)
    names = {
        name: _name(number)
        for name, number in zip((*node.input, *outside), step.inputs, strict=True)
        if name
    }
    renamed = onnx.NodeProto()
    renamed.CopyFrom(node)
    renamed.input[:] = [names.get(name, "") for name in node.input]
    renamed.output[:] = [_name(number) if number != ABSENT else "" for number in step.outputs]
    for graph in subgraphs(renamed):
        _rename_captured(graph, names)
    return renamed


def _rename_captured(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename the values that a subgraph takes from outside, at any depth."""
    inside = {info.name for info in graph.input} | {each.name for each in graph.initializer}
    inside.update(name for node in graph.node for name in node.output)
    if any(name.startswith(_NAME) for name in inside):
        raise host.HostError("a name of a subgraph is one of ours")
    names = {name: new for name, new in names.items() if name not in inside}
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        for inner in subgraphs(node):
            _rename_captured(inner, names)
    for info in graph.output:
        info.name = names.get(info.name, info.name)


def _name(number: int) -> str:
    return f"{_NAME}{number}"
