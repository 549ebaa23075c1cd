# SPDX-License-Identifier: Apache-2.0
"""Sparse tensors and local functions are hosted in forms that mean the same."""

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
        ([0, 1, 2], (-2, 3), "tensor w has a negative dim"),
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
