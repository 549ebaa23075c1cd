# SPDX-License-Identifier: Apache-2.0
"""Nodes that do the same work are inferred and compiled once, and constants looked at once."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from nnpa_emulator import Guest, find_machine
from nnpa_network.building.contents import digest, limited
from nnpa_network.building.type_inference import Value, infer
from nnpa_network.importing.onnx_import import import_onnx
from nnpa_network.nodes import unnamed
from nnpa_network.program import Array, ModelRefused
from nnpa_network.running import host
from onnx import TensorProto, helper, numpy_helper

FP32 = np.dtype(np.float32)
OPSETS = {"": 17}


def values(*shapes: tuple[int, ...]) -> list[Value | None]:
    """Return values of FP32 with these shapes, named a, b, and so on."""
    return [Value("abc"[place], FP32, shape) for place, shape in enumerate(shapes)]


def kernel(op_type: str, source: str, target: str, **attributes: Any) -> host.Kernel:
    """Return the kernel of a node with one operand."""
    node = helper.make_node(op_type, [source], [target], name=f"{target}_node", **attributes)
    return host.prepare(node.SerializeToString(), OPSETS[""], (FP32,))


def test_equal_nodes_share_a_kernel() -> None:
    """Names make no difference to a kernel; attributes do."""
    assert kernel("Elu", "x", "y") is kernel("Elu", "p", "q")
    assert kernel("Elu", "x", "y", alpha=0.5) is not kernel("Elu", "x", "y")
    x = np.array([-1, 2], np.float32)
    (y,) = kernel("Elu", "p", "q", alpha=0.5)([x])
    assert np.allclose(y, [0.5 * np.expm1(-1), 2])


@pytest.mark.parametrize("op_type", ["RandomNormalLike", "RandomUniformLike", "Bernoulli"])
def test_nodes_that_draw_have_kernels_of_their_own(op_type: str) -> None:
    """Two nodes with the same seed begin the same sequence, whatever the other has drawn."""
    first, second = (kernel(op_type, "x", name, seed=1.0) for name in ("first", "second"))
    x = np.full(64, 0.5, np.float32)
    assert np.array_equal(first([x])[0], second([x])[0])


def test_operands_that_are_one_value_stay_one() -> None:
    """A node that reads a value twice is not the node that reads two values."""
    twice, two = (helper.make_node("Sub", names, ["y"]) for names in (["x", "x"], ["x", "z"]))
    assert list(unnamed(twice).input) == ["i0", "i0"]
    assert list(unnamed(two).input) == ["i0", "i1"]


def test_types_follow_operands_and_constants() -> None:
    """A node has the types of its own operands, after any other node of its operator."""
    for rows in (2, 3, 2):
        node = helper.make_node("Add", ["a", "b"], [f"sum_{rows}"])
        assert infer(node, OPSETS, values((rows, 1), (1, 4))) == [(FP32, (rows, 4))]
    for shape in ((6,), (3, 2), (6,)):
        target = Value("b", np.dtype(np.int64), (len(shape),), constant=np.array(shape))
        node = helper.make_node("Reshape", ["a", "b"], ["c"])
        assert infer(node, OPSETS, [*values((2, 3)), target]) == [(FP32, shape)]


def test_refusals_name_the_node() -> None:
    """A refusal says the name of the node that is refused, not of an equal one before."""
    for name in ("first", "second"):
        node = helper.make_node("MatMul", ["a", "b"], [f"{name}_product"], name=name)
        with pytest.raises(ModelRefused) as refused:
            infer(node, OPSETS, values((2, 3), (4, 5)))
        assert refused.value.node == name
        pool = helper.make_node("MaxPool", ["a"], [f"{name}_pool"], name=name, kernel_shape=[9, 9])
        with pytest.raises(ModelRefused, match=f"{name}_pool"):
            infer(pool, OPSETS, values((1, 1, 2, 2)))


CONSTANTS: dict[str, Callable[[], Array]] = {
    "rows": lambda: np.arange(8, dtype=np.float32).reshape(8, 1),
    "columns": lambda: np.arange(8, dtype=np.float32).reshape(1, 8),
    "equal": lambda: np.full((1, 1), 3, np.float32),
    "twice": lambda: np.array([[1, 2, 1, 2, 1, 2, 1, 2]], np.float32),
}


@pytest.mark.parametrize("one", CONSTANTS)
@pytest.mark.parametrize("other", CONSTANTS)
def test_digests_tell_broadcasts_apart(one: str, other: str) -> None:
    """Two broadcasts have one digest where their elements are equal, and only there."""
    first, second = (np.broadcast_to(CONSTANTS[name](), (8, 8)) for name in (one, other))
    assert (digest(first) == digest(second)) == np.array_equal(first, second)


def test_digests_follow_elements() -> None:
    """Shape and memory make no difference to a digest; elements, their order and type do."""
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    turned = array.transpose(2, 0, 1)
    assert digest(array) == digest(array.reshape(6, 4)) == digest(array.copy())
    assert digest(turned) == digest(np.ascontiguousarray(turned)) != digest(array)
    zeros = np.zeros((4, 4), np.float32)
    assert digest(zeros) == digest(np.broadcast_to(np.float32(0), (4, 4))) != digest(zeros[:2])
    assert digest(zeros) != digest(np.broadcast_to(np.float32(-0.0), (4, 4)))


def test_a_new_array_in_old_memory_is_looked_at_again() -> None:
    """What is known of an array ends with its memory."""
    digests = {digest(np.full(1 << 16, number, np.float32)) for number in range(20)}
    assert len(digests) == 20


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_broadcasts_are_limited(dtype: type) -> None:
    """A broadcast of infinities ends at the greatest number, others stay the same array."""
    within: Array = np.broadcast_to(np.array([[1], [np.nan]], dtype), (2, 8))
    assert limited(within) is within
    beyond = limited(np.broadcast_to(np.array([[1], [np.inf]], dtype), (2, 8)))
    assert beyond.shape == (2, 8)
    assert np.array_equal(beyond[0], np.ones(8))
    assert np.isfinite(beyond).all()


@pytest.mark.parametrize(
    "array",
    [
        np.float32(1.5),
        np.array([], np.int64),
        np.array([True, False]),
        np.arange(4, dtype=np.uint8),
    ],
)
def test_constants_are_what_onnx_says(array: Array) -> None:
    """The array of a Constant reaches the outputs with type, shape and elements."""
    held = np.asarray(array)
    node = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(held))
    out = helper.make_node("Identity", ["c"], ["y"])
    kind = helper.np_dtype_to_tensor_dtype(held.dtype)
    y = helper.make_tensor_value_info("y", kind, held.shape)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, [1])
    graph = helper.make_graph([node, out, helper.make_node("Neg", ["x"], ["z"])], "g", [x], [y, z])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    hosted = import_onnx(model.SerializeToString(), Guest(find_machine("telum2")))
    result = hosted.run({"x": np.ones(1, np.float32)}).outputs["y"]
    assert (result.dtype, result.shape) == (held.dtype, held.shape)
    assert np.array_equal(result, held)
