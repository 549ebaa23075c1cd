# SPDX-License-Identifier: Apache-2.0
"""Nodes that an import adds, such as those that broadcast: equal ones are one."""

import onnx
from nnpa_network.program import HostStep

from tests.network.hosting import Array, agree, load, normal, text_model


def steps_of(body: str, feeds: dict[str, Array]) -> list[str]:
    """Return the operators of a program's host steps, and the verbs of its others."""
    agree(body, feeds)
    model = load(text_model(body))
    program = model.specialise({name: array.shape for name, array in feeds.items()})
    return [
        onnx.NodeProto.FromString(step.onnx).op_type if isinstance(step, HostStep) else step.verb
        for step in program.steps
    ]


def test_what_two_nodes_broadcast_is_broadcast_once() -> None:
    """A mask that is added to scores of one shape twice is expanded and transformed once."""
    body = (
        "g (float[2,3,5,8] x, float[2,3,5,8] w, float[2,1,1,8] mask)"
        " => (float[2,3,5,8] y, float[2,3,5,8] z) { y = Add(x, mask) z = Add(mask, w) }"
    )
    scores = normal(2, 3, 5, 8), normal(2, 3, 5, 8, seed=1)
    steps = steps_of(body, {"x": scores[0], "w": scores[1], "mask": normal(2, 1, 1, 8, seed=2)})
    assert steps.count("Expand") == 1
    assert steps.count("transform_ztensor_with_saturation") == 3


def test_what_two_nodes_broadcast_to_other_shapes_is_broadcast_twice() -> None:
    """Added nodes with different constants or different operands are not merged."""
    body = (
        "g (float[3,8] x, float[5,8] w, float[8] a, float[8] b)"
        " => (float[3,8] y, float[5,8] z, float[3,8] u)"
        " { y = Add(x, a) z = Add(w, a) u = Mul(x, b) }"
    )
    feeds = {"x": normal(3, 8), "w": normal(5, 8, seed=1), "a": normal(8, seed=2)}
    steps = steps_of(body, {**feeds, "b": normal(8, seed=3)})
    assert steps.count("Expand") == 3


def test_what_an_attempt_broadcast_in_vain_is_forgotten() -> None:
    """Nodes added for a node that then goes to the host are added anew for the next one."""
    body = (
        "g (float[3,8] x, float[8] b) => (float[3,8] y, float[3,8] z)"
        " { y = Max(x, b, x) z = Add(x, b) }"
    )
    steps = steps_of(body, {"x": normal(3, 8), "b": normal(8, seed=1)})
    assert steps[0] == "Max"
    assert steps.count("Expand") == 1
