# SPDX-License-Identifier: Apache-2.0
"""Matrix products beside ONNX Runtime: stacks, broadcasts, turned operands, biases, integers."""

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from nnpa_emulator.dlfloat import MAX_VALUE
from onnx import numpy_helper

from tests.network.hosting import Array, agree, load, nodes, normal, reference, text_model


@pytest.mark.parametrize(
    ("left", "right", "function"),
    [
        ((3, 4), (4, 5), "matmul_op"),
        ((2, 3, 4), (2, 4, 5), "matmul_op"),
        ((2, 3, 4), (4, 5), "matmul_bcast_op"),
        ((3, 4), (2, 4, 5), "matmul_bcast_op"),
        ((2, 3, 4, 6), (2, 3, 6, 5), "matmul_op"),
        ((2, 1, 4, 6), (1, 3, 6, 5), "matmul_op"),
        ((2, 1, 1, 2, 4, 6), (1, 3, 1, 2, 6, 5), "matmul_op"),
        ((4,), (4, 5), "matmul_op"),
        ((3, 4), (4,), "matmul_op"),
        ((2, 3, 4), (4,), "matmul_bcast_op"),
        ((4,), (4,), "matmul_op"),
        ((65, 129), (129, 64), "matmul_op"),
    ],
)
def test_matmul(left: tuple[int, ...], right: tuple[int, ...], function: str) -> None:
    """MatMul of any ranks is one product, broadcast by the machine where it can be."""
    out = np.matmul(np.zeros(left), np.zeros(right)).shape
    dims = (",".join(map(str, dimensions)) for dimensions in (left, right, out))
    a, b, c = (f"[{sizes}]" if sizes else "" for sizes in dims)
    body = f"g (float{a} a, float{b} b) => (float{c} y) {{ y = MatMul(a, b) }}"
    feeds = {"a": normal(*left) / left[-1] ** 0.5, "b": normal(*right, seed=1)}
    result, placed = agree(body, feeds)
    assert placed[0].functions == (function,)
    assert result.calls[function] == 1


def test_bcast1_needs_telum2() -> None:
    """One matrix on the left of a stack is BCAST1 on Telum II and expanded on Telum I."""
    body = "g (float[3,4] a, float[2,4,5] b) => (float[2,3,5] y) { y = MatMul(a, b) }"
    feeds = {"a": normal(3, 4), "b": normal(2, 4, 5, seed=1)}
    assert agree(body, feeds, "telum2")[1][0].functions == ("matmul_bcast_op",)
    assert agree(body, feeds, "telum1")[1][0].functions == ("matmul_op",)


@pytest.mark.parametrize(
    ("dtype", "most", "expected"),
    [("float16", 11, 11), ("bfloat16", 11, 11), ("bfloat16", 1e10, MAX_VALUE)],
)
def test_weights_of_two_bytes(dtype: str, most: float, expected: float) -> None:
    """Weights of two bytes are limited to DLFLOAT16's range, and stay as wide as they are."""
    floats = np.dtype(getattr(ml_dtypes, dtype, dtype))
    weights = np.append(np.arange(11), most)[:, None].astype(floats)
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        g ({dtype}[1, 12] x) => ({dtype}[1, 1] y) {{ y = MatMul(x, w) }}"""
    )
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    feeds = {"x": np.eye(12)[-1:].astype(floats)}
    result = load(model.SerializeToString()).run(feeds)
    assert result.calls["matmul_op"] == 1
    assert result.outputs["y"].dtype == floats
    assert abs(float(result.outputs["y"][0, 0]) / expected - 1) <= 2**-8


def test_turned_matrix() -> None:
    """A transposed tensor is turned by the product on Telum II, by the host on Telum I."""
    body = (
        "g (float[2,3,4] a, float[2,5,4] b) => (float[2,3,5] y)"
        " { e = Exp(b) t = Transpose <perm = [0,2,1]> (e) y = MatMul(a, t) }"
    )
    feeds = {"a": normal(2, 3, 4), "b": normal(2, 5, 4, seed=1)}
    result, placed = agree(body, feeds, "telum2")
    assert placed[2].functions == ("matmul_transpose_op",)
    assert placed[1].device == "folded"
    assert result.calls["transform_origtensor"] == 1
    _, placed = agree(body, feeds, "telum1")
    assert placed[2].functions == ("matmul_op",)
    assert placed[1].device == "host"


def test_bias_is_fused() -> None:
    """An Add of a constant vector behind a product is the product's bias."""
    body = (
        "g (float[2,3,4] a) => (float[2,3,5] y) <float[4,5] w = {"
        + ",".join(str(n / 10) for n in range(20))
        + "}, float[5] c = {1,2,3,4,5}> { p = MatMul(a, w) y = Add(c, p) }"
    )
    result, placed = agree(body, {"a": normal(2, 3, 4)})
    assert "add" not in result.calls
    assert placed[1].reason.startswith("part of")


def test_bias_read_twice_is_not_fused() -> None:
    """A product with a second reader keeps its own result."""
    body = (
        "g (float[3,4] a) => (float[3,2] y, float[3,2] p) <float[4,2] w = {1,2,3,4,5,6,7,8},"
        " float[2] c = {1,2}> { p = MatMul(a, w) y = Add(p, c) }"
    )
    result, _ = agree(body, {"a": normal(3, 4)})
    assert result.calls["add"] == 1


def test_integer_product_is_exact_on_the_host() -> None:
    """MatMulInteger stays on the host, exactly, unless offload_integer moves and rounds it."""
    body = "g (uint8[2,300] a, uint8[300,2] b) => (int32[2,2] y) { y = MatMulInteger(a, b) }"
    rng = np.random.default_rng(3)
    feeds: dict[str, Array] = {
        "a": rng.integers(0, 256, (2, 300)).astype(np.uint8),
        "b": rng.integers(0, 256, (300, 2)).astype(np.uint8),
    }
    model = text_model(body)
    expected = reference(model, feeds)[0]
    exact = load(model)
    assert np.array_equal(exact.run(feeds).outputs["y"], expected)
    assert "exact" in nodes(exact, feeds)[0].reason
    rounded = load(model, offload_integer=True).run(feeds)
    assert rounded.calls["quantized_matmul_op"] == 4
    np.testing.assert_allclose(rounded.outputs["y"], expected, rtol=2**-8)


@pytest.mark.parametrize("values", [[0, 0, 0], [-1, 0.5, 2], [3, 4, 5], [-3, -4, -0.5]])
def test_dynamic_range(values: list[float]) -> None:
    """DynamicQuantizeLinear by getrange gives ONNX's bytes within one, also for zeros alone."""
    body = "g (float[3] x) => (uint8[3] y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear(x) }"
    model, feeds = text_model(body), {"x": np.array(values, np.float32)}
    result = load(model, offload_integer=True).run(feeds)
    assert result.calls["getrange_ztensor"] == 1
    expected = reference(model, feeds)
    bytes_of = [buffer.astype(int) for buffer in (result.outputs["y"], expected[0])]
    assert np.abs(bytes_of[0] - bytes_of[1]).max() <= 1
    np.testing.assert_allclose(result.outputs["s"], expected[1], rtol=2**-8)
