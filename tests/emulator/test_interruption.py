# SPDX-License-Identifier: Apache-2.0
"""Large operations in parts: the same bits, and an end between two parts."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest
from nnpa_emulator import MACHINES, Guest, interruption
from nnpa_emulator.engines import matmul

from tests.emulator.operands import Codes
from tests.emulator.test_convolution import LAYERS, convolved, operands
from tests.emulator.test_matmul import Sizes, Turns, multiply
from tests.oracle.rounding import rounded

SHAPES: list[Sizes] = [(1, 33, 65, 300), (3, 5, 130, 129), (2, 64, 64, 64), (1, 300, 5, 1)]
TURNS: list[Turns] = [(False, False), (True, False), (False, True), (True, True)]


class Stopped(Exception):
    """The check of these tests raises it."""


@pytest.fixture(autouse=True)
def no_check() -> Iterator[None]:
    """Leave no check behind."""
    yield
    interruption.thread.check = None


def stop_at(call: int) -> None:
    """Have the check raise from its call number `call` on."""
    calls = count(1)

    def check() -> None:
        if next(calls) >= call:
            raise Stopped

    interruption.thread.check = check


def random(stacks: int, rows: int, columns: int, turned: bool = False) -> Codes:
    """Return random codes, exchanged rows and columns if turned; sums of products are inexact."""
    generator = np.random.default_rng((stacks, rows, columns))
    sizes = (columns, rows) if turned else (rows, columns)
    return rounded(generator.normal(size=(stacks, 1, *sizes)))


@pytest.mark.parametrize("relation", [0, 5])
@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("panels", [0, matmul.MAX_PANELS])
def test_products_in_parts_have_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, shape: Sizes, turns: Turns, relation: int, panels: int
) -> None:
    """A product cut by stacks and columns has the same bits as the uncut one."""
    s, m, n, p = shape
    monkeypatch.setattr(matmul, "MAX_PANELS", panels)
    a, b, c = random(s, m, n, turns[0]), random(s, n, p, turns[1]), random(s, 1, p)
    guest = Guest(MACHINES["telum2"])
    calls = [("matmul_transpose_op", (a, b, c)), ("matmul_transpose_op", (a, b[:1], c[:1]))]
    whole = [multiply(name, *matrices, relation, guest, turns) for name, matrices in calls]
    monkeypatch.setattr(matmul, "MULTIPLICATIONS", 1)
    for (name, matrices), (codes, status) in zip(calls, whole, strict=True):
        repeated = multiply(name, *matrices, relation, guest, turns)
        assert repeated[0].tolist() == codes.tolist()
        assert repeated[1] == status


@pytest.mark.parametrize("accumulate", ["fp32", "fp64"])
def test_a_product_ends_between_parts(monkeypatch: pytest.MonkeyPatch, accumulate: Any) -> None:
    """The check is called for each part, and its exception ends the operation."""
    monkeypatch.setattr(matmul, "MULTIPLICATIONS", 1)
    monkeypatch.setattr(matmul, "BLOCK", 1 << 14)
    guest = Guest(MACHINES["telum2"], accumulate=accumulate)
    # Sizes of no other test: blocks are remembered by them.
    matrices = random(1, 71, 67), random(1, 67, 259), random(1, 1, 259)
    stop_at(3)
    with pytest.raises(Stopped):
        multiply("matmul_op", *matrices, 0, guest)


@pytest.mark.parametrize("accumulate", ["fp32", "fp64"])
def test_a_convolution_ends_between_tiles(accumulate: Any) -> None:
    """A convolution calls the check for each tile of its output."""
    guest = Guest(MACHINES["telum2"], accumulate=accumulate)
    layer = LAYERS[1]
    stop_at(1)
    with pytest.raises(Stopped):
        convolved(layer, operands(layer), guest)
    stop_at(1 << 30)
    convolved(layer, operands(layer), guest)
