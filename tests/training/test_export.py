# SPDX-License-Identifier: Apache-2.0
from typing import Any

import numpy as np
import onnxruntime
from nnpa_client.networks import NETWORKS, held_out

from tests.training.export import TARGET, digits_cnn


def test_the_shipped_model_is_that_of_the_shipped_weights() -> None:
    """The ONNX file is what the script makes of the weights beside it."""
    assert TARGET.read_bytes() == digits_cnn()


def test_both_forms_are_one_network() -> None:
    """The ONNX file in ONNX Runtime and the network in NumPy give the same logits."""
    (network,) = (one for one in NETWORKS if one.name == "cnn")
    images = held_out().images
    session = onnxruntime.InferenceSession(TARGET.read_bytes(), providers=["CPUExecutionProvider"])
    found: Any = session.run(None, {"image": images[:, None]})[0]
    assert np.allclose(found, network.reference(images), atol=1e-4)
