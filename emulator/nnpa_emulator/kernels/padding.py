# SPDX-License-Identifier: Apache-2.0
"""Padding of DLFLOAT16 4DFEATURE sticks: cells behind dim1 and rows behind dim2.

Source: zDNN API Reference 1.2.0, "Stickified tensors".
"""

from nnpa_emulator.kernels.convert import Codes
from nnpa_emulator.kernels.jit import implements
from nnpa_emulator.reference import layout as reference
from nnpa_emulator.reference.layout import Dims, Pages

PAGE_CELLS = 2048


@implements(reference.clear_padding)
def clear_padding(out: Codes, dims: Dims, pages: Pages) -> None:
    """Set the padding to zero and leave the elements alone, so that they may be an operand's."""
    d4, d3, d2, d1 = dims
    last = (d1 + 63) // 64 - 1
    real = d1 - 64 * last
    for e4 in range(d4):
        for column in range(last + 1):
            for e3 in range(d3):
                page = (e4 * pages[0] + column * pages[1] + e3 * pages[2]) * PAGE_CELLS
                if column == last and real < 64:
                    for e2 in range(d2):
                        out[page + e2 * 64 + real : page + e2 * 64 + 64] = 0
                out[page + d2 * 64 : page + pages[2] * PAGE_CELLS] = 0
