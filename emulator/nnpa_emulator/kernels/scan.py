# SPDX-License-Identifier: Apache-2.0
"""Scans over the real elements of DLFLOAT16 sticks.

`cells` is a view (dim4, stick columns, dim3, dim2, 64) of the sticks; padding is never read.
"""

import numpy as np
import numpy.typing as npt

from nnpa_emulator.kernels.convert import Codes
from nnpa_emulator.kernels.jit import implements
from nnpa_emulator.reference import scan as reference

_MAGNITUDE = np.uint16(0x7FFF)
_SIGN = np.uint16(0x8000)


@implements(reference.find_codes)
def find_codes(cells: Codes, dim1: int, least: int, indices: npt.NDArray[np.int64]) -> int:
    """Count the codes of magnitude `least` or more and note the first `len(indices)` of them.

    `indices` takes rows of (e4, e3, e2, e1), in row-major order of the transformed dims.
    """
    count = 0
    for e4 in range(cells.shape[0]):
        for e3 in range(cells.shape[2]):
            for e2 in range(cells.shape[3]):
                for e1 in range(dim1):
                    if cells[e4, e1 // 64, e3, e2, e1 % 64] & _MAGNITUDE >= least:
                        if count < indices.shape[0]:
                            indices[count, 0] = e4
                            indices[count, 1] = e3
                            indices[count, 2] = e2
                            indices[count, 3] = e1
                        count += 1
    return count


@implements(reference.code_range)
def code_range(cells: Codes, dim1: int) -> tuple[np.uint16, np.uint16]:
    """Return the code of the least element or -0, and of the greatest or +0.

    Among negative codes the unsigned greatest is the least number, so one unsigned and one signed
    search do it; NINF sorts beyond every number of its sign.
    Source: behaviour of zdnn_getrange_ztensor in zDNN 1.2.0.
    """
    least, greatest = _SIGN, np.uint16(0)
    for e4 in range(cells.shape[0]):
        for column in range(cells.shape[1]):
            real = min(64, dim1 - 64 * column)
            for e3 in range(cells.shape[2]):
                for e2 in range(cells.shape[3]):
                    for e1 in range(real):
                        code = cells[e4, column, e3, e2, e1]
                        least = max(least, code)
                        greatest = max(greatest, np.uint16(0) if code & _SIGN else code)
    return least, greatest
