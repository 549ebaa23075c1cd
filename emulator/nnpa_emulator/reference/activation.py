# SPDX-License-Identifier: Apache-2.0
"""Softmax over dim1 vectors in double precision, rounded once.

Source: zDNN API Reference 1.2.0, zdnn_softmax and zdnn_softmax_mask.
"""

import numpy as np

from nnpa_emulator import dlfloat
from nnpa_emulator.reference.layout import Codes, Dims, Pages, fill, gather


def softmax(codes: Codes, out: Codes, dims: Dims, pages: Pages, count: int, log: bool) -> np.uint16:
    """Apply softmax to the first `count` cells of every vector; other cells become zero.

    With a NINF among the first `count` cells all of them become NINF.
    """
    x = dlfloat.to_fp32(gather(codes, dims, pages)[..., :count]).astype(np.float64)
    with np.errstate(all="ignore"):
        shifted = x - x.max(axis=-1, keepdims=True)
        exponentials = np.exp(shifted)
        total = exponentials.sum(axis=-1, keepdims=True)
        results = shifted - np.log(total) if log else exponentials / total
    rounded = np.zeros(dims, np.uint16)
    rounded[..., :count] = dlfloat.result_from_fp64(results)
    fill(out, rounded, pages)
    return dlfloat.largest(rounded)
