# SPDX-License-Identifier: Apache-2.0
"""Refusals of hosted models as a user reads them: node, operator, attribute, value, limit."""

from collections.abc import Mapping

import numpy as np
import pytest
from nnpa_network.program import ModelRefused
from nnpa_network.running.results import StepFailed

from tests.network.hosting import Array, load, nodes, normal, text_model

IMAGE: Mapping[str, Array] = {"x": normal(1, 2, 5, 5)}
VECTOR: Mapping[str, Array] = {"x": normal(3)}
_SEQUENCE = "float[5,2,3] x, float[1,16,3] w, float[1,16,4] r"
SEQUENCE: Mapping[str, Array] = {
    "x": normal(5, 2, 3), "w": normal(1, 16, 3), "r": normal(1, 16, 4),
}  # fmt: skip


def pool(call: str, height: int) -> str:
    """Return a model of one pooling of `IMAGE` to `height` rows and columns."""
    return f"g (float[1,2,5,5] x) => (float[1,2,{height},{height}] y) {{ y = {call} (x) }}"


REASONS: dict[str, tuple[str, Mapping[str, Array], str]] = {
    "ceil_mode": (
        pool("MaxPool <kernel_shape = [2,2], strides = [2,2], ceil_mode = 1>", 3),
        IMAGE,
        "ceil_mode is 1 and adds a window, must be 0",
    ),
    "count_include_pad": (
        pool(
            "AveragePool <kernel_shape = [3,3], pads = [1,1,1,1], count_include_pad = 1>",
            5,
        ),
        IMAGE,
        "count_include_pad is 1 with pads, must be 0",
    ),
    "pads": (
        pool("MaxPool <kernel_shape = [3,3], pads = [2,2,2,2]>", 7),
        IMAGE,
        "pads are [2, 2, 2, 2], must be none or those of SAME_UPPER",
    ),
    "clip": (
        (f"g ({_SEQUENCE}) => (float[5,1,2,4] y)"
        " { y = LSTM <hidden_size = 4, clip = 3.0> (x, w, r) }"),
        SEQUENCE,
        "clip is 3.0, must be left out",
    ),
    "min": (
        "g (float[3] x) => (float[3] y) <float low = {-1.0}> { y = Clip(x, low) }",
        VECTOR,
        "min is -1.0, must be 0",
    ),
    "no min": (
        "g (float[3] x) => (float[3] y) <float high = {1.0}> { y = Clip(x, , high) }",
        VECTOR,
        "min is -inf, must be 0",
    ),
    "exponents": (
        "g (float[3] x) => (float[3] y) <float[3] e = {1, 2, 3}> { y = Pow(x, e) }",
        VECTOR,
        "the exponent has several values, must be one number",
    ),
    "an exponent that a run computes": (
        "g (float[3] x, float[1] e) => (float[3] y) { y = Pow(x, e) }",
        {**VECTOR, "e": np.full(1, 2, np.float32)},
        "the exponent is known only at run time, must be a constant",
    ),
    "element type": (
        "g (double[3] x) => (double[3] y) { y = Tanh(x) }",
        {"x": np.zeros(3)},
        "element type is float64, must be float32, float16 or bfloat16",
    ),
}  # fmt: skip


@pytest.mark.parametrize("attribute", REASONS)
def test_reason_names_attribute_value_and_limit(attribute: str) -> None:
    """The report says of a node on the host which attribute has which value, and the limit."""
    body, feeds, reason = REASONS[attribute]
    (node,) = nodes(load(text_model(body), placement="all"), feeds)
    assert (node.device, node.reason) == ("host", reason)


@pytest.mark.parametrize(
    ("machine", "label"), [("telum1", "telum1 (z16)"), ("z15", "z15 (IBM z15, no NNPA)")]
)
def test_reason_names_the_machine_that_has_the_function(machine: str, label: str) -> None:
    """A function that the machine lacks is named with the machine that has it."""
    body = "g (float[3] x) => (float[3] y) { y = Sqrt(x) }"
    (node,) = nodes(load(text_model(body), machine), VECTOR)
    assert node.reason == f"zdnn_sqrt needs Telum II (z17); the model is placed for {label}"


LOOP = (
    "g (bool c, float[2] x) => (float[2] y) {"
    " y = Loop <body = b (int64 i, bool k, float[2] s) => (bool k2, float[2] t)"
    " { k2 = Identity(k) t = Add(s, s) }> (, c, x) }"
)
REFUSALS: dict[str, tuple[str, int, str]] = {
    "a loop": (LOOP, 1 << 30, "node Loop_0: Loop: a Loop needs a trip count, its first input"),
    "too large an output": (
        ("g (float[2] x) => (float[50,2] y) <int64[2] s = {50, 2}>"
        " { [grow] y = Expand(x, s) }"),
        300,
        "node grow: Expand: output y takes 400 bytes, must be at most 300",
    ),
    "an opset": (
        "g (float[2] x) => (float[2] y) { y = Exp(x) }",
        1 << 30,
        "opset is 99, must be 7 to ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSALS)
def test_refusal_names_node_operator_value_and_limit(kind: str) -> None:
    """A model that cannot be hosted is refused with its node, operator, value and limit."""
    body, most, text = REFUSALS[kind]
    model = text_model(body, 99) if kind == "an opset" else text_model(body)
    with pytest.raises(ModelRefused) as caught:
        load(model, max_bytes=most).specialise()
    assert str(caught.value).startswith(text)


def test_failed_host_node_names_its_operator() -> None:
    """A node that fails in a run on the host is named, and so is its operator."""
    body = "g (float[3] x, int64[1] i) => (float[1] y) { [pick] y = Gather(x, i) }"
    hosted = load(text_model(body))
    with pytest.raises(StepFailed, match=r"^node pick: host: Gather: .*7"):
        hosted.run({"x": normal(3), "i": np.array([7])})
