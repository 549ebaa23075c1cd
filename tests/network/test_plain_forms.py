# SPDX-License-Identifier: Apache-2.0
"""Sparse tensors, local functions and layers of layout 1 are hosted in forms that mean the same."""

from typing import Any

import numpy as np
import onnx
import pytest
from nnpa_network.program import ModelRefused
from onnx import ModelProto, SparseTensorProto, TensorProto, helper, numpy_helper, parser

from tests.network.hosting import Array, load, normal, reference

VALUES: Array = np.array([1.5, -2.0, 0.25], np.float32)
PLACES = {"flat": [0, 4, 5], "by axis": [[0, 0], [1, 1], [1, 2]]}
X = {"x": normal(2, 3)}


def sparse(places: object, dims: tuple[int, ...] = (2, 3)) -> SparseTensorProto:
    """Return a sparse tensor of three values."""
    values = numpy_helper.from_array(VALUES, "w")
    indices = numpy_helper.from_array(np.array(places, np.int64))
    return helper.make_sparse_tensor(values, indices, dims)


def adding(nodes: list[onnx.NodeProto], weights: list[SparseTensorProto]) -> ModelProto:
    """Return a model that adds a sparse tensor to its input."""
    graph = helper.make_graph(
        [*nodes, helper.make_node("Add", ["x", "w"], ["y"], "sum")],
        "sparse",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 3))],
        sparse_initializer=weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("holder", ["initializer", "constant"])
def test_sparse_tensors(places: str, holder: str) -> None:
    """Values at places of the flat tensor, or at one index per axis; all others are 0."""
    tensor = sparse(PLACES[places])
    constant = helper.make_node("Constant", [], ["w"], sparse_value=tensor)
    proto = adding([], [tensor]) if holder == "initializer" else adding([constant], [])
    dense = np.array([[1.5, 0, 0], [0, -2.0, 0.25]], np.float32)
    got = load(proto.SerializeToString()).run(X).outputs["y"]
    np.testing.assert_allclose(got, X["x"] + dense, rtol=0.01, atol=0.01)
    (expected,) = reference(proto.SerializeToString(), X)
    np.testing.assert_array_equal(expected, X["x"] + dense)


@pytest.mark.parametrize(
    ("places", "dims", "reason"),
    [
        ([0, 4, 6], (2, 3), r"sparse tensor w of dims \[2, 3\]: values and indices do not fit"),
        ([0, -1, 5], (2, 3), "values and indices do not fit"),
        ([[0, 0], [1, 1], [1, 3]], (2, 3), "values and indices do not fit"),
        ([0, 1], (2, 3), "values and indices do not fit"),
        ([0, 1, 2], (1 << 20, 1 << 20), "initializers take more than"),
        ([0, 1, 2], (-2, 3), r"tensor w has dims \[-2, 3\], must be 0 or more"),
    ],
)
def test_sparse_tensors_that_are_none(places: object, dims: tuple[int, ...], reason: str) -> None:
    """Places outside of the tensor, too few of them, and dims without bound are refused."""
    with pytest.raises(ModelRefused, match=reason):
        load(adding([], [sparse(places, dims)]).SerializeToString())


HEADER = '<ir_version: 9, opset_import: ["" : 17, "my" : 1]> g (float[2,3] x, bool k) => '
SCALE = (
    '<opset_import: ["" : 17], domain: "my"> scale <alpha: float = 2.5> (a) => (b)'
    " { c = Constant <value_float: float = @alpha> () b = Mul(a, c) } "
)
CALLS = {
    "a default": HEADER + "(float[2,3] y) { y = my.scale (x) } " + SCALE,
    "a value": HEADER + "(float[2,3] y) { y = my.scale <alpha = 1.5> (x) } " + SCALE,
    "a default of a default": (
        HEADER + "(float[2,3] y) { y = my.outer (x) } " + SCALE + '<opset_import: ["" : 17, "my"'
        ' : 1], domain: "my"> outer <beta: float = 3.5> (a) => (b)'
        " { b = my.scale <alpha: float = @beta> (a) }"
    ),
    "a default inside of a branch": (
        HEADER + '(float[2,3] y) { y = my.maybe (x, k) } <opset_import: ["" : 17], domain: "my">'
        " maybe <alpha: float = 2.5> (a, k) => (b) { b = If (k) <then_branch = t () => (float[2,3]"
        " q) { c = Constant <value_float: float = @alpha> () q = Mul(a, c) }, else_branch = f ()"
        " => (float[2,3] r) { r = Identity(a) }> }"
    ),
    "a list": (
        HEADER + '(float[2,2,3] y) { y = my.wide (x) } <opset_import: ["" : 17], domain: "my">'
        " wide <sizes: ints = [2,1,1]> (a) => (b)"
        " { c = Constant <value_ints: ints = @sizes> () b = Expand(a, c) }"
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_attributes_of_local_functions(call: str) -> None:
    """A call that leaves an attribute out has the function's default, at any depth."""
    model = parser.parse_model(CALLS[call]).SerializeToString()
    feeds: dict[str, Array] = X | {"k": np.array(True)}
    (expected,) = reference(model, feeds)
    got = load(model).run(feeds).outputs["y"]
    np.testing.assert_allclose(got, expected, rtol=0.01, atol=0.01)


GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}


def layer(op_type: str, direction: str, layout: int, arrays: dict[str, Array]) -> bytes:
    """Return a model of a recurrent layer with initial states, and all of its outputs."""
    outputs = ["y", "h", "c"] if op_type == "LSTM" else ["y", "h"]
    inputs = ["x", "w", "r", "", "", *(["h0", "c0"] if op_type == "LSTM" else ["h0"])]
    options: dict[str, Any] = {"direction": direction, "layout": layout, "hidden_size": 4}
    if op_type == "GRU":
        options["linear_before_reset"] = 1
    node = helper.make_node(op_type, inputs, outputs, "layer", **options)
    graph = helper.make_graph(
        [node],
        "layer",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, arrays[name].shape)
            for name in inputs
            if name
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
    )
    imports = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("op_type", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_layers_with_the_batch_first(op_type: str, direction: str) -> None:
    """A layer of layout 1 runs as one of layout 0 over turned operands, outputs turned back."""
    sides, gates = 1 + (direction == "bidirectional"), GATES[op_type]
    first: dict[str, Array] = {
        "x": normal(5, 2, 3),
        "w": normal(sides, 4 * gates, 3, seed=1) / 3,
        "r": normal(sides, 4 * gates, 4, seed=2) / 3,
        "h0": normal(sides, 2, 4, seed=3),
        "c0": normal(sides, 2, 4, seed=4),
    }
    names = [name for name in first if name != "c0" or op_type == "LSTM"]
    turned = {
        name: first[name] if name in ("w", "r") else first[name].transpose(1, 0, 2)
        for name in names
    }
    expected = reference(layer(op_type, direction, 0, first), {name: first[name] for name in names})
    hosted = load(layer(op_type, direction, 1, turned))
    results = list(hosted.run(turned).outputs.values())
    for got, array in zip(results, expected, strict=True):
        order = (2, 0, 1, 3) if array.ndim == 4 else (1, 0, 2)
        assert got.shape == array.transpose(order).shape
        np.testing.assert_allclose(got, array.transpose(order), rtol=0.05, atol=0.01)
    layers = [node for node in hosted.specialise().nodes if node.op_type == op_type]
    assert [node.device for node in layers] == ["host" if op_type == "RNN" else "accelerator"]
