# SPDX-License-Identifier: Apache-2.0
"""inference.GRPCInferenceService: the Open Inference Protocol, in Triton's dialect.

What models run on is imported by the first call, or while the server is idle.
"""

from nnpa_server.open_inference.handlers import SERVICE, add_to

__all__ = ["SERVICE", "add_to"]
