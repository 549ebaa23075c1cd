# SPDX-License-Identifier: Apache-2.0
"""The ONNX operators that the accelerator takes, one rule each; all others are the host's."""

from nnpa_network.operators import classical as classical
from nnpa_network.operators import convolution as convolution
from nnpa_network.operators import elementwise as elementwise
from nnpa_network.operators import matmul as matmul
from nnpa_network.operators import movement as movement
from nnpa_network.operators import normalization as normalization
from nnpa_network.operators import pooling as pooling
from nnpa_network.operators import quantized as quantized
from nnpa_network.operators import recurrent as recurrent
from nnpa_network.operators.table import OPERATORS, Graph, Operator

__all__ = ["OPERATORS", "Graph", "Operator"]
