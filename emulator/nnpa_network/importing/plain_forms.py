# SPDX-License-Identifier: Apache-2.0
"""Rewrite a model without sparse tensors, functions and recurrent layers with batches first."""

import math
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper, inliner, numpy_helper

from nnpa_network.containment import all_nodes, subgraphs
from nnpa_network.program import Array, ModelRefused


def without_functions(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with its local functions inlined.

    onnx's inliner passes on the attributes of a call, but not the defaults: calls get these first.
    """
    functions = {(each.domain, each.name, each.overload): each for each in proto.functions}
    for node in all_nodes(proto):
        function = functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            own = {attribute.name for attribute in node.attribute}
            defaults = function.attribute_proto
            node.attribute.extend(each for each in defaults if each.name not in own)
    return inliner.inline_local_functions(proto)


def make_dense(proto: onnx.ModelProto) -> None:
    """Replace sparse initializers and sparse constants, at any depth, by dense ones."""
    for graph in _graphs(proto):
        for tensor in graph.sparse_initializer:
            graph.initializer.append(_dense(tensor))
        del graph.sparse_initializer[:]
    for node in all_nodes(proto):
        for attribute in node.attribute:
            if attribute.HasField("sparse_tensor"):
                dense = _dense(attribute.sparse_tensor)
                attribute.CopyFrom(helper.make_attribute("value", dense))


def make_time_first(proto: onnx.ModelProto) -> None:
    """Rewrite recurrent layers of layout 1, which ONNX Runtime lacks, as layers of layout 0."""
    holders: list[onnx.GraphProto | onnx.FunctionProto] = [*_graphs(proto), *proto.functions]
    for holder in [each for each in holders if any(map(_is_batch_first, each.node))]:
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in holder.node]
        del holder.node[:]
        for node in nodes:
            holder.node.extend(_turned(node) if _is_batch_first(node) else [node])


def _is_batch_first(node: onnx.NodeProto) -> bool:
    layouts = [attribute.i for attribute in node.attribute if attribute.name == "layout"]
    return node.op_type in ("GRU", "LSTM", "RNN") and not node.domain and layouts == [1]


def _turned(layer: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return a layer of layout 0, with transpositions of input, states and outputs around it."""
    kept = [attribute for attribute in layer.attribute if attribute.name != "layout"]
    del layer.attribute[:]
    layer.attribute.extend(kept)
    prefix = next(filter(None, layer.output), layer.name)
    before, after = list[onnx.NodeProto](), list[onnx.NodeProto]()
    for at, name in enumerate(layer.input):
        if name and at in (0, 5, 6):
            layer.input[at] = f"{prefix}/input_{at}"
            before.append(_transposition(name, layer.input[at], [1, 0, 2]))
    for at, name in enumerate(layer.output):
        if name:
            layer.output[at] = f"{prefix}/output_{at}"
            order = [1, 0, 2] if at else [2, 0, 1, 3]
            after.append(_transposition(layer.output[at], name, order))
    return [*before, layer, *after]


def _transposition(source: str, target: str, order: list[int]) -> onnx.NodeProto:
    return helper.make_node("Transpose", [source], [target], f"{target}/turn", perm=order)


def _graphs(proto: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    yield proto.graph
    for node in all_nodes(proto):
        yield from subgraphs(node)


def dense_bytes(sparse: onnx.SparseTensorProto) -> int:
    """Return the bytes that a sparse tensor takes as a dense one."""
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(sparse.values.data_type))
    return math.prod(sparse.dims) * dtype.itemsize


def _dense(sparse: onnx.SparseTensorProto) -> onnx.TensorProto:
    """Return a sparse tensor as a dense one; raise `ModelRefused` where its parts do not fit.

    Indices are places in the flat tensor, or rows of one index per axis.
    Source: ONNX intermediate representation specification, SparseTensorProto.
    """
    name, dims = sparse.values.name, tuple(sparse.dims)
    try:
        values, indices = numpy_helper.to_array(sparse.values), _indices(sparse)
        nothing = "" if values.dtype == object else 0
        dense: Array = np.full(math.prod(dims), nothing, values.dtype)
        dense[indices] = values
    except (ValueError, TypeError, IndexError) as error:
        text = f"sparse tensor {name[:80]} of dims {list(dims)}: values and indices do not fit"
        raise ModelRefused(text) from error
    return numpy_helper.from_array(dense.reshape(dims), name)


def _indices(sparse: onnx.SparseTensorProto) -> Array:
    """Return the places of the values in the flat tensor; ValueError for one outside of it."""
    indices = numpy_helper.to_array(sparse.indices)
    if indices.ndim == 2:
        return np.asarray(np.ravel_multi_index(tuple(indices.T), tuple(sparse.dims)))
    if np.any(indices < 0):
        raise ValueError("an index is negative")
    return indices
