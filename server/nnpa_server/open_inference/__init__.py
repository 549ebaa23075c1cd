# SPDX-License-Identifier: Apache-2.0
"""inference.GRPCInferenceService: the Open Inference Protocol, in Triton's dialect."""

from nnpa_server.open_inference.inference import Inference
from nnpa_server.open_inference.loading import Loader, compile_onnx
from nnpa_server.open_inference.service import SERVICE, OpenInferenceService, handlers_of
from nnpa_server.open_inference.shared_memory import Regions

__all__ = [
    "SERVICE",
    "Inference",
    "Loader",
    "OpenInferenceService",
    "Regions",
    "compile_onnx",
    "handlers_of",
]
