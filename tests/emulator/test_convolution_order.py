# SPDX-License-Identifier: Apache-2.0
"""Convolution in FP32: one order of additions, whatever the strips, panels, tiles and batches."""

from dataclasses import replace

import numpy as np
import pytest
from nnpa_emulator import Status
from nnpa_emulator.engines import convolution as engine

from tests.emulator.operands import Codes
from tests.emulator.test_convolution import LAYERS, Layer, Operands, convolved, fp64, operands
from tests.oracle import convolution as oracle
from tests.oracle.rounding import decoded, rounded

WIDTHS = [Layer((1, 3, wide, 5), (2, 3), 3, (1, 1), True) for wide in range(1, 27)]
PANELS = [Layer((1, 2, 7, 9), (1, 2), count, (1, 1), True) for count in (47, 48, 49, 64, 112, 113)]
JOINED = [
    Layer((13, 4, 5, 6), (4, 5), 7, (1, 1), False),
    Layer((13, 4, 5, 6), (4, 5), 7, (0, 0), False),
    Layer((3, 5, 5, 70), (1, 1), 65, (1, 1), False),
    Layer((2, 9, 9, 66), (2, 2), 20, (2, 2), True),
    Layer((2, 9, 9, 3), (1, 2), 20, (2, 1), True),
]
CHANNELS = [
    Layer((1, 4, 35, count), (3, 3), 6, (1, 2), True) for count in (4, 8, 15, 63, 64, 100, 128)
]


def in_order(layer: Layer, layer_operands: Operands) -> Codes:
    """Return the oracle's results in FP32."""
    x, kernel, bias = (decoded(array) for array in layer_operands)
    return rounded(oracle.in_order(x, kernel, bias, layer.stride, layer.same))


@pytest.mark.parametrize("layer", [*LAYERS, *WIDTHS, *PANELS, *JOINED, *CHANNELS])
def test_singles_are_summed_in_order(layer: Layer) -> None:
    """FP32 sums add one product after the other, the bias last: every host gets the same bits."""
    layer_operands = operands(layer)
    got, status = convolved(layer, layer_operands)
    assert status == Status.ZDNN_OK
    assert got.tolist() == in_order(layer, layer_operands).tolist()


@pytest.mark.parametrize("weights", [1 << 24, 64 * 130 * 6])
@pytest.mark.parametrize("windows", [1, 200, 3000, 20000])
def test_tiles_and_blocks_change_nothing(
    weights: int, windows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the output is cut, FP32 sums have the same bits."""
    monkeypatch.setattr(engine, "WEIGHTS", weights)
    monkeypatch.setattr(engine, "WINDOWS", windows)
    scattered = Layer((3, 7, 8, 10), (1, 2), 5, (2, 1), True)
    for layer in (LAYERS[2], scattered, Layer((4, 4, 9, 130), (3, 2), 140, (1, 1), True)):
        layer_operands = operands(layer)
        assert (
            convolved(layer, layer_operands)[0].tolist() == in_order(layer, layer_operands).tolist()
        )


def test_images_do_not_depend_on_their_batch() -> None:
    """An image keeps its bits whatever the batch around it, in FP32 too."""
    layer = Layer((9, 3, 3, 700), (3, 3), 70, (1, 1), False)
    layer_operands = operands(layer)
    whole, _ = convolved(layer, layer_operands)
    for index in range(9):
        single = replace(layer, dims=(1, *layer.dims[1:]))
        image = (layer_operands[0][index : index + 1], *layer_operands[1:])
        assert convolved(single, image)[0].tolist() == whole[index : index + 1].tolist()


def test_windows_beyond_the_limit_are_summed_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window whose weights do not fit is summed as `accumulate` fp64 does, to the same bits."""
    layer = Layer((1, 10, 10, 500), (4, 4), 66, (1, 1), False)
    layer_operands = operands(layer)
    exact = convolved(layer, layer_operands, fp64())[0].tolist()
    assert (
        convolved(layer, layer_operands)[0].tolist()
        == in_order(layer, layer_operands).tolist()
        != exact
    )
    monkeypatch.setattr(engine, "WEIGHTS", 64 * 8000 - 1)
    assert convolved(layer, layer_operands)[0].tolist() == exact


def test_ninf_reaches_the_windows_over_it() -> None:
    """A NINF of one element is in the windows over it and in no other: no run reads beyond."""
    layer = Layer((1, 3, 40, 5), (3, 3), 10, (1, 1), True)
    layer_operands = operands(layer)
    bad = layer_operands[0].copy()
    bad[0, 1, 20, 4] = 0x7FFF
    got, status = convolved(layer, (bad, *layer_operands[1:]))
    assert status == Status.ZDNN_ELEMENT_RANGE_VIOLATION
    want = in_order(layer, layer_operands)
    want[0, :, 19:22] = 0x7FFF
    assert np.array_equal(got, want)
