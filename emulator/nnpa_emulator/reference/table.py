# SPDX-License-Identifier: Apache-2.0
"""Tables of calls of kernels, which compiled code alone runs."""

from typing import Any

import numpy as np
import numpy.typing as npt

Cells = npt.NDArray[np.int64]


def place(cells: Cells, at: int, array: npt.NDArray[Any]) -> None:
    """Write the address and the size of an array into two cells."""
    cells[at], cells[at + 1] = array.__array_interface__["data"][0], array.size


def walk(cells: Cells, first: int, end: int) -> int:
    """Run no row: whoever walks makes the call of a row at which the walk stops."""
    del cells, end
    return first
