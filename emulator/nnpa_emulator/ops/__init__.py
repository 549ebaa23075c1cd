# SPDX-License-Identifier: Apache-2.0
"""Operation families, as in the zDNN manual; importing them fills the table of functions."""

from nnpa_emulator.ops import activation as activation
from nnpa_emulator.ops import convolution as convolution
from nnpa_emulator.ops import elementwise as elementwise
from nnpa_emulator.ops import environment as environment
from nnpa_emulator.ops import lifecycle as lifecycle
from nnpa_emulator.ops import matmul as matmul
from nnpa_emulator.ops import normalization as normalization
from nnpa_emulator.ops import pooling as pooling
from nnpa_emulator.ops import quantized as quantized
from nnpa_emulator.ops import recurrent as recurrent
from nnpa_emulator.ops import reshape as reshape
from nnpa_emulator.ops import transform as transform
from nnpa_emulator.ops import transform_quantized as transform_quantized
