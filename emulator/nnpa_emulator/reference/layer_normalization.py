# SPDX-License-Identifier: Apache-2.0
"""Layer normalisation of dim1 vectors: moments and layernorm, one after the other."""

import numpy as np

from nnpa_emulator import dlfloat
from nnpa_emulator.reference.layout import Codes, Dims, Pages, fill, gather
from nnpa_emulator.reference.normalization import moments_of


def layer_normalization(
    codes: Codes, out: Codes, dims: Dims, pages: Pages, beta: np.float32, gamma: np.float32,
    epsilon: np.float32,
) -> np.uint16:  # fmt: skip
    """Normalise every dim1 vector, each result rounded once; see the kernel."""
    x = dlfloat.to_fp32(gather(codes, dims, pages)).astype(np.float64).reshape(-1, dims[3])
    with np.errstate(all="ignore"):
        moments = np.array([moments_of(vector[None, None], 0) for vector in x])
        met = dlfloat.result_from_fp64(moments)
        mean, variance = dlfloat.to_fp32(met).astype(np.float64).T[..., None]
        spread = variance + np.float64(epsilon)
        root = np.sqrt(np.where(spread > 0, spread, np.nan))
        results = dlfloat.result_from_fp64((x - mean) * (np.float64(gamma) / root) + beta)
    fill(out, results.reshape(dims), pages, True)
    return np.uint16(max(dlfloat.largest(met), dlfloat.largest(results)))
