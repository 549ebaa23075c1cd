# SPDX-License-Identifier: Apache-2.0
"""Tiles of sums against one FP32 addition after the other, for this host and for others."""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest
from nnpa_emulator.kernels import registers, tiles

Singles = npt.NDArray[np.float32]
COUNTS = 1, 3, 4, 7, 64, 130
START, STRIDE, PANEL, SUMS = 2, 135, 7, 3


def operands(rows: int, width: int, count: int) -> tuple[Singles, Singles]:
    """Return a left matrix and a panel of numbers whose products are exact in FP32."""
    random = np.random.default_rng((rows, width, count))
    result = (random.standard_normal(shape) * 256 for shape in ((rows, count), (count, width)))
    left, panel = (np.round(array).astype(np.float32) / np.float32(256) for array in result)
    return left, panel


def in_order(sums: Singles, left: Singles, panel: Singles) -> Singles:
    """Add the products to sums, rounding each addition."""
    for k in range(len(panel)):
        sums = sums + left[:, k, None] * panel[k]
    return sums


def check(work: Callable[..., None], rows: int, width: int, columns: int, count: int) -> None:
    """Compare fresh sums, then further ones, of the first columns; nothing else is written."""
    left, panel = operands(rows, width, count)
    stored = np.zeros(START + rows * STRIDE, np.float32)
    for row in range(rows):
        stored[START + row * STRIDE :][:count] = left[row]
    panels = np.concatenate((np.full(PANEL, np.nan, np.float32), panel.reshape(-1)))
    sums = np.full(SUMS + rows * width + 1, np.nan, np.float32)
    want = np.zeros((rows, width), np.float32)
    for fresh in (True, False):
        want = in_order(want, left, panel)
        work(sums, SUMS, stored, START, STRIDE, panels, PANEL, width, count, fresh)
        got = sums[SUMS : SUMS + rows * width].reshape(rows, width)
        assert np.array_equal(got[:, :columns], want[:, :columns])
        assert np.isnan(got[:, columns:]).all()
    assert np.isnan(sums[:SUMS]).all()
    assert np.isnan(sums[-1])


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    ("width", "columns"),
    [(64, 64), (64, 49), (48, 48), (64, 33), (48, 32), (48, 17), (64, 16), (48, 1)],
)
@pytest.mark.parametrize("rows", range(1, tiles.ROWS + 1))
def test_tiles_of_this_host(rows: int, width: int, columns: int, count: int) -> None:
    """A tile of any number of rows has the sums in order over the columns that are asked for."""
    accumulate: Callable[..., None] = tiles.accumulate

    def work(*inputs: Any) -> None:
        accumulate(*inputs[:-2], columns, inputs[-2], rows, inputs[-1])

    step = min(registers.STEP, 16) if columns <= 48 else registers.STEP
    check(work, rows, width, -(-columns // step) * step, count)


@pytest.mark.parametrize(("lanes", "vectors"), [(16, 4), (16, 3), (16, 1), (8, 2), (4, 4), (4, 2)])
def test_tiles_of_other_hosts(lanes: int, vectors: int) -> None:
    """Tiles for registers of AVX-512, AVX, NEON and SSE have the same bits."""
    tile = registers.make_tile(tiles.ROWS, vectors, lanes)

    def work(
        sums: Singles, at: int, left: Singles, start: int, stride: int, panels: Singles,
        panel: int, width: int, count: int, fresh: bool,
    ) -> None:  # fmt: skip
        tile(sums, at, left, start, stride, panels, panel, width, count, fresh)

    compiled: Any = numba.njit(work)
    for count in COUNTS:
        check(compiled, tiles.ROWS, 64, lanes * vectors, count)
