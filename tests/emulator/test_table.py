# SPDX-License-Identifier: Apache-2.0
"""Rows of a table have the bits of the calls that they stand for; a walk ends where one fails."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from nnpa_emulator import interruption, scratch, table
from nnpa_emulator.kernels import jit
from nnpa_emulator.kernels import table as kernels
from nnpa_emulator.table import CLEAN, MAX_WORK, Row, Scratch, Table

from tests.emulator.kernel_cases import CASES

pytestmark = pytest.mark.shortcut
MODULES = {name.partition(".")[2]: name for name in jit.KERNELS}
ONE, NINF = 0x3E00, 0x7FFF


def _copied(operands: Sequence[Any]) -> list[Any]:
    return [each.copy() if isinstance(each, np.ndarray) else each for each in operands]


@pytest.mark.parametrize("number", range(len(kernels.NAMES)), ids=kernels.NAMES)
def test_a_row_gives_the_bits_of_its_call(number: int) -> None:
    """Each kernel reads its operands from the row: it writes what a call from Python writes."""
    assert jit.load()
    name, ran = MODULES[kernels.NAMES[number]], False
    for seed in range(10):
        operands, written = CASES[name](np.random.default_rng((seed, *name.encode())))
        if name.endswith("_copy") and operands[0].itemsize != 2:
            continue  # rows copy cells of two bytes
        from_python, walked = _copied(operands), _copied(operands)
        met = jit.KERNELS[name].compiled()(*from_python)
        largest = 0 if met is None else int(met[0] if isinstance(met, tuple) else met)
        for limit, reached in ((largest, 0), (largest + 1, 1)):
            assert Table([[Row(number, tuple(walked), limit, 1)]]).run(0, 1, None) == reached
        for place in written:
            assert from_python[place].tobytes() == walked[place].tobytes()
        ran = True
    assert ran


def _add(a: Any, b: Any, out: Any, work: int = 1) -> Row:
    return Row(kernels.BINARY, (0, a, b, out, (1, 1, 1, 1, 64), True), NINF, work)


def _cells(code: int) -> Any:
    return np.full(2048, code, np.uint16)


def test_a_walk_ends_at_the_first_step_that_is_not_clean() -> None:
    """The step is named, those behind it have not run, and a walk goes on behind it."""
    one, bad, outs = _cells(ONE), _cells(NINF), [_cells(0) for _ in range(4)]
    steps = [[_add(one, one, outs[0])], [_add(one, one, outs[1]), _add(one, bad, outs[2])],
             [_add(one, one, outs[3])]]  # fmt: skip
    made = Table(steps)
    assert made.run(0, 3, None) == 1
    assert outs[0][0] == outs[1][0] == 0x4000
    assert outs[3][0] == 0
    assert made.run(2, 3, None) == 3
    assert outs[3][0] == 0x4000


def test_a_walk_ends_at_a_step_that_lacks_a_supply() -> None:
    """What a run supplies is asked for once a walk; the steps before it have run."""
    one, out, last, asked = _cells(ONE), _cells(0), _cells(0), list[object]()

    def supply(context: object) -> Any:
        asked.append(context)
        return one if context else None

    made = Table([[_add(one, one, out)], [_add(supply, one, last)]])
    assert made.run(0, 2, None) == 1
    assert (out[0], last[0]) == (0x4000, 0)
    assert made.run(1, 2, "a run") == 2
    assert (last[0], asked) == (0x4000, [None, "a run"])


@pytest.mark.parametrize("count", [2048, 1 << 20, 1 << 21])
def test_rows_share_scratch_by_role(count: int) -> None:
    """Rows hand elements to each other in memory of one role, whose place may change."""
    source, target, other = _cells(ONE), _cells(0), _cells(0)
    place = (1, 1, 32, 64), (1, 1, 1)
    line, beside = Scratch("line", 2048, np.uint16), Scratch("beside", count, np.uint16)
    made = Table([[
        Row(kernels.UNSTICKIFY_COPY, (source, line, *place), CLEAN, 1),
        Row(kernels.UNSTICKIFY_COPY, (other, beside, *place), CLEAN, 1),
        Row(kernels.STICKIFY_COPY, (line, target, *place, True), CLEAN, 1),
    ]])  # fmt: skip
    for code in (ONE, 0x4000):
        source[:], target[:] = code, 0
        scratch.release()
        assert made.run(0, 1, None) == 1
        assert (target == code).all()


def test_a_walk_can_be_interrupted_where_its_work_adds_up() -> None:
    """Before more than the most work the check is called; what raises there ends the walk."""
    one, outs = _cells(ONE), [_cells(0) for _ in range(4)]
    made = Table([[_add(one, one, out, MAX_WORK // 2)] for out in outs])
    checks = list[int]()

    def check() -> None:
        checks.append(sum(int(out[0] == 0x4000) for out in outs))
        raise TimeoutError

    interruption.thread.check = check
    try:
        with pytest.raises(TimeoutError):
            made.run(0, 4, None)
    finally:
        interruption.thread.check = None
    assert checks == [2]
    assert made.run(0, 4, None) == 4


def test_without_compiled_kernels_no_row_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference leaves every row to Python, which makes the same call."""
    one, out = _cells(ONE), _cells(0)
    row = _add(one, one, out)
    monkeypatch.setattr(kernels, "walk", jit.KERNELS["table.walk"].reference)
    assert table.Table([[row]]).run(0, 1, None) == 0
    assert out[0] == 0
    assert row.run(None)
    assert out[0] == 0x4000
