# SPDX-License-Identifier: Apache-2.0
"""inference.GRPCInferenceService: the Open Inference Protocol, in Triton's dialect.

The first call imports the network runtime.
"""

from nnpa_server.open_inference.handlers import SERVICE, add_to

__all__ = ["SERVICE", "add_to"]
