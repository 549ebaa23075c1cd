# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import pytest
from nnpa_client.networks import held_out, weights

from tests.training import layers, train


@pytest.mark.parametrize(
    ("initial", "forward", "backward", "epochs"),
    [
        (train.initial_cnn, layers.cnn, layers.cnn_backward, 15),
        (train.initial_lstm, layers.lstm, layers.lstm_backward, 60),
    ],
    ids=["cnn", "lstm"],
)
def test_learning(
    initial: Any, forward: Any, backward: Any, epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few epochs over half of the shipped digits teach a network most of the other half."""
    monkeypatch.setattr(train, "EPOCHS", epochs)
    digits = held_out()
    x = digits.images[..., None] if forward is layers.cnn else digits.images
    params = initial(np.random.default_rng(5))
    before = train.accuracy(forward, params, x[180:], digits.labels[180:])
    train.fit(forward, backward, params, x[:180], digits.labels[:180])
    after = train.accuracy(forward, params, x[180:], digits.labels[180:])
    assert before < 0.3
    assert after > 0.7


@pytest.mark.parametrize("name", ["cnn", "lstm"])
def test_shipped_weights_have_the_trained_shapes(name: str) -> None:
    """The shipped weights have the shapes of the networks that the script trains, in FP32."""
    initial = {"cnn": train.initial_cnn, "lstm": train.initial_lstm}[name]
    expected = {key: value.shape for key, value in initial(np.random.default_rng(0)).items()}
    shipped = weights(name)
    assert {key: value.shape for key, value in shipped.items()} == expected
    assert all(value.dtype == np.float32 for value in shipped.values())
