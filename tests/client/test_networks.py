# SPDX-License-Identifier: Apache-2.0
"""The digits networks: data, FP32 reference, and inference on the accelerator."""

import numpy as np
import pytest
from nnpa_client import Session, zdnn
from nnpa_client.networks import NETWORKS, Network, held_out, weights

from tests.training import layers

NAMES = [network.name for network in NETWORKS]


def test_held_out() -> None:
    """360 digits of 8x8 pixels in steps of 1/16, some of each kind."""
    digits = held_out()
    assert digits.images.shape == (360, 8, 8)
    assert digits.images.dtype == np.float32
    assert set(np.unique(digits.images * 16)) == set(range(17))
    assert np.bincount(digits.labels).min() >= 20


def test_unknown_network() -> None:
    """Weights of an unknown network are refused by name."""
    with pytest.raises(ValueError, match="network: 'mlp', expected 'cnn' or 'lstm'"):
        weights("mlp")


@pytest.mark.parametrize("network", NETWORKS, ids=NAMES)
def test_reference(network: Network) -> None:
    """The FP32 reference computes what the training computed, and reads the digits as promised."""
    images, labels = held_out().images, held_out().labels
    params = {name: array.astype(np.float64) for name, array in weights(network.name).items()}
    forward = {"cnn": layers.cnn, "lstm": layers.lstm}[network.name]
    view = images[..., None] if network.name == "cnn" else images
    expected = forward(params, view.astype(np.float64))[0]
    logits = network.reference(images)
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    accuracy = (logits.argmax(axis=1) == labels).mean()
    assert accuracy > {"cnn": 0.97, "lstm": 0.95}[network.name]


@pytest.mark.parametrize("network", NETWORKS, ids=NAMES)
def test_layers_one_by_one(session: Session, network: Network) -> None:
    """Layers one by one give likelihoods near FP32's, and layers in one list give the same bits."""
    images = held_out().images[:40]
    loaded = network.load(session, len(images))
    data = network.arrange(images)
    x = session.ztensor(data, network.layout)
    for layer in loaded:
        x = layer.run(x)
    alone = x.numpy().reshape(len(images), 10)
    together = np.empty_like(alone)
    with session.pipeline():
        x = session.ztensor(data, network.layout)
        for layer in loaded:
            x = layer.run(x)
        zdnn.transform_origtensor(x, together)
    np.testing.assert_array_equal(alone, together)
    powers = np.exp(network.reference(images).astype(np.float64))
    np.testing.assert_allclose(alone, powers / powers.sum(axis=1, keepdims=True), atol=0.05)


@pytest.mark.parametrize("network", NETWORKS, ids=NAMES)
def test_layer_names(network: Network, session: Session) -> None:
    """Each layer names its zDNN function."""
    functions = {layer.function for layer in network.load(session, 1)}
    assert all(hasattr(zdnn, function) for function in functions)
