# SPDX-License-Identifier: Apache-2.0
"""Matrix products in high precision: extended where it is affordable, else float64.

Products of two DLFLOAT16 values have 20 significant bits. A sum in float64 is off by less than
n * 2**-53 of the sum of magnitudes, which no rounding to 10 bits sees on well-conditioned data.
Source: zDNN API Reference 1.2.0, zdnn_matmul_op.
"""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from tests.oracle.rounding import Codes, Precise, decoded, rounded

AFFORDABLE = 1 << 22
"""Products that are summed in extended precision."""

RELATIONS: Mapping[int, Callable[[Precise, Precise], npt.NDArray[np.bool_]]] = {
    1: np.greater,
    2: np.greater_equal,
    3: np.equal,
    4: np.not_equal,
    5: np.less_equal,
    6: np.less,
}


def products(a: Codes, b: Codes, turn_a: bool = False, turn_b: bool = False) -> Precise:
    """Return a * b for stacks (s,1,m,n) and (s,1,n,p); a stack of one serves all."""
    left, right = decoded(a), decoded(b)
    left = left.swapaxes(2, 3) if turn_a else left
    right = right.swapaxes(2, 3) if turn_b else right
    if max(a.shape[0], b.shape[0]) * left.shape[2] * left.shape[3] * right.shape[3] > AFFORDABLE:
        left, right = left.astype(np.float64), right.astype(np.float64)
    result: Precise = np.matmul(left, right).astype(np.longdouble)
    return result


def matmul(
    a: Codes, b: Codes, c: Codes, operation: int, turn_a: bool = False, turn_b: bool = False
) -> Codes:
    """Return the codes of a * b + c, or of its relation to c; NINF anywhere on the way is 7FFF."""
    sums = products(a, b, turn_a, turn_b)
    operand = np.broadcast_to(decoded(c), sums.shape)
    if operation == 0:
        return rounded(sums + operand)
    holds = RELATIONS[operation](sums, operand)
    codes = np.where(holds, 0x3E00, 0)
    unknown = np.isnan(sums) | np.isnan(operand)
    return np.where(unknown, 0x7FFF, codes).astype(np.uint16)
