# SPDX-License-Identifier: Apache-2.0
"""INT4, UINT4, FLOAT8 and BFLOAT16: as weights, between nodes, and as outputs."""

from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from nnpa_network.program import ModelRefused
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tests.network.hosting import Array, load, reference
from tests.server.conftest import CONFIG, Running
from tests.server.network.service_client import Client

FOUR_BITS = {"INT4": ml_dtypes.int4, "UINT4": ml_dtypes.uint4}
EIGHT_BITS = ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ")
X: Array = np.array([[1, -2.5, 3.25, 700, -0.0], [6e4, np.inf, -1e-3, 0.3, np.nan]], np.float32)
ALL = (*FOUR_BITS, *EIGHT_BITS, "BFLOAT16")


def _casts_four_bits() -> bool:
    """Return True if this ONNX Runtime casts INT4: 1.21 does not."""
    node = helper.make_node("Cast", ["w"], ["y"], to=TensorProto.FLOAT)
    try:
        reference(narrow_model([node], {"w": elements("INT4", 3)}).SerializeToString(), {"x": X})
    except Exception:  # whatever ONNX Runtime raises for a kernel that it lacks
        return False
    return True


@pytest.fixture(autouse=True)
def four_bits(request: pytest.FixtureRequest) -> None:
    """Skip what takes elements of four bits where ONNX Runtime, the reference, has none."""
    kind = getattr(request.node, "callspec", None) and request.node.callspec.params.get("kind")
    if kind in FOUR_BITS and not _casts_four_bits():
        pytest.skip("this ONNX Runtime has no Cast from four bits")


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """A server for this file."""
    server = Running(CONFIG)
    yield server
    server.stop()


@pytest.fixture
def client(running: Running) -> Iterator[Client]:
    """A session of its own."""
    connected = Client(running.channel)
    yield connected
    connected.close()


def narrow_model(
    nodes: Sequence[NodeProto], weights: dict[str, Array], output: int = TensorProto.FLOAT
) -> ModelProto:
    """Return a model from x (2, 5) to y of any type and shape."""
    graph = helper.make_graph(
        list(nodes),
        "narrow",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", output, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def elements(kind: str, *shape: int) -> Array:
    """Return an array of a type whose elements are as different as they can be."""
    dtype: Any = helper.tensor_dtype_to_np_dtype(getattr(TensorProto, kind))
    least = -8 if kind == "INT4" else 0
    numbers = np.random.default_rng(3).integers(least, least + 16, shape)
    return numbers.astype(dtype)


def require_equal(model: ModelProto, client: Client) -> None:
    """Assert that a model is hosted with ONNX Runtime's bits, here and by a server."""
    data = model.SerializeToString()
    (expected,) = reference(data, {"x": X})
    got = load(data).run({"x": X}).outputs["y"]
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)
    answer = client.infer(client.ready(model), x=X)
    assert answer.outputs[0].data == got.tobytes()


@pytest.mark.parametrize("kind", [*FOUR_BITS, *EIGHT_BITS])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_weights_through_dequantize_linear(kind: str, axis: int | None, client: Client) -> None:
    """Per tensor and per channel, with odd counts, and zero points where the type has some."""
    weights = elements(kind, 5, 3)
    count = 1 if axis is None else weights.shape[axis]
    scales = np.linspace(0.1, 0.7, count, dtype=np.float32)
    arrays = {"w": weights, "s": scales.reshape(() if axis is None else (count,))}
    if kind in FOUR_BITS:
        arrays["z"] = (np.arange(count) % 7).astype(weights.dtype).reshape(arrays["s"].shape)
    place: dict[str, Any] = {} if axis is None else {"axis": axis}
    node = helper.make_node("DequantizeLinear", list(arrays), ["y"], "weights", **place)
    require_equal(narrow_model([node], arrays), client)


@pytest.mark.parametrize("kind", FOUR_BITS)
@pytest.mark.parametrize("size", [2, 3])
def test_weights_in_blocks(kind: str, size: int, client: Client) -> None:
    """A scale for each block along an axis, of which the last one may be shorter."""
    scales = np.linspace(0.1, 0.9, -(-5 // size) * 3, dtype=np.float32).reshape(-1, 3)
    node = helper.make_node("DequantizeLinear", ["w", "s"], ["y"], axis=0, block_size=size)
    require_equal(narrow_model([node], {"w": elements(kind, 5, 3), "s": scales}), client)


@pytest.mark.parametrize("kind", ALL)
def test_weights_through_cast(kind: str, client: Client) -> None:
    """A Cast of a constant to FP32."""
    node = helper.make_node("Cast", ["w"], ["y"], to=TensorProto.FLOAT)
    require_equal(narrow_model([node], {"w": elements(kind, 3, 3)}), client)


@pytest.mark.parametrize("kind", [*EIGHT_BITS, "BFLOAT16"])
def test_between_nodes(kind: str, client: Client) -> None:
    """A node reads its predecessor's values of such a type, infinities and NaN too."""
    nodes = [
        helper.make_node("Cast", ["x"], ["q"], to=getattr(TensorProto, kind)),
        helper.make_node("Reshape", ["q", "size"], ["r"]),
        helper.make_node("Cast", ["r"], ["y"], to=TensorProto.FLOAT),
    ]
    require_equal(narrow_model(nodes, {"size": np.array([5, 2])}), client)


@pytest.mark.parametrize("kind", FOUR_BITS)
def test_four_bits_between_nodes(kind: str, client: Client) -> None:
    """Numbers from 0 to 7 through a Cast and back; the others have no place among four bits."""
    nodes = [
        helper.make_node("Where", ["few", "x", "seven"], ["f"]),
        helper.make_node("Cast", ["f"], ["q"], to=getattr(TensorProto, kind)),
        helper.make_node("Cast", ["q"], ["y"], to=TensorProto.FLOAT),
    ]
    arrays = {"few": (X >= 0) & (X < 8), "seven": np.array(7, np.float32)}
    require_equal(narrow_model(nodes, arrays), client)


@pytest.mark.parametrize("kind", [*FOUR_BITS, *EIGHT_BITS])
def test_quantized_and_dequantized(kind: str, client: Client) -> None:
    """QuantizeLinear and DequantizeLinear around values that only a run knows."""
    dtype: Any = helper.tensor_dtype_to_np_dtype(getattr(TensorProto, kind))
    arrays = {"s": np.array(0.3, np.float32), "z": np.array(0).astype(dtype)}
    arrays["most"] = np.array(50, np.float32)
    nodes = [
        helper.make_node("Where", ["odd", "most", "x"], ["f"]),
        helper.make_node("QuantizeLinear", ["f", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    require_equal(narrow_model(nodes, arrays | {"odd": ~np.isfinite(X)}), client)


def test_an_output_of_bfloat16(client: Client) -> None:
    """A Cast to BFLOAT16 that is an output has the bits that a Cast back to FP32 shows."""
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.BFLOAT16)
    model = narrow_model([node], {}, TensorProto.BFLOAT16)
    got = load(model.SerializeToString()).run({"x": X}).outputs["y"]
    assert got.dtype == ml_dtypes.bfloat16
    nodes = [node, helper.make_node("Cast", ["y"], ["z"], to=TensorProto.FLOAT)]
    nodes[0].output[0], nodes[1].input[0], nodes[1].output[0] = "b", "b", "y"
    (expected,) = reference(narrow_model(nodes, {}).SerializeToString(), {"x": X})
    np.testing.assert_array_equal(got.astype(np.float32), expected)
    answer = client.infer(client.ready(model), x=X)
    assert answer.outputs[0].data == got.tobytes()


@pytest.mark.parametrize("kind", [*FOUR_BITS, *EIGHT_BITS])
def test_outputs_that_no_client_takes(kind: str) -> None:
    """An output of a type that no answer has is refused by its name, with what helps."""
    node = helper.make_node("Cast", ["x"], ["y"], to=getattr(TensorProto, kind))
    model = narrow_model([node], {}, getattr(TensorProto, kind))
    with pytest.raises(ModelRefused, match=rf"output y is of {kind.lower()[:4]}.*Cast"):
        load(model.SerializeToString())
