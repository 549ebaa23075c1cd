# SPDX-License-Identifier: Apache-2.0
"""Watch how far the scores of each hour are from the first hour's: drift_monitor.py [target].

Fault: the weights, which never change, are transformed anew for each hour, inside the loop.

Expected finding: `weights` is given the same 256x128 numbers 12 times, where one transform before
the loop would do; the results are right, and most of the time of an hour goes into the transform.
"""

import sys

import numpy as np
import numpy.typing as npt
from nnpa_client import Ztensor, connect, zdnn

HOURS, ROWS, FEATURES, SCORES = 12, 8, 256, 128


def matrix(rows: int, columns: int) -> Ztensor:
    """Allocate a ztensor of rows x columns."""
    pre_transformed = zdnn.init_pre_transformed_desc(zdnn.ZDNN_2D, zdnn.FP32, rows, columns)
    transformed = zdnn.generate_transformed_desc(pre_transformed)
    return zdnn.init_ztensor_with_malloc(pre_transformed, transformed)


def main() -> list[float]:
    """Return the drift of each hour."""
    draw = np.random.default_rng(17)
    trained = draw.normal(0, 0.06, (FEATURES, SCORES)).astype(np.float32)
    offsets = draw.normal(0, 0.1, SCORES).astype(np.float32)

    bias_pre_transformed = zdnn.init_pre_transformed_desc(zdnn.ZDNN_1D, zdnn.FP32, SCORES)
    bias = zdnn.init_ztensor_with_malloc(
        bias_pre_transformed, zdnn.generate_transformed_desc(bias_pre_transformed)
    )
    zdnn.transform_ztensor(bias, offsets)
    features, weights = matrix(ROWS, FEATURES), matrix(FEATURES, SCORES)
    logits, scores = matrix(ROWS, SCORES), matrix(ROWS, SCORES)

    means: list[npt.NDArray[np.floating]] = []
    for number in range(HOURS):
        zdnn.reset_ztensor(features)
        zdnn.reset_ztensor(weights)
        rows = draw.normal(0.02 * number, 1, (ROWS, FEATURES)).astype(np.float32)
        zdnn.transform_ztensor(features, rows)
        zdnn.transform_ztensor(weights, trained)
        zdnn.matmul_op(features, weights, bias, zdnn.MATMUL_OP_ADDITION, logits)
        zdnn.sigmoid(logits, scores)
        means.append(zdnn.transform_origtensor(scores).reshape(ROWS, SCORES).mean(axis=0))

    for ztensor in (features, weights, bias, logits, scores):
        zdnn.free_ztensor_buffer(ztensor)
    return [float(np.abs(hour - means[0]).mean()) for hour in means]


if __name__ == "__main__":
    with connect(sys.argv[1] if len(sys.argv) > 1 else None):
        for number, drift in enumerate(main()):
            print(f"hour {number:2}: {drift:.4f}")
