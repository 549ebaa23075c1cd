# SPDX-License-Identifier: Apache-2.0
"""A model whose products by constant matrices are quantized to INT8, for comparison.

Activations are quantized while the model runs, over the batch (DynamicQuantizeLinear); weights have
one scale, symmetric around zero; sums are scaled back to FP32. That is how ONNX Runtime's
quantize_dynamic writes a model. Sources: ONNX operators DynamicQuantizeLinear and MatMulInteger.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from nnpa_network.program import Array

_OLDEST_OPSET = 11  # of DynamicQuantizeLinear
_MAX_CODE = 127


def with_int8_products(model: bytes) -> tuple[bytes, int]:
    """Return a model with its MatMul and Gemm by constant FP32 matrices in INT8, and how many."""
    proto = onnx.ModelProto.FromString(model)
    opset = max((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), default=0)
    if opset < _OLDEST_OPSET:
        return model, 0
    graph = proto.graph
    fed = {info.name for info in graph.input}
    matrices = {
        tensor.name: tensor
        for tensor in graph.initializer
        if tensor.data_type == onnx.TensorProto.FLOAT
        and len(tensor.dims) == 2
        and tensor.name not in fed
    }
    nodes: list[onnx.NodeProto] = []
    added: dict[str, Array] = {}
    count = 0
    for node in graph.node:
        if not _is_product(node, matrices):
            nodes.append(node)
            continue
        count += 1
        nodes.extend(_quantized(node, f"int8_{count}_", matrices, added))
    del graph.node[:]
    graph.node.extend(nodes)
    used = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in used or tensor.name in fed]
    has_subgraph = any(a.HasField("g") or a.graphs for node in nodes for a in node.attribute)
    if not has_subgraph:  # a subgraph may take any of them
        del graph.initializer[:]
        graph.initializer.extend(kept)
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in added.items())
    return proto.SerializeToString(), count


def _is_product(node: onnx.NodeProto, matrices: Mapping[str, onnx.TensorProto]) -> bool:
    if node.domain not in ("", "ai.onnx") or node.op_type not in ("MatMul", "Gemm"):
        return False
    scales = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    plain = scales.get("alpha", 1.0) == 1.0 and scales.get("beta", 1.0) == 1.0
    return node.input[1] in matrices and plain and not scales.get("transA", 0)


def _quantized(
    node: onnx.NodeProto,
    prefix: str,
    matrices: Mapping[str, onnx.TensorProto],
    added: dict[str, Array],
) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a product in INT8; their constants go to `added`."""
    weights = numpy_helper.to_array(matrices[node.input[1]])
    if any(a.name == "transB" and a.i for a in node.attribute):
        weights = weights.T
    largest = float(np.abs(weights).max(initial=0.0))
    scale = np.float32(largest / _MAX_CODE if np.isfinite(largest) and largest else 1.0)
    codes = np.clip(np.rint(np.nan_to_num(weights) / scale), -_MAX_CODE, _MAX_CODE)
    added[f"{prefix}weights"] = np.ascontiguousarray(codes.astype(np.int8))
    added[f"{prefix}weight_scale"] = np.asarray(scale)
    q, point = f"{prefix}codes", f"{prefix}zero_point"
    name, step = node.name or prefix.rstrip("_"), f"{prefix}scale"
    yield helper.make_node("DynamicQuantizeLinear", [node.input[0]], [q, step, point], f"{name}/q")
    sums, real = f"{prefix}sums", f"{prefix}real"
    yield helper.make_node("MatMulInteger", [q, f"{prefix}weights", point], [sums], f"{name}/int8")
    yield helper.make_node("Cast", [sums], [real], f"{name}/cast", to=onnx.TensorProto.FLOAT)
    both = f"{prefix}both"
    yield helper.make_node("Mul", [step, f"{prefix}weight_scale"], [both], f"{name}/scale")
    bias = node.input[2] if len(node.input) > 2 else ""
    product = f"{prefix}product" if bias else node.output[0]
    yield helper.make_node("Mul", [real, both], [product], f"{name}/real")
    if bias:
        yield helper.make_node("Add", [product, bias], [node.output[0]], f"{name}/bias")
