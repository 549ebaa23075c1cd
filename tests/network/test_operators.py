# SPDX-License-Identifier: Apache-2.0
"""Operator rules beyond the public node cases, beside ONNX Runtime, on the device they claim."""

from typing import Any

import numpy as np
import onnx
import pytest
from nnpa_emulator import MACHINES
from nnpa_network.program import AcceleratorStep, HostStep, ModelRefused
from nnpa_network.running import host

from tests.network.hosting import Array, agree, load, nodes, normal, reference, text_model

MOVES = ("transform_origtensor", "transform_ztensor_with_saturation", "reshape_ztensor")


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("outputs", ["y", "y, h", ", h"])
def test_gru(direction: str, outputs: str) -> None:
    """GRU with linear_before_reset runs on the accelerator, whichever outputs are read."""
    d, steps, batch, width, size = 1 + (direction == "bidirectional"), 5, 3, 7, 10
    results = {
        "y": f"float[{steps},{d},{batch},{size}] y",
        "h": f"float[{d},{batch},{size}] h",
    }
    named = [results[name] for name in ("y", "h") if name in outputs]
    body = (
        f"g (float[{steps},{batch},{width}] x, float[{d},{3 * size},{width}] w,"
        f" float[{d},{3 * size},{size}] r, float[{d},{6 * size}] b, float[{d},{batch},{size}] h0)"
        f" => ({', '.join(named)}) {{ {outputs} = GRU <hidden_size = {size},"
        f' linear_before_reset = 1, direction = "{direction}"> (x, w, r, b, , h0) }}'
    )
    feeds: dict[str, Array] = {
        "x": normal(steps, batch, width),
        "w": normal(d, 3 * size, width, seed=1) / 3,
        "r": normal(d, 3 * size, size, seed=2) / 3,
        "b": normal(d, 6 * size, seed=3) / 3,
        "h0": normal(d, batch, size, seed=4),
    }
    result, placed = agree(body, feeds)
    assert placed[0].functions == ("gru",)
    assert result.calls["gru"] == 1


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("outputs", ["y", "y, h, c", ", h, c", ", , c"])
def test_lstm(direction: str, outputs: str) -> None:
    """LSTM reorders gates and states of both directions, whichever outputs are read."""
    d, steps, batch, width, size = 1 + (direction == "bidirectional"), 4, 2, 6, 70
    results = {
        "y": f"float[{steps},{d},{batch},{size}] y",
        "h": f"float[{d},{batch},{size}] h",
        "c": f"float[{d},{batch},{size}] c",
    }
    named = [results[name] for name in ("y", "h", "c") if name in outputs]
    body = (
        f"g (float[{steps},{batch},{width}] x, float[{d},{4 * size},{width}] w,"
        f" float[{d},{4 * size},{size}] r, float[{d},{8 * size}] b, float[{d},{batch},{size}] h0,"
        f" float[{d},{batch},{size}] c0) => ({', '.join(named)})"
        f" {{ {outputs} = LSTM <hidden_size = {size}, direction = "
        f'"{direction}"> (x, w, r, b, , h0, c0) }}'
    )
    feeds: dict[str, Array] = {
        "x": normal(steps, batch, width),
        "w": normal(d, 4 * size, width, seed=1) / 3,
        "r": normal(d, 4 * size, size, seed=2) / 9,
        "b": normal(d, 8 * size, seed=3) / 3,
        "h0": normal(d, batch, size, seed=4),
        "c0": normal(d, batch, size, seed=5),
    }
    result, placed = agree(body, feeds, machine="telum1")
    assert placed[0].functions == ("lstm",)
    assert result.calls["lstm"] == 1


def test_chain_stays_on_the_accelerator() -> None:
    """Neighbours on the accelerator hand over sticks: one transform in, one out."""
    body = (
        "g (float[2,3,16,16] x) => (float[2,8] y) <float[8,3,3,3] w = {"
        + ",".join(str((n % 13 - 6) / 20) for n in range(216))
        + "}> { c = Conv <pads = [1,1,1,1]> (x, w) r = Relu(c)"
        " m = MaxPool <kernel_shape = [2,2], strides = [2,2]> (r) s = Sigmoid(m)"
        " g1 = GlobalAveragePool(s) y = Flatten(g1) }"
    )
    feeds = {"x": normal(2, 3, 16, 16)}
    result, placed = agree(body, feeds)
    moves = {name: count for name, count in result.calls.items() if name in MOVES}
    assert moves == {"transform_ztensor_with_saturation": 1, "transform_origtensor": 1}
    assert "relu" not in result.calls
    assert [node.device for node in placed] == ["accelerator"] * 5 + ["folded"]


def test_nhwc_model_needs_no_transposition() -> None:
    """A model that transposes to NCHW and back around a pooling moves nothing on the host."""
    body = (
        "g (float[2,8,8,3] x) => (float[2,4,4,3] y) { t = Transpose <perm = [0,3,1,2]> (x)"
        " m = MaxPool <kernel_shape = [2,2], strides = [2,2]> (t)"
        " e = Tanh(m) u = Transpose <perm = [0,2,3,1]> (e) y = Sigmoid(u) }"
    )
    _, placed = agree(body, {"x": normal(2, 8, 8, 3)})
    devices = [node.device for node in placed]
    assert devices == ["folded", "accelerator", "accelerator", "folded", "accelerator"]


def test_nhwc_flattened() -> None:
    """Channels-last elements that a model flattens are taken in the model's order."""
    body = (
        "g (float[2,3,4,4] x, float[48,5] w) => (float[2,5] y, float[2,48] f) { m = Tanh(x)"
        " p = MaxPool <kernel_shape = [1,1]> (m) t = Transpose <perm = [0,2,3,1]> (p)"
        " f = Flatten(t) y = MatMul(f, w) }"
    )
    _, placed = agree(body, {"x": normal(2, 3, 4, 4), "w": normal(48, 5, seed=1) / 7})
    assert placed[4].device == "accelerator"


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5, 6])
def test_any_rank(rank: int) -> None:
    """Elementwise operators and softmax take any rank: leading axes collapse."""
    shape = (2, 3, 1, 2, 3, 5)[-rank:]
    dims = ",".join(map(str, shape))
    body = (
        f"g (float[{dims}] x) => (float[{dims}] y)"
        " { e = Exp(x) s = Softmax <axis = -1> (e) y = Add(s, x) }"
    )
    _, placed = agree(body, {"x": normal(*shape)})
    assert {node.device for node in placed} == {"accelerator"}


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("op", ["Softmax <axis = A>", "ArgMax <axis = A, keepdims = 0>"])
def test_any_axis(axis: int, op: str) -> None:
    """Under `all` softmax and positions run over any axis, which is brought last."""
    shape = (2, 3, 4, 5)
    out = [size for at, size in enumerate(shape) if at != axis] if "Arg" in op else list(shape)
    kind = "int64" if "Arg" in op else "float"
    call = op.replace("A>", f"{axis}>").replace("A,", f"{axis},")
    body = f"g (float[2,3,4,5] x) => ({kind}[{','.join(map(str, out))}] y) {{ y = {call}(x) }}"
    _, placed = agree(body, {"x": normal(*shape)}, placement="all")
    assert placed[0].device == "accelerator"


NEWEST = onnx.defs.onnx_opset_version()


@pytest.mark.parametrize("opset", sorted({7, 9, 11, 13, 17, 20, 24, NEWEST - 2, NEWEST}))
def test_opset_range(opset: int) -> None:
    """From opset 7 to the newest a model means what its opset says."""
    body = (
        "g (float[2,3,4] x) => (float[2,3,4] y) { s = Softmax(x) r = Relu(s)"
        " t = Transpose <perm = [0,2,1]> (r) u = Transpose <perm = [0,2,1]> (t) y = Add(u, x) }"
    )
    model, feeds = text_model(body, opset), {"x": normal(2, 3, 4)}
    hosted = load(model, placement="all")  # before opset 13 its softmax is over two axes
    (got,) = hosted.run(feeds).outputs.values()
    expected = reference(text_model(body, min(opset, 20)), feeds)[0]
    np.testing.assert_allclose(got, expected, rtol=0.05, atol=0.01)
    assert {node.device for node in nodes(hosted, feeds)} <= {"accelerator", "folded"}


def test_opset_newer_than_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator newer than the host is refused by name, if it must go there."""
    since = onnx.defs.get_schema("Cast", NEWEST, "").since_version
    monkeypatch.setattr(host, "newest_opset", lambda: since - 1)  # a host of the time before
    body = "g (float[2,2] x) => (float[2,2] y) { e = Exp(x) y = Cast <to = 1> (e) }"
    refusal = rf"node Cast_1: Cast: Cast of opset {since}: opset {since - 1} is"
    with pytest.raises(ModelRefused, match=refusal):
        load(text_model(body, NEWEST)).specialise()


def test_qdq_model() -> None:
    """Quantise and dequantise run on the host, exactly; nodes between them on the accelerator."""
    body = (
        "g (float[2,4] x) => (float[2,3] y) <float s = {0.05}, int8 z = {0},"
        " int8[4,3] w = {1,-2,3,4,-5,6,7,8,-9,10,11,-12}, float ws = {0.1}> {"
        " q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)"
        " dw = DequantizeLinear(w, ws, z) y = MatMul(d, dw) }"
    )
    _, placed = agree(body, {"x": normal(2, 4)})
    assert [node.device for node in placed] == ["host", "host", "folded", "accelerator"]


@pytest.mark.parametrize("dtype", ["float16", "float"])
def test_element_types(dtype: str) -> None:
    """FP16 and FP32 values travel; the output has the model's element type."""
    body = f"g ({dtype}[3,5] x) => ({dtype}[3,5] y) {{ e = Tanh(x) y = Mul(e, x) }}"
    feed: Any = normal(3, 5).astype(np.float16 if dtype == "float16" else np.float32)
    _, placed = agree(body, {"x": feed})
    assert {node.device for node in placed} == {"accelerator"}


def test_double_stays_on_the_host() -> None:
    """float64 has no way into DLFLOAT16; the reason names the type."""
    body = "g (double[3] x) => (double[3] y) { y = Tanh(x) }"
    _, placed = agree(body, {"x": np.linspace(-1, 1, 3)})
    reason = "element type is float64, must be float32, float16 or bfloat16"
    assert (placed[0].device, placed[0].reason) == ("host", reason)


@pytest.mark.parametrize("groups", [1, 2, 4, 32, 64])
def test_groups(groups: int) -> None:
    """Under `all` convolutions are split up to 32 groups; more are the host's, as depthwise."""
    body = (
        f"g (float[1,64,5,5] x, float[64,{64 // groups},3,3] w) => (float[1,64,5,5] y)"
        f" {{ y = Conv <group = {groups}, pads = [1,1,1,1]> (x, w) }}"
    )
    weights = normal(64, 64 // groups, 3, 3, seed=1) / np.float32(9)
    feeds = {"x": normal(1, 64, 5, 5), "w": weights}
    result, placed = agree(body, feeds, placement="all")
    assert placed[0].device == ("accelerator" if groups <= 32 else "host")
    assert result.calls.get("conv2d", 0) == (groups if groups <= 32 else 0)


@pytest.mark.parametrize(
    ("clip", "functions"),
    [
        ("Clip(c, lo, hi)", ("conv2d",)),
        ("Relu(c)", ("conv2d",)),
        ("Tanh(c)", ("conv2d", "tanh")),
    ],
)
def test_activation_is_fused(clip: str, functions: tuple[str, ...]) -> None:
    """Relu and Clip from 0 behind a convolution are part of it, others are not."""
    body = (
        "g (float[1,2,6,6] x, float[3,2,3,3] w) => (float[1,3,4,4] y)"
        f" <float lo = {{0}}, float hi = {{1.5}}> {{ c = Conv(x, w) y = {clip} }}"
    )
    feeds = {"x": normal(1, 2, 6, 6), "w": normal(3, 2, 3, 3, seed=1)}
    result, _ = agree(body, feeds)
    computing = {name for name in result.calls if not name.startswith("transform")}
    assert computing == set(functions)


def test_reciprocal_root() -> None:
    """1 / Sqrt in either spelling is one invsqrt on Telum II; Telum I has neither root."""
    for spelling in (
        "y = Reciprocal(r)",
        "one = Constant <value_floats = [1.0, 1.0, 1.0]> () y = Div(one, r)",
    ):
        body = f"g (float[3] x) => (float[3] y) {{ r = Sqrt(x) {spelling} }}"
        feeds: dict[str, Array] = {"x": np.array([0.5, 2.5, 9], np.float32)}
        assert agree(body, feeds)[0].calls["invsqrt"] == 1
        _, placed = agree(body, feeds, "telum1")
        assert "zdnn_sqrt needs Telum II (z17)" in placed[0].reason


@pytest.mark.parametrize("op", ["Min", "Max", "Sum", "Mean"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_variadic(op: str, count: int) -> None:
    """Variadic operators are chains of two-operand calls under `all`; one operand is handed on."""
    names = [f"x{index}" for index in range(count)]
    inputs = ", ".join(f"float[2,{1 if index == 1 else 3}] {n}" for index, n in enumerate(names))
    body = f"g ({inputs}) => (float[2,3] y) {{ y = {op}({', '.join(names)}) }}"
    feeds: dict[str, Array] = {
        n: normal(2, 1 if at == 1 else 3, seed=at) for at, n in enumerate(names)
    }
    result, _ = agree(body, feeds, placement="all")
    verb = {"Min": "min", "Max": "max", "Sum": "add", "Mean": "add"}[op]
    assert result.calls.get(verb, 0) == count - 1


@pytest.mark.parametrize("axis", [-1, 1, 0])
def test_layer_normalization(axis: int) -> None:
    """LayerNormalization is moments, layernorm, mul and add; its three outputs agree."""
    shape = (3, 4, 70)
    kept = [size if at < axis % 3 else 1 for at, size in enumerate(shape)]
    tail = ",".join(map(str, shape[axis % 3 :]))
    dims = ",".join(map(str, kept))
    body = (
        f"g (float[3,4,70] x, float[{tail}] s, float[{tail}] b) => (float[3,4,70] y,"
        f" float[{dims}] m, float[{dims}] d) {{ y, m, d = LayerNormalization <axis = {axis}>"
        " (x, s, b) }"
    )
    feeds: dict[str, Array] = {
        "x": normal(*shape) * 3 + 1,
        "s": normal(*shape[axis % 3 :], seed=1),
        "b": normal(*shape[axis % 3 :], seed=2),
    }
    result, placed = agree(body, feeds)
    assert placed[0].functions == ("moments", "layernorm", "mul", "add", "invsqrt")
    assert result.calls["layernorm"] == 1


def test_conv_transpose_strided() -> None:
    """A strided transposed convolution with output padding is spread by the host."""
    body = (
        "g (float[1,2,4,5] x, float[2,3,3,3] w, float[3] b) => (float[1,3,8,10] y) { y ="
        " ConvTranspose <strides = [2,2], pads = [1,1,1,1], output_padding = [1,1]> (x, w, b) }"
    )
    feeds = {"x": normal(1, 2, 4, 5), "w": normal(2, 3, 3, 3, seed=1), "b": normal(3, seed=2)}
    result, placed = agree(body, feeds)
    assert placed[0].device == "accelerator"
    assert result.calls["conv2d"] == 1


def test_whole_image_window() -> None:
    """A kernel beyond 64 that covers the whole image is one window with strides 0."""
    body = (
        "g (float[1,1,70,80] x) => (float[1,1,1,1] y)"
        " { y = AveragePool <kernel_shape = [70,80]> (x) }"
    )
    model = text_model(body)
    hosted, feeds = load(model), {"x": normal(1, 1, 70, 80)}
    np.testing.assert_allclose(
        hosted.run(feeds).outputs["y"], reference(model, feeds)[0], atol=0.01
    )
    steps = hosted.specialise().steps
    (call,) = [
        step for step in steps if isinstance(step, AcceleratorStep) and step.verb == "avgpool2d"
    ]
    assert (call.arguments["stride_height"], call.arguments["stride_width"]) == (0, 0)


def test_dims_beyond_the_machine() -> None:
    """A dim beyond the machine's maximum keeps the node on the host, the dim named."""
    body = "g (float[40000] x) => (float[40000] y) { y = Exp(x) }"
    feeds = {"x": normal(40000)}
    _, placed = agree(body, feeds, "telum1")
    assert placed[0].reason == "dim1 would be 40000, must be 1 to 32768"
    _, placed = agree(body, feeds, "telum2")
    assert placed[0].device == "accelerator"


def test_no_accelerator() -> None:
    """Without NNPA every node runs on the host and says so."""
    body = "g (float[3] x) => (float[3] y) { y = Exp(x) }"
    for machine in ("z15", "telum2-nonnpa"):
        _, placed = agree(body, {"x": normal(3)}, machine)
        assert placed[0].reason == (
            "zdnn_exp needs Telum I (z16) or Telum II (z17); "
            f"the model is placed for {machine} ({MACHINES[machine].title})"
        )


def test_empty_tensors_stay_on_the_host() -> None:
    """Nodes with a dim of 0 run on the host."""
    body = "g (float[0,3] x) => (float[0,3] y) { y = Exp(x) }"
    result, placed = agree(body, {"x": normal(0, 3)})
    assert placed[0].reason == "x is empty"
    assert result.outputs["y"].shape == (0, 3)


def test_subgraphs_run_on_the_host() -> None:
    """An If runs on the host with what its branches capture."""
    body = (
        "g (bool c, float[2] x) => (float[2] y) { e = Exp(x) y = If <"
        "then_branch = t () => (float[2] a) { a = Add(e, e) },"
        "else_branch = f () => (float[2] b) { b = Neg(e) }> (c) }"
    )
    for flag in (True, False):
        _, placed = agree(body, {"c": np.array(flag), "x": normal(2)})
        assert [node.device for node in placed] == ["accelerator", "host"]


def test_host_steps_hold_what_the_report_says() -> None:
    """A node reported as folded leaves no step to the host."""
    body = (
        "g (float[2,6] x) => (float[3,4] y) { e = Exp(x) r = Reshape <allowzero = 0> (e, s)"
        " t = Tanh(r) s1 = Shape(t) y = Identity(t) }"
    ).replace("=> (float[3,4] y) {", "=> (float[3,4] y) <int64[2] s = {3,4}> {")
    hosted = load(text_model(body))
    program = hosted.specialise()
    assert not [step for step in program.steps if isinstance(step, HostStep) and step.node == 1]
    assert program.nodes[1].device == "folded"
    assert program.nodes[3].reason == "computed at import"
