# SPDX-License-Identifier: Apache-2.0
"""Random graphs over the operators of `DRAWS`, each from its number alone.

ONNX Runtime runs each node as it is drawn, which tells what the next ones may read; a node that it
refuses is mostly drawn again, and else left in, as the last one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto, NodeProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    NotImplemented,  # noqa: A004 - ONNX Runtime's name
    RuntimeException,
)

from tests.network import random_images as random_images
from tests.network import random_nodes as random_nodes
from tests.network.hosting import Array
from tests.network.random_sketch import DRAWS, ML, Sketch

OPSETS = (7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22)
_MUTATIONS, _KEPT_REFUSALS, _FREE = 0.08, 0.1, 0.3
_MOST_ELEMENTS = 100_000
_OF_MANY = ("Concat", "Max", "Mean", "Min", "Sum")  # of which ONNX Runtime needs every operand
REJECTIONS = (
    Fail, InvalidArgument, InvalidGraph, NotImplemented, RuntimeException, RuntimeError,
    ValueError,
)  # fmt: skip
"""What ONNX Runtime raises for a model that it does not run."""


@dataclass(frozen=True, slots=True)
class RandomGraph:
    """A model, its inputs, and which of its values are its outputs."""

    number: int
    proto: ModelProto
    feeds: Mapping[str, Array]

    @property
    def data(self) -> bytes:
        """The model's file."""
        return bytes(self.proto.SerializeToString())

    @property
    def opset(self) -> int:
        """The version of ONNX's own domain."""
        return int(self.proto.opset_import[0].version)

    @property
    def operators(self) -> list[str]:
        """The operators of its nodes."""
        return [node.op_type for node in self.proto.graph.node]

    def telling_all(self) -> ModelProto:
        """Return the model with every value as an output."""
        proto = ModelProto()
        proto.CopyFrom(self.proto)
        present = {info.name for info in proto.graph.output}
        for node in proto.graph.node:
            names = [name for name in node.output if name and name not in present]
            proto.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
        return proto


def random_graph(number: int, names: Sequence[str] = ()) -> RandomGraph:
    """Return the graph of a number, over all operators or some of them."""
    rng = np.random.default_rng(number)
    dtype = (*[np.float32] * 8, np.float16, np.float64)[int(rng.integers(10))]
    opsets = [opset for opset in OPSETS if all(_has(opset, name) for name in names)]
    sketch = Sketch(rng, int(rng.choice(opsets)), dtype)
    refused = False
    for _ in range(sketch.number(1, 5)):
        refused = not _extend(sketch, names or sorted(DRAWS))
        if refused:
            break
    proto = _model(sketch)
    feeds = {name: sketch.inputs[name] for name in (info.name for info in proto.graph.input)}
    return RandomGraph(number, proto, feeds)


def _extend(sketch: Sketch, names: Sequence[str]) -> bool:
    """Add a node; return whether ONNX Runtime runs it."""
    while True:
        before = dict(sketch.values)
        node = DRAWS[sketch.pick(*names)](sketch)
        if sketch.flag(_MUTATIONS):
            _mutate(sketch, node)
        results = run_node(sketch, node)
        if results is None and not (
            sketch.flag(_KEPT_REFUSALS) and _has(sketch.opset, node.op_type)
        ):
            sketch.values = before
            continue
        sketch.nodes.append(node)
        names_of_outputs = [name for name in node.output if name]
        for name, array in zip(names_of_outputs, results or (), strict=False):
            if np.asarray(array).size <= _MOST_ELEMENTS:
                sketch.values[name] = np.asarray(array)
        return results is not None


def _has(opset: int, op_type: str) -> bool:
    """Return whether an opset has an operator: other ones are refused for that alone."""
    return op_type.startswith("Linear") or onnx.defs.has(op_type, opset, "")


def _mutate(sketch: Sketch, node: NodeProto) -> None:
    """Change an attribute, or leave one or an input out."""
    kind = sketch.number(0, 2)
    if node.attribute and kind:
        attribute = sketch.pick(*node.attribute)
        if kind == 1:
            node.attribute.remove(attribute)
        elif attribute.type == onnx.AttributeProto.INT:
            attribute.i = sketch.pick(-7, -1, 0, 1, 2, 9, 2**33)
        elif attribute.type == onnx.AttributeProto.INTS:
            changed = list(attribute.ints) or [0]
            changed[sketch.number(0, len(changed) - 1)] = sketch.pick(-3, -1, 0, 1, 5, 70)
            attribute.ints[:] = changed[: sketch.pick(1, len(changed), len(changed))]
        elif attribute.type == onnx.AttributeProto.FLOAT:
            attribute.f = sketch.pick(-1.5, 0.0, 1e-6, 3.0, float("inf"), float("nan"))
        elif attribute.type == onnx.AttributeProto.STRING:
            attribute.s = sketch.pick(b"", b"same_upper", b"NOTSET", b"tanh", b"reverse", b"\xff")
    elif len(node.input) > 1:
        absent = [] if node.op_type in _OF_MANY else [""]
        node.input[sketch.number(1, len(node.input) - 1)] = sketch.pick(*absent, node.input[0])
        while not node.input[-1]:
            node.input.pop()


def run_node(sketch: Sketch, node: NodeProto) -> list[Array] | None:
    """Return what ONNX Runtime makes of a node; None where it refuses it."""
    try:
        return run_one(
            sketch.opset, node, {name: sketch.values[name] for name in node.input if name}
        )
    except REJECTIONS:
        return None


def run_one(opset: int, node: NodeProto, arrays: Mapping[str, Array]) -> list[Array]:
    """Run a node alone with ONNX Runtime."""
    infos = [_info(name, array) for name, array in arrays.items()]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    model = _proto(opset, [node], infos, outputs, [])
    return run_model(model.SerializeToString(), arrays)


def run_model(model: bytes, feeds: Mapping[str, Array]) -> list[Array]:
    """Run a model with ONNX Runtime, node by node as it stands: nothing is optimised."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, dict(feeds))]


def _info(name: str, array: Array, free: bool = False) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    shape: list[int | None] = list(array.shape)
    if free and shape:
        shape[0] = None
    return helper.make_tensor_value_info(name, kind, shape)


def _model(sketch: Sketch) -> ModelProto:
    """Return the model of a sketch; its outputs are what no node reads."""
    read = {name for node in sketch.nodes for name in node.input}
    free = sketch.flag(_FREE)
    infos = [_info(name, array, free) for name, array in sketch.inputs.items() if name in read]
    weights = [
        numpy_helper.from_array(array, name)
        for name, array in sketch.constants.items()
        if name in read
    ]
    outputs = [
        helper.make_empty_tensor_value_info(name)
        for node in sketch.nodes
        for name in node.output
        if name and name not in read
    ]
    return _proto(sketch.opset, sketch.nodes, infos, outputs, weights)


def _proto(
    opset: int,
    nodes: Sequence[NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: Sequence[onnx.TensorProto],
) -> ModelProto:
    graph = helper.make_graph(list(nodes), "random", list(inputs), list(outputs), list(weights))
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(ML, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)
