# SPDX-License-Identifier: Apache-2.0
"""Two small networks that read handwritten digits, as zDNN operations and in NumPy FP32.

Trained once on 80 % of the digits; the other 20 % come with them (README.md in this folder).
"""

from nnpa_client.networks.accelerated import NETWORKS, Layer, Network
from nnpa_client.networks.digits import Digits, held_out, onnx_cnn, weights

__all__ = ["NETWORKS", "Digits", "Layer", "Network", "held_out", "onnx_cnn", "weights"]
