# SPDX-License-Identifier: Apache-2.0
"""Models that ONNX Runtime runs, and that ONNX's checker or shape inference does not take."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from nnpa_network.program import ModelRefused
from nnpa_network.running import host
from nnpa_network.running.results import StepFailed

from tests.network.hosting import Array, agree, load, normal, reference, text_model
from tests.server.conftest import CONFIG, Running
from tests.server.network.service_client import Client


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


def _open(model: bytes) -> bytes:
    """Return a model with outputs of which neither type nor rank are declared."""
    proto = onnx.ModelProto.FromString(model)
    for info in proto.graph.output:
        info.ClearField("type")
    return bytes(proto.SerializeToString())


X = {"x": normal(2, 3)}
RANKLESS: dict[str, tuple[str, Mapping[str, Array]]] = {
    "a size that a run tells": (
        "g (float[2,3] x, int64[K] s) => (float[a] y) { r = Relu(x) y = Reshape(r, s) }",
        X | {"s": np.array([3, 1, 2])},
    ),
    "free dims that are 1": (
        "g (float[N,M] x) => (float[a] y) { r = Exp(x) y = Squeeze(r) }",
        {"x": normal(1, 3)},
    ),
    "a scalar": ("g (float[N,M] x) => (float[a] y) { y = Squeeze(x) }", {"x": normal(1, 1)}),
    "a loop that changes it": (
        (
            "g (int64 n, bool c, float[2,3] x) => (float[a] y) { y = Loop <body = b (int64 i,"
            " bool k, float s) => (bool k2, float t) <int64[1] first = {0}> { k2 = Identity(k)"
            " t = Unsqueeze(s, first) }> (n, c, x) }"
        ),
        X | {"n": np.array(2), "c": np.array(True)},
    ),
}


@pytest.mark.parametrize("case", RANKLESS)
def test_outputs_without_a_rank(case: str, client: Client) -> None:
    """An output whose rank only a run tells is hosted, with the shape that the run makes."""
    body, feeds = RANKLESS[case]
    model = _open(text_model(body))
    (expected,) = reference(model, feeds)
    (got,) = load(model).run(feeds).outputs.values()
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(got, expected, rtol=0.01)
    answer = client.infer(client.ready(onnx.ModelProto.FromString(model)), **dict(feeds))
    assert tuple(answer.outputs[0].shape) == expected.shape
    assert answer.outputs[0].data == got.tobytes()


ATTENTION = """g (float[B,4,S,8] q, float[B,2,S,8] k, float[B,2,P,8] old) =>
    (float[a] y, float[a] key, float[a] value) {
        y, key, value = Attention <is_causal = 1> (q, k, k, , old, old)
    }"""


@pytest.mark.skipif(
    ("", "Attention") not in host.operators(), reason="this ONNX Runtime has no Attention"
)
@pytest.mark.parametrize("past", [1, 4])
def test_the_cache_of_attention(past: int, client: Client) -> None:
    """Keys and values that Attention hands on are outputs, though nothing tells their rank."""
    model = _open(text_model(ATTENTION, 23))
    feeds = {"q": normal(1, 4, 3, 8), "k": normal(1, 2, 3, 8), "old": normal(1, 2, past, 8)}
    result = load(model).run(feeds).outputs
    answer = client.infer(client.ready(onnx.ModelProto.FromString(model)), **feeds)
    for output, expected in zip(answer.outputs, reference(model, feeds), strict=True):
        assert tuple(output.shape) == result[output.name].shape == expected.shape
        np.testing.assert_allclose(result[output.name], expected, rtol=0.01, atol=1e-5)
        assert output.data == result[output.name].tobytes()


LAYERS = {"LSTM": 4, "GRU": 3}


@pytest.mark.parametrize("op_type", LAYERS)
def test_layers_over_nothing(op_type: str) -> None:
    """A recurrent layer over an empty batch, which ends ONNX Runtime's process, fails by name."""
    gates = LAYERS[op_type]
    body = (
        f"g (float[3,N,2] x, float[1,{4 * gates},2] w, float[1,{4 * gates},4] r)"
        f" => (float[3,1,N,4] y) {{ [layer] y = {op_type} <hidden_size = 4> (x, w, r) }}"
    )
    feeds: dict[str, Any] = {"x": normal(3, 0, 2)}
    feeds |= {"w": normal(1, 4 * gates, 2), "r": normal(1, 4 * gates, 4)}
    with pytest.raises(StepFailed, match=rf"node layer: .*{op_type} has an input of shape"):
        load(text_model(body)).run(feeds)


@pytest.mark.parametrize("call", ["Min(x, , x)", "Sum(, x)", "Concat <axis = 0> (x, , x)"])
def test_an_operand_of_many_that_is_left_out(call: str) -> None:
    """An operator of any number of operands without one of them, on which ONNX Runtime breaks."""
    with pytest.raises(ModelRefused, match=r"^node many: .* has an input that is left out"):
        load(text_model(f"g (float[2,3] x) => (float[a,b] y) {{ [many] y = {call} }}"))


OTHER_SIZES = {
    "axes from the end before opset 11": (
        "g (float[2,3] x) => (float[a,b,c] y) { u = Unsqueeze <axes = [-3]> (x) y = Exp(u) }",
        10,
        normal(2, 3),
    ),
    "a pooling with dilations": (
        (
            "g (float[1,2,4,6] x) => (float[a,b,c,d] y) { u = MaxPool <auto_pad = "
            '"SAME_UPPER", dilations = [2,2], kernel_shape = [1,3]> (x) y = Exp(u) }'
        ),
        20,
        normal(1, 2, 4, 6),
    ),
}


@pytest.mark.parametrize("case", OTHER_SIZES)
def test_sizes_that_shape_inference_does_not_know(case: str) -> None:
    """Where ONNX Runtime makes other sizes than ONNX infers, these are the sizes."""
    body, opset, x = OTHER_SIZES[case]
    agree(body, {"x": x}, opset=opset, placement="all")


@pytest.mark.parametrize(
    ("body", "x"),
    [
        ("{ y = Softmax <axis = 1> (x) }", normal(4)),
        ("{ y = LayerNormalization <axis = 2> (x, x) }", normal(4)),
        ("{ y = ArgMax <axis = -3> (x) }", normal(4)),
    ],
)
def test_axes_that_a_value_has_not(body: str, x: Array) -> None:
    """An axis out of range is refused with the node's name."""
    kind = "int64" if "ArgMax" in body else "float"
    with pytest.raises((ModelRefused, StepFailed), match=r"^node (Softmax|LayerNorm|ArgMax)"):
        load(text_model(f"g (float[4] x) => ({kind}[4] y) {body}"), placement="all").run({"x": x})


@pytest.mark.parametrize("size", ["1,12,0", "1,9,2", "2,12,2"])
def test_weights_that_do_not_fit_a_layer(size: str) -> None:
    """A layer with weights of another size is refused by its node, not by what packs them."""
    body = (
        f"g (float[5,1,2] x, float[1,12,4] r) => (float[a,b,c,d] y) <int64[3] s = {{{size}}}>"
        " { w = ConstantOfShape(s)"
        " [layer] y = GRU <hidden_size = 4, linear_before_reset = 1> (x, w, r) }"
    )
    feeds = {"x": normal(5, 1, 2), "r": normal(1, 12, 4)}
    with pytest.raises((ModelRefused, StepFailed), match=r"^node layer: "):
        load(text_model(body)).run(feeds)


def test_no_number_among_what_is_regrouped() -> None:
    """A NaN goes through a change of shape on the accelerator, and is in the result."""
    body = (
        "g (float[6,6] x, float[9,2] w) => (float[4,2] y) <int64[2] s = {4,9}>"
        " { l = Log(x) r = Reshape(l, s) y = MatMul(r, w) }"
    )
    feeds: dict[str, Array] = {"x": np.abs(normal(6, 6)) + np.float32(0.1), "w": normal(9, 2)}
    feeds["x"][0, 0] = -1
    result = load(text_model(body)).run(feeds)
    assert result.calls["reshape_ztensor"] == 1
    with np.errstate(invalid="ignore"):
        expected = np.log(feeds["x"]).reshape(4, 9) @ feeds["w"]
    assert np.isnan(expected[0]).all()
    np.testing.assert_allclose(result.outputs["y"], expected, rtol=0.02, atol=0.05)


def test_a_view_of_an_input_is_not_rounded() -> None:
    """Identity and Flatten hand on the input's bits, though their readers make sticks of them."""
    body = (
        "g (float[3,5] x) => (float[3,5] i, float[1,15] f, float[3,5] e, float[1,15] t)"
        " { i = Identity(x) e = Exp(i) f = Flatten <axis = 0> (x) t = Tanh(f) }"
    )
    x = normal(3, 5)
    outputs = load(text_model(body)).run({"x": x}).outputs
    np.testing.assert_array_equal(outputs["i"], x)
    np.testing.assert_array_equal(outputs["f"], x.reshape(1, 15))


def test_what_only_the_checker_refuses() -> None:
    """GroupNormalization of opset 18, deprecated to the checker, is as ONNX Runtime has it."""
    body = (
        "g (float[2,4,3] x) => (float[2,4,3] y) <float[2] s = {1.5, 0.5}, float[2] b = {0.25, -1}>"
        " { y = GroupNormalization <num_groups = 2> (x, s, b) }"
    )
    model, feeds = text_model(body, 18), {"x": normal(2, 4, 3)}
    (expected,) = reference(model, feeds)
    np.testing.assert_allclose(load(model).run(feeds).outputs["y"], expected, rtol=1e-5)


@pytest.mark.parametrize("placement", ["compiler", "all"])
@pytest.mark.parametrize("upper", ["SAME_UPPER", "SAME_LOWER"])
def test_windows_that_leave_the_last_elements_out(upper: str, placement: str) -> None:
    """ONNX Runtime moves windows where auto_pad would be negative: the host runs these nodes."""
    body = (
        "g (float[1,2,9,9] x) => (float[1,2,3,3] y) {"
        f' y = AveragePool <auto_pad = "{upper}", kernel_shape = [1, 1], strides = [3, 3]> (x) }}'
    )
    model, feeds = text_model(body), {"x": normal(1, 2, 9, 9)}
    result = load(model, placement=placement).run(feeds).outputs["y"]
    np.testing.assert_array_equal(result, reference(model, feeds)[0])


@pytest.mark.parametrize("transform", ["LOGISTIC", "SOFTMAX"])
def test_one_target_is_not_transformed(transform: str) -> None:
    """ONNX Runtime leaves the only target of a LinearRegressor as it is: the host runs it."""
    body = (
        "g (float[3,2] x) => (float[3,1] y) { y = ai.onnx.ml.LinearRegressor"
        f' <coefficients = [0.5, 2.0], intercepts = [0.25], post_transform = "{transform}"> (x) }}'
    )
    model, feeds = text_model(body), {"x": normal(3, 2)}
    result = load(model, placement="all").run(feeds).outputs["y"]
    np.testing.assert_array_equal(result, reference(model, feeds)[0])


def test_signed_products_of_constant_weights() -> None:
    """ONNX Runtime has a kernel for INT8 times INT8 only without the settings for UINT8."""
    body = (
        "g (int8[2,3] x) => (int8[2,2] y) <float s = {0.05}, int8 z = {0},"
        " int8[3,2] w = {-66,-53,108,6,116,42}> { y = QLinearMatMul(x, s, z, w, s, z, s, z) }"
    )
    model, feeds = text_model(body), {"x": np.array([[1, -2, 3], [-70, 5, 90]], np.int8)}
    result = load(model).run(feeds).outputs["y"]
    np.testing.assert_array_equal(result, reference(model, feeds)[0])
