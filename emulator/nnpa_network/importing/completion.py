# SPDX-License-Identifier: Apache-2.0
"""Complete a model that ONNX Runtime loads for ONNX's checker: order, domains, types of outputs."""

import heapq
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from graphlib import CycleError, TopologicalSorter
from typing import Any

import onnx
from onnx import helper, version_converter

from nnpa_network.building.runtime_shapes import Attributes, is_same, transposed_axes
from nnpa_network.building.type_inference import NodeAttributes
from nnpa_network.containment import all_nodes, subgraphs
from nnpa_network.nodes import captured, in_onnx
from nnpa_network.program import ModelRefused
from nnpa_network.running import host
from nnpa_network.running.runtime_types import MAX_CONSTANT_BYTES, output_types

_FREE_WEIGHTS = 4  # the IR version from which weights need not be inputs
_CHECKED_AS = "com.microsoft"  # a domain that the checker leaves alone


def sort_nodes(proto: onnx.ModelProto) -> None:
    """Sort nodes, at any depth, behind the makers of their inputs; refuse a circle."""
    for nodes in (proto.graph.node, *(function.node for function in proto.functions)):
        _sort(nodes)
    for node in all_nodes(proto):
        for graph in subgraphs(node):
            _sort(graph.node)


def _sort(nodes: Any) -> None:
    order = _order(nodes)
    if order != list(range(len(nodes))):
        sorted_nodes = [onnx.NodeProto.FromString(nodes[at].SerializeToString()) for at in order]
        del nodes[:]
        nodes.extend(sorted_nodes)


def _order(nodes: Iterable[onnx.NodeProto]) -> list[int]:
    """Return the order nearest to the present one in which nodes follow those that they read."""
    dense = list(nodes)
    maker = {name: at for at, node in enumerate(dense) for name in node.output if name}
    reads = [(*node.input, *captured(node)) for node in dense]
    sorter = TopologicalSorter(
        {at: {maker[name] for name in names if name in maker} for at, names in enumerate(reads)}
    )
    try:
        sorter.prepare()
    except CycleError as error:
        node = dense[min(error.args[1])]
        text = "the graph goes in a circle: an input of this node follows from its output"
        raise ModelRefused(text, node.name or node.op_type) from error
    ready, order = list[int](), list[int]()
    while sorter.is_active():
        for at in sorter.get_ready():
            heapq.heappush(ready, at)
        order.append(heapq.heappop(ready))
        sorter.done(order[-1])
    return order


def converted(proto: onnx.ModelProto, oldest: int) -> onnx.ModelProto:
    """Return a model of an opset before `oldest` in that; raise `ModelRefused`."""
    opset = next((entry.version for entry in proto.opset_import if not entry.domain), oldest)
    if not 0 < opset < oldest:
        return proto
    try:
        newer = version_converter.convert_version(proto, oldest)
    except Exception as error:  # what C++ throws is not told
        text = (
            f"opset is {opset}, must be {oldest} or newer, and onnx's version converter does not "
        )
        remedy = f"take it to {oldest}: give its inputs fixed sizes, or export it with a newer one"
        raise ModelRefused(text + remedy) from error
    newer.ir_version = max(newer.ir_version, _FREE_WEIGHTS)
    return newer


def import_domains(proto: onnx.ModelProto) -> None:
    """Import the newest version of domains that nodes use without it, as ONNX Runtime does."""
    imported = {"" if opset.domain == "ai.onnx" else opset.domain for opset in proto.opset_import}
    for node in all_nodes(proto):
        if node.domain not in imported and node.domain not in ("", "ai.onnx"):
            if node.domain in host.domains():
                proto.opset_import.append(
                    helper.make_opsetid(node.domain, host.domains()[node.domain])
                )
            imported.add(node.domain)


@contextmanager
def shown_to_checker(proto: onnx.ModelProto) -> Generator[None]:
    """Move operators that ONNX Runtime has put among ONNX's own to a domain that is not checked."""
    opset = next((entry.version for entry in proto.opset_import if entry.domain == ""), 1)
    moved = [
        node
        for node in all_nodes(proto)
        if node.domain == ""
        and not in_onnx(node.op_type, opset, "")
        and ("", node.op_type) in host.operators()
    ]
    added = bool(moved) and all(entry.domain != _CHECKED_AS for entry in proto.opset_import)
    if added:
        proto.opset_import.append(helper.make_opsetid(_CHECKED_AS, 1))
    for node in moved:
        node.domain = _CHECKED_AS
    try:
        yield
    finally:
        for node in moved:
            node.domain = ""
        if added:
            del proto.opset_import[-1]


def pad_explicitly(proto: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Replace auto_pad of transposed convolutions by the explicit pads that it stands for.

    No input's size decides them, and ONNX's shape inference computes other ones. `shapes` has the
    shapes of initializers.
    """
    for node in all_nodes(proto):
        if node.op_type != "ConvTranspose" or any(field.ref_attr_name for field in node.attribute):
            continue
        try:
            pads = _same_pads(NodeAttributes(node), shapes.get((*node.input, "", "")[1], ())[2:])
        except (TypeError, ValueError, IndexError):  # attributes that are none: the checker says so
            continue
        if pads:
            kept = [field for field in node.attribute if field.name not in ("auto_pad", "pads")]
            del node.attribute[:]
            node.attribute.extend([*kept, helper.make_attribute("pads", pads)])


def _same_pads(attributes: Attributes, kernel: Sequence[int]) -> list[int]:
    """Return the pads that auto_pad means for a kernel, none where it means none."""
    kernel = attributes.get("kernel_shape") or kernel
    if not is_same(attributes) or "output_shape" in attributes:
        return []
    axes = transposed_axes(attributes, [1] * len(kernel), kernel)
    return [*(axis.before for axis in axes), *(axis.after for axis in axes)]


def overridable_initializers(proto: onnx.ModelProto) -> frozenset[str]:
    """Return the initializers that are inputs, too: a run may have other values for them.

    In older files all initializers are inputs, and constants.
    """
    if proto.ir_version < _FREE_WEIGHTS:
        return frozenset()
    names = {tensor.name for tensor in proto.graph.initializer}
    return frozenset(info.name for info in proto.graph.input if info.name in names)


def make_weights_inputs(graph: onnx.GraphProto) -> None:
    """Turn large initializers into inputs: only their types and shapes matter to the checks.

    ONNX's checker, its shape inference and ONNX Runtime copy initializers.
    """
    inputs = {info.name for info in graph.input}
    small = [tensor for tensor in graph.initializer if tensor.ByteSize() <= MAX_CONSTANT_BYTES]
    for tensor in graph.initializer:
        if tensor.ByteSize() > MAX_CONSTANT_BYTES and tensor.name not in inputs:
            info = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            graph.input.append(info)
    kept = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in small]
    del graph.initializer[:]
    graph.initializer.extend(kept)


def complete_outputs(proto: onnx.ModelProto) -> None:
    """Give outputs the types that ONNX Runtime tells where shape inference left them open."""
    lacking = [info for info in proto.graph.output if not info.type.tensor_type.HasField("shape")]
    if not lacking:
        return
    try:
        types = output_types(proto)
    except host.HostError:
        return  # what is wrong with the model, its nodes tell
    for info in lacking:
        dtype, dims = types.get(info.name, (None, None))
        if dtype is not None:
            kind = helper.np_dtype_to_tensor_dtype(dtype)
            info.CopyFrom(
                helper.make_tensor_value_info(
                    info.name, kind, dims and [dim or None for dim in dims]
                )
            )
