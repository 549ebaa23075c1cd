# SPDX-License-Identifier: Apache-2.0
"""Models of a server through the Open Inference Protocol, by our own client."""

import numpy as np
import pytest
from nnpa_client.errors import TransportError
from nnpa_client.inference import ModelClient
from nnpa_client.networks import held_out, onnx_cnn


@pytest.fixture
def models(server_target: str) -> ModelClient:
    """A client of the shared server."""
    return ModelClient(server_target)


@pytest.mark.parametrize("machine", ["telum1", "telum2"])
def test_a_model_is_hosted_while_it_is_needed(models: ModelClient, machine: str) -> None:
    """Load, infer, unload: the answer has the batch's shape, and no model is left afterwards."""
    name, images = f"digits-{machine}", held_out().images[:3, None]
    with models:
        models.load(name, onnx_cnn(), machine)
        assert models.properties(name)["machine"] == machine
        answer = models.infer(name, {"image": images})
        assert answer.outputs["logits"].shape == (3, 10)
        assert answer.outputs["logits"].dtype == np.float32
        assert answer.range_violations == 0
        models.unload(name)
        with pytest.raises(TransportError) as caught:
            models.infer(name, {"image": images})
    assert (caught.value.code, caught.value.reason) == ("UNAVAILABLE", "MODEL_UNAVAILABLE")


def test_refusals_are_errors_of_ours(models: ModelClient) -> None:
    """A server's refusal has its reason; the client refuses types that the protocol lacks."""
    with models:
        with pytest.raises(TransportError) as caught:
            models.infer("none", {"x": np.ones(3)})
        assert caught.value.reason == "MODEL_NOT_FOUND"
        with pytest.raises(ValueError, match="input x: complex128 array, expected one of"):
            models.infer("none", {"x": np.ones(3, complex)})
        with pytest.raises(TransportError, match="not an ONNX model"):
            models.load("none", b"no model")
