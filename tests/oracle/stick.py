# SPDX-License-Identifier: Apache-2.0
"""Places of elements in sticks, by a walk through memory page by page, stick by stick.

Source: zDNN API Reference 1.2.0, "Stickified tensors": 4096-byte pages of 32 sticks of 128 bytes.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

FEATURE, KERNEL, WEIGHTS = 0, 1, 2
Dims = tuple[int, int, int, int]


def offsets(fmt: int, cell_bytes: int, dims: Dims) -> tuple[npt.NDArray[np.int64], int]:
    """Walk the buffer; return the byte offset of every element and the buffer's size in bytes."""
    result = np.full(dims, -1, np.int64)
    d4, d3, d2, d1 = dims
    pair = 2 if fmt == WEIGHTS else 1
    cells = 64 if fmt == WEIGHTS else 128 // cell_bytes
    position = 0
    for e4, column, e3 in _planes(fmt, d4, -(-d1 // cells), d3):
        for first in range(0, d2, 32 * pair):
            for row in range(first, first + 32 * pair, pair):
                for e1 in range(column * cells, column * cells + cells):
                    for e2 in range(row, row + pair):
                        if e2 < d2 and e1 < d1:
                            result[e4, e3, e2, e1] = position
                        position += cell_bytes
    return result, position


def _planes(fmt: int, d4: int, columns: int, d3: int) -> Iterator[tuple[int, int, int]]:
    """Yield (dim4, stick column, dim3) in memory order."""
    if fmt == KERNEL:
        for column in range(columns):
            for e4 in range(d4):
                for e3 in range(d3):
                    yield e4, column, e3
        return
    for e4 in range(d4):
        for column in range(columns):
            for e3 in range(d3):
                yield e4, column, e3


def gate_offsets(
    slices: int, gates: int, rows: int, columns: int, halves: int
) -> npt.NDArray[np.int64]:
    """Return the byte offset of (slice, gate, row, column) of a concatenated tensor.

    Slices and gates are blocks of their own, one after the other; behind a bidirectional layer
    (`halves` 2) each half of the rows starts at a multiple of 64 rows.
    """
    half = rows // halves
    spread = -(-half // 64) * 64 if halves == 2 else half
    block, size = offsets(FEATURE, 2, (1, 1, spread * halves, columns))
    places = [half_index * spread + row for half_index in range(halves) for row in range(half)]
    first = block[0, 0, places]
    starts = np.arange(slices * gates).reshape(slices, gates, 1, 1) * size
    return starts + first
