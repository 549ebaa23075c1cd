# SPDX-License-Identifier: Apache-2.0
"""Units in the last place of DLFLOAT16: values to codes, codes to places on the number line.

Source: "DLFloat: A 16-b Floating Point Format Designed for Deep Learning Training and Inference",
ARITH 2019: sign, 6 bits of exponent (bias 31), 9 of fraction, no subnormals; magnitude 0 is zero,
7FFF is not a number or infinity.
"""

import numpy as np
import numpy.typing as npt

NINF = 0x7FFF
_LINE = (1023 - 31) << 9  # float64's exponent and nine bits of fraction of 2^-31, the code of zero
_DROPPED = 52 - 9  # bits of float64's fraction that a code does not have

Codes = npt.NDArray[np.int64]


def codes_of(values: npt.NDArray[np.float64]) -> Codes:
    """Round values to DLFLOAT16 codes: to nearest, ties away, NINF beyond the greatest."""
    bits = values.view(np.int64)
    low, high = _LINE << _DROPPED, (_LINE + NINF) << _DROPPED
    clamped = np.clip(bits & 0x7FFF_FFFF_FFFF_FFFF, low, high)
    magnitude = ((clamped + (1 << (_DROPPED - 1))) >> _DROPPED) - _LINE
    codes: Codes = np.where(np.signbit(values), magnitude | 0x8000, magnitude)
    return codes


def places_of(codes: Codes) -> Codes:
    """Return the places of codes on the number line; both zeros and NINF have place 0."""
    magnitude = codes & NINF
    place = np.where(codes & 0x8000, -magnitude, magnitude)
    return np.where(magnitude == NINF, 0, place)


def distances(ours: Codes, theirs: Codes) -> tuple[Codes, npt.NDArray[np.bool_]]:
    """Return the distances of codes in units in the last place, and where only one is NINF."""
    distance = np.abs(places_of(ours) - places_of(theirs))
    strange: npt.NDArray[np.bool_] = (ours & NINF == NINF) != (theirs & NINF == NINF)
    return distance, strange


def values_of(codes: Codes) -> npt.NDArray[np.float64]:
    """Return the values of codes; NINF is NaN."""
    magnitude = codes & NINF
    bits = (magnitude + _LINE) << _DROPPED
    positive = np.where(magnitude == 0, 0.0, bits.view(np.float64))
    signed = np.where(codes & 0x8000, -positive, positive)
    values: npt.NDArray[np.float64] = np.where(magnitude == NINF, np.nan, signed)
    return values
