# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import onnxruntime
from nnpa_client.networks import NETWORKS, held_out

from tests.training.export import TARGET, digits_cnn


def test_the_shipped_model_has_the_shipped_weights() -> None:
    """The ONNX file equals the script's output for the weights beside it."""
    assert TARGET.read_bytes() == digits_cnn()


def test_both_forms_are_one_network() -> None:
    """The ONNX file in ONNX Runtime and the network in NumPy give the same logits."""
    (network,) = (network for network in NETWORKS if network.name == "cnn")
    images = held_out().images
    session = onnxruntime.InferenceSession(TARGET.read_bytes(), providers=["CPUExecutionProvider"])
    logits: Any = session.run(None, {"image": images[:, None]})[0]
    assert np.allclose(logits, network.reference(images), atol=1e-4)
