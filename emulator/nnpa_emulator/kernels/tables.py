# SPDX-License-Identifier: Apache-2.0
"""Conversion between DLFLOAT16 and the other 16-bit formats as tables of 65 536 entries.

The low half of an entry is the result, the high half its `Flags` bits and NINF_BIT.
Source: the rules of `nnpa_emulator.dlfloat`, which the tables hold for every input.
"""

from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from nnpa_emulator import dlfloat
from nnpa_emulator.dlfloat import Codes
from nnpa_emulator.ztensor import DataTypes

NINF_BIT: Final = 0x10
"""Says, beside the flags, that the code is NINF."""


@lru_cache(maxsize=4)
def from_bits(kind: int, saturate: bool) -> npt.NDArray[np.uint32]:
    """Tabulate the conversion of FP16 or BFLOAT bits to codes: code low, flags and NINF high."""
    bits = np.arange(65536, dtype=np.uint16)
    if kind == DataTypes.FP16:
        with np.errstate(invalid="ignore"):
            values = bits.view(np.float16).astype(np.float32)
    else:
        values = dlfloat.widen_bfloat(bits)
    codes = dlfloat.from_fp32(dlfloat.saturate_fp32(values) if saturate else values)
    return _tabulate(codes, dlfloat.signals_from_fp32(values), codes)


@lru_cache(maxsize=2)
def to_bits(kind: int) -> npt.NDArray[np.uint32]:
    """Tabulate the conversion of codes to FP16 or BFLOAT bits: bits low, flags and NINF high."""
    codes = np.arange(65536, dtype=np.uint16)
    if kind == DataTypes.FP16:
        results = dlfloat.to_fp16(codes).view(np.uint16)
        return _tabulate(results, dlfloat.signals_to_fp16(codes), codes)
    return _tabulate(dlfloat.to_bfloat(codes), dlfloat.signals_to_fp32(codes), codes)


def _tabulate(
    results: Codes, signals: npt.NDArray[np.uint8], codes: Codes
) -> npt.NDArray[np.uint32]:
    """Join results, their flags and whether the code is NINF into table entries."""
    ninf = np.where((codes & dlfloat.MAGNITUDE) == dlfloat.NINF, NINF_BIT, 0)
    return results.astype(np.uint32) | ((signals | ninf) << 16).astype(np.uint32)
