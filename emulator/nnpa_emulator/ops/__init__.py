# SPDX-License-Identifier: Apache-2.0
"""Operation families, as in the zDNN manual; importing them fills the table of functions."""

from nnpa_emulator.ops import (
    activation,
    convolution,
    elementwise,
    environment,
    lifecycle,
    matmul,
    normalization,
    pooling,
    quantized,
    recurrent,
    reshape,
    transform,
    transform_quantized,
)

__all__ = [
    "activation",
    "convolution",
    "elementwise",
    "environment",
    "lifecycle",
    "matmul",
    "normalization",
    "pooling",
    "quantized",
    "recurrent",
    "reshape",
    "transform",
    "transform_quantized",
]
