# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.training import layers
from tests.training.layers import Array, Params

STEP = 1e-6


def _cnn(rng: np.random.Generator) -> tuple[Params, Array]:
    shapes = {
        "conv1_kernel": (3, 3, 1, 2),
        "conv1_bias": (2,),
        "conv2_kernel": (3, 3, 2, 3),
        "conv2_bias": (3,),
        "dense_weights": (12, 4),
        "dense_bias": (4,),
    }
    params = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    return params, rng.standard_normal((3, 8, 8, 1))


def _lstm(rng: np.random.Generator) -> tuple[Params, Array]:
    shapes = {
        "lstm_weights": (4, 8, 3),
        "lstm_hidden_weights": (4, 3, 3),
        "lstm_biases": (4, 3),
        "dense_weights": (3, 4),
        "dense_bias": (4,),
    }
    params = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    return params, rng.standard_normal((3, 5, 8))


@pytest.mark.parametrize(
    ("make", "forward", "backward"),
    [(_cnn, layers.cnn, layers.cnn_backward), (_lstm, layers.lstm, layers.lstm_backward)],
    ids=["cnn", "lstm"],
)
def test_gradients(
    make: Callable[[np.random.Generator], tuple[Params, Array]],
    forward: Callable[[Params, Array], tuple[Array, Any]],
    backward: Callable[[Params, Any, Array], Params],
) -> None:
    """Every gradient equals the slope of the loss measured by a small step both ways."""
    params, x = make(np.random.default_rng(11))
    labels = np.array([0, 3, 1])

    def loss() -> float:
        return layers.cross_entropy(forward(params, x)[0], labels)[0]

    logits, kept = forward(params, x)
    gradients = backward(params, kept, layers.cross_entropy(logits, labels)[1])
    assert gradients.keys() == params.keys()
    for name, value in params.items():
        flat = value.reshape(-1)
        for place in range(0, flat.size, max(1, flat.size // 7)):
            before = flat[place]
            flat[place] = before + STEP
            above = loss()
            flat[place] = before - STEP
            slope = (above - loss()) / (2 * STEP)
            flat[place] = before
            np.testing.assert_allclose(
                gradients[name].reshape(-1)[place], slope, rtol=1e-5, atol=1e-8, err_msg=name
            )
