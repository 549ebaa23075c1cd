# SPDX-License-Identifier: Apache-2.0
"""The seam of operands: dense values of sticks for sums of products.

The plain function widens an operand in every call. A shortcut may take its place in `dense`, which
every sum of products calls, and in `repeated`, for calls that are prepared.
"""

from collections.abc import Callable, Hashable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from nnpa_emulator.ztensor import Array

Buffer: TypeAlias = npt.NDArray[np.uint8]
Values: TypeAlias = tuple[Array, bool]
"""Dense values, and whether NINF is among them."""
Widen: TypeAlias = Callable[[bool], Values]
"""Widens an operand: True asks for memory of its own, False does not need it."""


def widen_now(_buffer: Buffer, _key: Hashable, widen: Widen) -> Values:
    """Return the values of a part of a buffer that `key` describes in full."""
    return widen(False)


dense: Callable[[Buffer, Hashable, Widen], Values] = widen_now


def repeat(buffer: Buffer, key: Hashable, widen: Widen) -> Callable[[], Values]:
    """Return a function that does `dense` repeatedly."""
    return lambda: dense(buffer, key, widen)


repeated: Callable[[Buffer, Hashable, Widen], Callable[[], Values]] = repeat
