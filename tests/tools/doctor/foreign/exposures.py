# SPDX-License-Identifier: Apache-2.0
"""Print the root mean square of a portfolio's exposures in euros: exposures.py [target].

Fault: the squares of exposures above 92,591 are beyond DLFLOAT16's greatest value, 8,573,157,376;
the program silences the warning that says so, and leaves what is no number out of the mean.

Expected finding: `mul` answers ZDNN_ELEMENT_RANGE_VIOLATION, 3 of its 64 results are no numbers,
and the program goes on: it prints 51227 euros where 90239 are right. Exposures in thousands of
euros would fit.
"""

import sys
import warnings

import numpy as np
from nnpa_client import connect, zdnn


def root_mean_square() -> float:
    """Return the root mean square in euros."""
    euros = 20_000 + 900 * np.arange(64, dtype=np.float32)
    euros[[11, 29, 50]] = 250_000, 310_000, 450_000
    pre_transformed = zdnn.init_pre_transformed_desc(zdnn.ZDNN_1D, zdnn.FP32, euros.size)
    exposures = zdnn.init_ztensor_with_malloc(
        pre_transformed, zdnn.generate_transformed_desc(pre_transformed)
    )
    zdnn.transform_ztensor(exposures, euros)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # noisy
        squares = zdnn.mul(exposures, exposures)
        numbers = squares.numpy(strict=False)
    zdnn.free_ztensor_buffer(exposures)
    zdnn.free_ztensor_buffer(squares)
    return float(np.sqrt(np.nanmean(numbers)))


if __name__ == "__main__":
    with connect(sys.argv[1] if len(sys.argv) > 1 else None):
        print(f"{root_mean_square():.0f} euros")
