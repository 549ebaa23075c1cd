# SPDX-License-Identifier: Apache-2.0
"""inference.GRPCInferenceService: the Open Inference Protocol, in Triton's dialect."""

from nnpa_server.open_inference.inference import Inference
from nnpa_server.open_inference.loading import Loader, compile_onnx
from nnpa_server.open_inference.service import SERVICE, OpenInferenceService, add_to
from nnpa_server.open_inference.shared_memory import Regions

__all__ = [
    "SERVICE",
    "Inference",
    "Loader",
    "OpenInferenceService",
    "Regions",
    "add_to",
    "compile_onnx",
]
