# SPDX-License-Identifier: Apache-2.0
"""DLFLOAT16 codes as integers of the same order, for minima and maxima in vector code.

-0 is less than +0. NINF of either sign is the greatest key in `greater` and the least in `lesser`,
so that it wins the selection and poisons the result.
"""

import numpy as np

from nnpa_emulator.kernels.convert import MAGNITUDE16
from nnpa_emulator.kernels.jit import inlined

NINF16 = np.uint16(0x7FFF)
MIN_KEY, MAX_KEY = np.int16(-0x8000), np.int16(0x7FFF)
_SIGN_BITS = np.int16(15)
_MAGNITUDE_KEY = np.int16(0x7FFF)


@inlined
def ordered(code: np.uint16) -> np.int16:
    """Map a code to its key; NINF lies beyond all numbers of its sign."""
    number = np.int16(code)
    return np.int16(number ^ (np.int16(number >> _SIGN_BITS) & _MAGNITUDE_KEY))


@inlined
def from_ordered(key: np.int16) -> np.uint16:
    """Undo `ordered`."""
    return np.uint16(np.int16(key ^ (np.int16(key >> _SIGN_BITS) & _MAGNITUDE_KEY)))


@inlined
def greater(code: np.uint16) -> np.int16:
    """Return the key for a search for the greatest: NINF of either sign wins."""
    ninf = np.uint16(code & MAGNITUDE16) == NINF16
    return MAX_KEY if ninf else ordered(code)


@inlined
def lesser(code: np.uint16) -> np.int16:
    """Return the key for a search for the least: NINF of either sign wins."""
    ninf = np.uint16(code & MAGNITUDE16) == NINF16
    return MIN_KEY if ninf else ordered(code)
