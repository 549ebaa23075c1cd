# SPDX-License-Identifier: Apache-2.0
"""The models that tests of inference ask, and requests to them."""

import numpy as np
from hypothesis import strategies as st
from nnpa.oip import open_inference_grpc_pb2 as pb

from tests.server.onnx_models import (
    TYPES,
    binary,
    dense,
    identity,
)

ONES = np.ones((1, 1024), np.float32)
MODELS = {
    "add": binary("Add"),
    "div": binary("Div", ("n", 4)),
    "dense": dense(),
    "large": binary("Add", ("n", 1 << 20)),
    **{f"id_{name}": identity(name) for name in TYPES},
}


def request_of_identity(name: str) -> pb.ModelInferRequest:
    """Return a request to the model that returns its input."""
    message = pb.ModelInferRequest(model_name=f"id_{name}")
    message.inputs.add(name="x", datatype=name, shape=[2, 3])
    return message


texts = st.text(st.characters(codec="utf-8"), max_size=8)
