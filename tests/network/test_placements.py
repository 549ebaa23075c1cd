# SPDX-License-Identifier: Apache-2.0
"""The placements `compiler` and `all`: what each sends to the accelerator, and what both say."""

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from nnpa_network.lowering.placement import placement_report
from nnpa_network.placements import PLACEMENTS
from nnpa_network.program import ModelRefused
from nnpa_network.reporting.accuracy import as_json, measure
from nnpa_network.reporting.accuracy_page import as_html
from nnpa_network.reporting.accuracy_text import as_text
from onnx import TensorProto, helper

from tests.network import real_models
from tests.network.baselines import compare_baseline, headline, write_baseline
from tests.network.hosting import Array, agree, load, nodes, normal, reference, text_model

MACHINES = ("telum1", "telum2")
ROWS: dict[str, Array] = {
    "x": normal(2, 6, 20),
    "w": normal(4, 6, 3, seed=1) / 4,
    "b": normal(4, seed=2),
}
_ROWS = "float[2,6,20] x, float[4,6,3] w, float[4] b"
# What only `all` places: inputs, outputs, nodes, the first node's reason under `compiler`.
BEYOND: dict[str, tuple[str, Mapping[str, Array], str]] = {
    "conv": (
        f"g ({_ROWS}) => (float[2,4,10] y) {{ y = Conv <pads = [1,1], strides = [2]> (x, w, b) }}",
        ROWS,
        "rank 3, must be 4; --placement all folds it",
    ),
    "conv, uneven pads": (
        f"g ({_ROWS}) => (float[2,4,21] y) {{ y = Conv <pads = [0,3]> (x, w, b) }}",
        ROWS,
        "rank 3, must be 4; --placement all folds it",
    ),
    "conv, auto_pad": (
        (
            f"g ({_ROWS}) => (float[2,4,7] y)"
            ' { y = Conv <auto_pad = "SAME_UPPER", strides = [3]> (x, w, b) }'
        ),
        ROWS,
        "rank 3, must be 4; --placement all folds it",
    ),
    "conv, wide kernel": (
        (
            "g (float[2,3,640] x, float[6,3,256] w, float[6] b) => (float[2,6,4] y)"
            " { y = Conv <strides = [128], pads = [10, 0]> (x, w, b) }"
        ),
        {"x": normal(2, 3, 640), "w": normal(6, 3, 256, seed=1) / 27, "b": normal(6)},
        "rank 3, must be 4; --placement all folds it",
    ),
    "conv, wide kernel of rank 4": (
        (
            "g (float[2,1,1,640] x, float[6,1,1,96] w) => (float[2,6,1,12] y)"
            " { y = Conv <strides = [1,48], pads = [0,20,0,5]> (x, w) }"
        ),
        {"x": normal(2, 1, 1, 640), "w": normal(6, 1, 1, 96, seed=1) / 9},
        "the kernel is [1, 96], at most 64; --placement all makes its steps channels",
    ),
    "convtranspose": (
        (
            "g (float[2,4,9] x, float[4,6,3] w) => (float[2,6,18] y)"
            " { y = ConvTranspose <strides = [2], pads = [1,0], output_padding = [0]> (x, w) }"
        ),
        {"x": normal(2, 4, 9), "w": ROWS["w"]},
        "rank 3, must be 4; --placement all folds it",
    ),
    "averagepool": (
        (
            "g (float[2,6,20] x) => (float[2,6,10] y)"
            " { y = AveragePool <kernel_shape = [2], strides = [2]> (x) }"
        ),
        {"x": ROWS["x"]},
        "rank 3, must be 4; --placement all folds it",
    ),
    "maxpool": (
        (
            "g (float[2,6,20] x) => (float[2,6,20] y)"
            " { y = MaxPool <kernel_shape = [3], pads = [1,1]> (x) }"
        ),
        {"x": ROWS["x"]},
        "rank 3, must be 4; --placement all folds it",
    ),
    "globalaveragepool": (
        "g (float[2,6,20] x) => (float[2,6,1] y) { y = GlobalAveragePool(x) }",
        {"x": ROWS["x"]},
        "rank 3, must be 4; --placement all folds it",
    ),
    "globalmaxpool": (
        "g (float[2,6,20] x) => (float[2,6,1] y) { y = GlobalMaxPool(x) }",
        {"x": ROWS["x"]},
        "rank 3, must be 4; --placement all folds it",
    ),
    "groups": (
        (
            "g (float[2,6,9,7] x, float[8,3,3,3] w) => (float[2,8,7,5] y)"
            " { y = Conv <group = 2> (x, w) }"
        ),
        {"x": normal(2, 6, 9, 7), "w": normal(8, 3, 3, 3, seed=1) / 5},
        "group is 2, must be 1; --placement all splits it",
    ),
    "batchnorm": (
        (
            "g (float[2,6,20] x, float[6] s, float[6] b, float[6] m, float[6] v)"
            " => (float[2,6,20] y) { y = BatchNormalization(x, s, b, m, v) }"
        ),
        {"x": ROWS["x"], **{k: abs(normal(6, seed=n)) + 1 for n, k in enumerate("sbmv")}},
        "rank 3, must be 4; --placement all folds it",
    ),
    "hardsigmoid": (
        "g (float[3,70] x) => (float[3,70] y) { y = HardSigmoid <alpha = 0.3, beta = 0.4> (x) }",
        {"x": 3 * normal(3, 70)},
        "no zDNN function for it; --placement all makes it of mul, add and relu",
    ),
    "hardswish": (
        "g (float[3,70] x) => (float[3,70] y) { y = HardSwish(x) }",
        {"x": 3 * normal(3, 70)},
        "no zDNN function for it; --placement all makes it of mul, add and relu",
    ),
    "three operands": (
        "g (float[9] a, float[9] b, float[9] c) => (float[9] y) { y = Min(a, b, c) }",
        {name: normal(9, seed=seed) for seed, name in enumerate("abc")},
        "3 operands, must be 2; --placement all chains them",
    ),
    "another axis": (
        "g (float[5,9] x) => (float[5,9] y) { y = Softmax <axis = 0> (x) }",
        {"x": normal(5, 9)},
        "axis is 0, must be the last; --placement all turns it",
    ),
    "mean without keepdims": (
        (
            "g (float[2,3,5,5] x) => (float[2,3] y) <int64[2] a = {2, 3}>"
            " { y = ReduceMean <keepdims = 0> (x, a) }"
        ),
        {"x": normal(2, 3, 5, 5)},
        "keepdims is 0, must be 1; --placement all drops the axes",
    ),
    "factors": (
        "g (float[4,6] a, float[6,5] b) => (float[4,5] y) { y = Gemm <alpha = 0.5> (a, b) }",
        {"a": normal(4, 6), "b": normal(6, 5, seed=1)},
        "alpha is 0.5, must be 1; --placement all multiplies it in",
    ),
}  # fmt: skip


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", BEYOND)
def test_beyond_the_compiler(name: str, machine: str) -> None:
    """`all` places what `compiler` leaves to the host with a reason that names it; both agree."""
    body, feeds, reason = BEYOND[name]
    _, (left, *_) = agree(body, feeds, machine)
    assert (left.device, left.reason) == ("host", reason)
    result, (placed, *_) = agree(body, feeds, machine, placement="all")
    assert placed.device == "accelerator"
    assert placed.reason == f"beyond the compiler: {reason.split(';')[0]}"
    assert all(result.calls[function] for function in placed.functions)


ON_TELUM_II: dict[str, tuple[str, Mapping[str, Array], str]] = {
    "axes": (
        "g (float[3,5,9] x) => (float[1,1,9] y) <int64[2] a = {0, 1}> { y = ReduceMax(x, a) }",
        {"x": normal(3, 5, 9)},
        "axes are [0, 1], must be the last; --placement all makes one vector of them",
    ),
    "position": (
        "g (float[5,9] x) => (int64[1,9] y) { y = ArgMax <axis = 0> (x) }",
        {"x": normal(5, 9)},
        "axis is 0, must be the last; --placement all turns it",
    ),
    "last position": (
        "g (float[5,9] x) => (int64[5,1] y) { y = ArgMin <axis = 1, select_last_index = 1> (x) }",
        {"x": normal(5, 9)},
        "select_last_index is 1, must be 0; --placement all turns the axis round",
    ),
}


@pytest.mark.parametrize("name", ON_TELUM_II)
def test_beyond_the_compiler_on_telum_2(name: str) -> None:
    """Telum I lacks the function, and says that and nothing of `all`."""
    body, feeds, reason = ON_TELUM_II[name]
    _, (left, *_) = agree(body, feeds)
    assert (left.device, left.reason) == ("host", reason)
    _, (placed, *_) = agree(body, feeds, placement="all")
    assert placed.device == "accelerator"
    for placement in PLACEMENTS:
        _, (lacking, *_) = agree(body, feeds, "telum1", placement=placement)
        assert "needs Telum II (z17); the model is placed for telum1 (z16)" in lacking.reason


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("groups", [6, 40])
def test_depthwise_stays_on_the_host(groups: int, placement: str) -> None:
    """A depthwise convolution is the host's under both placements, and no report says otherwise."""
    body = (
        f"g (float[1,{groups},5,5] x, float[{groups},1,3,3] w) => (float[1,{groups},3,3] y)"
        f" {{ y = Conv <group = {groups}> (x, w) }}"
    )
    feeds = {"x": normal(1, groups, 5, 5), "w": normal(groups, 1, 3, 3)}
    _, (node,) = agree(body, feeds, placement=placement)
    assert (node.device, node.reason) == (
        "host",
        f"group is {groups}, one for each channel (depthwise), must be fewer",
    )


def test_rows_hand_over_sticks() -> None:
    """Neighbours of rank 3 hand over sticks; a Relu between is part of the convolution."""
    body = (
        "g (float[2,6,20] x, float[6,6,3] w) => (float[2,6,8] y) { a = Conv(x, w) r = Relu(a)"
        " b = Conv(r, w) p = MaxPool <kernel_shape = [2], strides = [2]> (b) y = Sigmoid(p) }"
    )
    feeds = {"x": ROWS["x"], "w": normal(6, 6, 3, seed=1) / 4}
    result, placed = agree(body, feeds, placement="all")
    assert [node.device for node in placed] == ["accelerator"] * 5
    assert result.calls["transform_origtensor"] == 1
    assert result.calls["transform_ztensor_with_saturation"] == 3  # x, and w for each kernel
    assert "relu" not in result.calls


def _linear(op_type: str, **attributes: Any) -> bytes:
    """Return a linear model of 5 features as converters write it."""
    classifies = op_type == "LinearClassifier"
    names = ["label", "y"] if classifies else ["y"]
    node = helper.make_node(op_type, ["x"], names, "linear", domain="ai.onnx.ml", **attributes)
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])]
    if classifies:
        outputs.insert(0, helper.make_tensor_value_info("label", TensorProto.INT64, ["N"]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 5])
    graph = helper.make_graph([node], "linear", [x], outputs)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    return bytes(helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString())


WEIGHTS: dict[str, list[float]] = {
    "coefficients": [float(number) for number in normal(15, seed=3)],
    "intercepts": [0.25, -0.5, 0.125],
}
LINEAR: dict[str, tuple[str, dict[str, Any]]] = {
    "regressor": ("LinearRegressor", {"targets": 3}),
    **{
        f"classifier, {transform}": (
            "LinearClassifier", {"classlabels_ints": [7, 2, 5], "post_transform": transform}
        )
        for transform in ("NONE", "LOGISTIC", "SOFTMAX")
    },
}  # fmt: skip


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", LINEAR)
def test_linear_models(name: str, machine: str) -> None:
    """Linear models are products under `all`; the label belongs to the greatest score."""
    op_type, attributes = LINEAR[name]
    model, feeds = _linear(op_type, **WEIGHTS, **attributes), {"x": normal(40, 5)}
    (left,) = nodes(load(model, machine), feeds)
    assert left.reason == "no zDNN function for it; --placement all makes it a product"
    hosted = load(model, machine, placement="all")
    (placed,) = nodes(hosted, feeds)
    assert placed.functions[0] == "matmul_op"
    result, expected = hosted.run(feeds), reference(model, feeds)
    np.testing.assert_allclose(result.outputs["y"], expected[-1], rtol=0.01, atol=0.01)
    if "label" in result.outputs:
        ranked = np.sort(expected[-1], axis=1)
        decided = ranked[:, -1] - ranked[:, -2] > 0.02
        assert decided.sum() > 30
        np.testing.assert_array_equal(result.outputs["label"][decided], expected[0][decided])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"post_transform": "SOFTMAX_ZERO"}, "post_transform is SOFTMAX_ZERO"),
        ({"classlabels_ints": [], "classlabels_strings": ["a", "b", "c"]},
          "classlabels_ints is left out"),
        ({"coefficients": WEIGHTS["coefficients"][:5], "intercepts": [0.5],
          "classlabels_ints": [0, 1]},
          "coefficients has 5 numbers and intercepts 1, must be 10 and 2"),
    ],
)  # fmt: skip
def test_linear_models_on_the_host(change: dict[str, Any], reason: str) -> None:
    """Other transforms, labels of text and one row for two labels stay on the host, with why."""
    attributes = {**WEIGHTS, "classlabels_ints": [7, 2, 5], **change}
    attributes = {name: value for name, value in attributes.items() if value != []}
    model = _linear("LinearClassifier", **attributes)
    for placement in PLACEMENTS:
        (node,) = nodes(load(model, placement=placement), {"x": normal(2, 5)})
        assert node.device == "host"
        assert reason in node.reason


def test_strict_names_the_placement() -> None:
    """A refusal under strict says that `all` would place the node."""
    body, feeds, reason = BEYOND["conv"]
    with pytest.raises(ModelRefused, match=re.escape(reason)):
        nodes(load(text_model(body), strict=True), feeds)
    assert nodes(load(text_model(body), strict=True, placement="all"), feeds)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("make", "draw"),
    [(real_models.encoder, real_models.sentences), (real_models.tagger, real_models.words)],
)
def test_all_is_the_compiler_where_no_more_is_placed(make: Any, draw: Any, machine: str) -> None:
    """Where `all` places no more nodes, its results equal `compiler`'s bit for bit."""
    feeds = draw(2)
    compiler, everything = (load(make(), machine, placement=name) for name in PLACEMENTS)
    places = [
        [(node.device, node.functions, node.reason) for node in nodes(model, feeds)]
        for model in (compiler, everything)
    ]
    assert places[0] == places[1]
    results = [model.run(feeds).outputs for model in (compiler, everything)]
    for ztensor, two in zip(results[0].values(), results[1].values(), strict=True):
        assert ztensor.tobytes() == two.tobytes()


def test_reports_name_their_placement() -> None:
    """Headline, baseline, figures, table and page say which placement they are of."""
    model, feeds, _ = BEYOND["hardswish"]
    data = text_model(model)
    for placement in PLACEMENTS:
        hosted = load(data, placement=placement)
        report = placement_report(hosted.specialise())
        assert report.placement == placement
        assert f"placement {placement}: " in headline(report)
        assert f"placement {placement}: " in write_baseline(report).splitlines()[0]
        accuracy = measure(data, [feeds], ["telum2"], hosted.options)
        assert json.loads(as_json(accuracy))["placement"] == placement
        assert f"placement {placement}" in as_text(accuracy)
        assert f"placement {placement}" in as_html(accuracy)


def test_baselines_do_not_mix() -> None:
    """A baseline of one placement is none for a report of the other."""
    model = text_model(BEYOND["hardswish"][0])
    first, two = (
        placement_report(load(model, placement=placement).specialise()) for placement in PLACEMENTS
    )
    assert compare_baseline(first, write_baseline(first)) == ()
    text = "the baseline is of placement compiler, the report of all"
    assert compare_baseline(two, write_baseline(first)) == (text,)
