# SPDX-License-Identifier: Apache-2.0
"""Tiles of sums of products for kernels: the names that `registers` has code for."""

from collections.abc import Callable
from typing import Final

from nnpa_emulator.kernels.jit import kernel_in

ROWS: Final = 6
"""Most rows of a tile."""

accumulate: Callable[..., None] = kernel_in("nnpa_emulator.kernels.registers", "accumulate")
"""`registers.accumulate`."""
