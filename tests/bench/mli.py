# SPDX-License-Identifier: Apache-2.0
"""Row MLI: a fully connected layer against a plain integer matrix product of the same size."""

import mli_emulator as mli
import numpy as np
from mli_emulator import ElType, FxParams, MliStatus

from tests.bench.report import Figure, ratio, row

OUTPUTS, INPUTS = 256, 1024


@row("MLI", "fully connected 256x1024 fx16, time over a NumPy int64 matmul")
def fully_connected() -> list[Figure]:
    """Floor 10: checks, exact accumulation with its overflow test, rounding and saturation."""
    random = np.random.default_rng(1)
    weights, x = (
        random.integers(-32768, 32768, (OUTPUTS, INPUTS)),
        random.integers(-32768, 32768, INPUTS),
    )
    bias = random.integers(-32768, 32768, OUTPUTS)
    fx16, q15 = ElType.MLI_EL_FX_16, FxParams(15)
    in_, w, b = (mli.from_array(a, fx16, q15) for a in (x, weights, bias))
    out = mli.empty(2 * OUTPUTS, fx16, FxParams(10))
    outcome = mli.krn_fully_connected_fx16(in_, w, b, out)
    if outcome.status is not MliStatus.MLI_STATUS_OK:
        raise RuntimeError(f"fully connected: {outcome.refusal}, must be accepted")
    times = ratio(lambda: mli.krn_fully_connected_fx16(in_, w, b, out), lambda: weights @ x)
    return [Figure(f"{OUTPUTS}x{INPUTS}", times, floor=10.0)]
