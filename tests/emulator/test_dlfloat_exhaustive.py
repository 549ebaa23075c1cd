# SPDX-License-Identifier: Apache-2.0
"""Rounding of every FP32 bit pattern there is, kernel against integer oracle."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from nnpa_emulator import stick
from nnpa_emulator.ztensor import DataLayouts, TensorDesc, getsize_ztensor

from tests.oracle import dlfloat as oracle

CHUNK = 1 << 20
DESC = TensorDesc(DataLayouts.ZDNN_NHWC, 0, 0, 1, 1, CHUNK // 64, 64)


def mismatches(worker: int) -> int:
    """Count wrong codes and wrong flags in every second chunk of the 2^32 patterns."""
    buffer = np.zeros(getsize_ztensor(DESC), np.uint8)
    expected = np.empty(CHUNK, np.uint16)
    wrong = 0
    for first in range(worker * CHUNK, 1 << 32, 2 * CHUNK):
        words = np.arange(first, first + CHUNK, dtype=np.uint32).view(np.float32)
        met = stick.stickify(words, DESC, buffer, fresh=True)
        flags = oracle.codes_of_fp32(first, expected)
        wrong += int(np.count_nonzero(buffer.view(np.uint16) != expected))
        wrong += met.flags != flags
        wrong += met.any_ninf != bool(np.any((expected & 0x7FFF) == oracle.NINF))
    return wrong


@pytest.mark.heavy
def test_every_fp32_pattern() -> None:
    """All 2^32 FP32 patterns become the code and raise the flags that exact arithmetic says."""
    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(mismatches, range(2))) == 0
