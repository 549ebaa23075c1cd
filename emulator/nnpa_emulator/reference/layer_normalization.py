# SPDX-License-Identifier: Apache-2.0
"""Layer normalisation of dim1 vectors: moments, layernorm, mul and add, one after the other."""

import numpy as np

from nnpa_emulator import dlfloat
from nnpa_emulator.reference.layout import Codes, Dims, Doubles, Pages, Singles, fill, gather
from nnpa_emulator.reference.normalization import moments_of


def layer_normalization(
    codes: Codes, dims: Dims, pages: Pages, out: Codes, out_dims: Dims, out_pages: Pages,
    scalars: Doubles, factors: Singles, added: Singles,
) -> bool:  # fmt: skip
    """Normalise every dim1 vector, each result rounded once; False: a NINF was met, `out` is void.

    `scalars` are beta, gamma and epsilon; `factors` and `added` have dim1 elements, or none. The
    vectors of `out` and `codes` have the same row-major order.
    """
    x = dlfloat.to_fp32(gather(codes, dims, pages)).astype(np.float64).reshape(-1, dims[3])
    beta, gamma, epsilon = scalars
    with np.errstate(all="ignore"):
        moments = np.array([moments_of(vector[None, None], 0) for vector in x])
        met = dlfloat.result_from_fp64(moments)
        mean, variance = dlfloat.to_fp32(met).astype(np.float64).T[..., None]
        root = np.sqrt(np.where(variance + epsilon > 0, variance + epsilon, np.nan))
        results = [dlfloat.result_from_fp64((x - mean) * (gamma / root) + beta)]
        if factors.size:
            results.append(dlfloat.result_from_fp32(dlfloat.to_fp32(results[-1]) * factors))
        if added.size:
            results.append(dlfloat.result_from_fp32(dlfloat.to_fp32(results[-1]) + added))
    if any(dlfloat.largest(each) == dlfloat.NINF for each in (met, *results)):
        return False
    fill(out, results[-1].reshape(out_dims), out_pages, True)
    return True
