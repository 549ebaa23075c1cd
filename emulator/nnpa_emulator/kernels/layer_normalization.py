# SPDX-License-Identifier: Apache-2.0
"""Layer normalisation of dim1 vectors where they lie: moments and layernorm in one pass.

By themselves the calls work on a tensor with a page for each vector, because moments takes a mean
of every dim4: all vectors are in the same few sets of the host's caches.
Source: zDNN API Reference 1.2.0, "Normalization Operations".
"""

import math

import numpy as np

from nnpa_emulator.kernels.convert import Codes, decode, encode_fp64
from nnpa_emulator.kernels.jit import implements
from nnpa_emulator.kernels.normalization import LANES, SUMS, cell_of, moments_of, standardise
from nnpa_emulator.reference import layer_normalization as reference
from nnpa_emulator.reference.layout import Dims, Pages


@implements(reference.layer_normalization)
def layer_normalization(
    codes: Codes, out: Codes, dims: Dims, pages: Pages, beta: np.float32, gamma: np.float32,
    epsilon: np.float32,
) -> np.uint16:  # fmt: skip
    """Normalise every dim1 vector; return the largest magnitude of moments and results.

    Padding is left as it is.
    """
    vector, largest, count = (1, 1, 1, dims[3]), np.uint16(0), 0
    lanes, squares = np.zeros(SUMS * LANES), np.zeros(SUMS * LANES)
    results, rounded = np.empty(2 * SUMS), np.empty(2 * SUMS, np.uint16)
    mean, factor, starts = np.empty(1), np.empty(1), np.empty(SUMS, np.uintp)
    total = dims[0] * dims[1] * dims[2]
    for number in range(total):
        e4, e3, e2 = number // (dims[1] * dims[2]), number // dims[2] % dims[1], number % dims[2]
        starts[count] = np.uintp(cell_of(pages, e4, 0, e3, e2))
        count += 1
        if count < SUMS and number < total - 1:
            continue
        moments_of(codes, starts[:count], vector, pages, 0, lanes, squares, results)
        met = encode_fp64(results[: 2 * count].view(np.uint64), rounded[: 2 * count])
        largest = np.uint16(max(largest, met))
        for place in range(count):
            spread = np.float64(decode(rounded[2 * place + 1])) + np.float64(epsilon)
            mean[0] = np.float64(decode(rounded[2 * place]))
            factor[0] = np.float64(gamma) / math.sqrt(spread) if spread > 0 else math.nan
            source, target = codes[starts[place] :], out[starts[place] :]
            met = standardise(source, target, vector, pages, mean, factor, np.float64(beta), True)
            largest = np.uint16(max(largest, met))
        count = 0
    return largest
