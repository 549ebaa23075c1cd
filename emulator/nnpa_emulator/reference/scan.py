# SPDX-License-Identifier: Apache-2.0
"""Scans over the elements of DLFLOAT16 sticks, a view (dim4, stick columns, dim3, dim2, 64)."""

import numpy as np
import numpy.typing as npt

from nnpa_emulator.reference.layout import MAGNITUDE, Codes, rows_of

SIGN = np.uint16(0x8000)


def code_range(cells: Codes, dim1: int) -> tuple[np.uint16, np.uint16]:
    """Return the code of the least element or -0, and of the greatest or +0."""
    codes = rows_of(cells, dim1)
    positive = np.where(codes & SIGN, np.uint16(0), codes)
    return max(SIGN, np.uint16(codes.max())), np.uint16(positive.max())


def find_codes(cells: Codes, dim1: int, least: int, indices: npt.NDArray[np.int64]) -> int:
    """Count the codes of magnitude `least` or more and note the first `len(indices)` of them."""
    matches = np.argwhere(rows_of(cells, dim1) & MAGNITUDE >= least)
    first = matches[: len(indices)]
    indices[: len(first)] = first
    return len(matches)
