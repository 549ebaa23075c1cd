# SPDX-License-Identifier: Apache-2.0
"""The law of libmli: in every build, each call has the same effects in C as in Python."""

import sys
from pathlib import Path

import numpy as np
import pytest
from mli_emulator import (
    Accumulator,
    Conversion,
    DebugLevel,
    Options,
    RnnCellCfg,
    RnnMode,
    RnnOutActivation,
    Rounding,
)

from tests.libmli.calls import Call
from tests.libmli.comparison import Comparison
from tests.libmli.random_calls import Generator
from tests.libmli.spoiled_calls import SpoiledGenerator

_UP = Rounding.UP
_HARDWARE = Accumulator.HARDWARE
_LIBRARY, _EARLY = Conversion.LIBRARY_2_0_2, Conversion.LIBRARY_2_0_EA
BUILDS = {
    "default": Options(),
    "release": Options(debug=DebugLevel.RELEASE),
    "assert": Options(debug=DebugLevel.ASSERT),
    "debug, up": Options(_UP, DebugLevel.DEBUG),
    "full": Options(debug=DebugLevel.FULL),
    "full, hardware, 2.0.2": Options(_UP, DebugLevel.FULL, _HARDWARE, _LIBRARY),
    "hardware, 2.0.2": Options(accumulator=_HARDWARE, conversion=_LIBRARY),
    "up, hardware, 2.0.2": Options(_UP, accumulator=_HARDWARE, conversion=_LIBRARY),
    "2.0 EA": Options(conversion=_EARLY),
    "up, 2.0 EA": Options(_UP, conversion=_EARLY),
}
_QUICK = ("default", "full, hardware, 2.0.2", "2.0 EA")
_QUICK_CALLS, _CALLS, _SHARED_CALLS = 1_000, 10_000, 60


def _compare(options: Options, calls: int, seed: int, folder: Path) -> Comparison:
    comparison = Comparison(options, folder)
    generator = SpoiledGenerator(seed)
    for _ in range(calls):
        comparison.make(generator.call())
    differences = comparison.differences()
    assert not differences, "\n".join(differences[:10])
    return comparison


@pytest.mark.parametrize("build", _QUICK)
def test_random_calls(build: str, tmp_path: Path) -> None:
    """A thousand calls, many spoiled, have Python's memory, fields, status and text."""
    comparison = _compare(BUILDS[build], _QUICK_CALLS, 1, tmp_path)
    names = {function for function, _ in comparison.expected}
    assert len(names) == 22, "a function was never called"


def _overwrites_its_state(call: Call) -> bool:
    """Tell whether a call from batch to last without activation has out over prev_out."""
    cfg = call.arguments.get("cfg")
    if not isinstance(cfg, RnnCellCfg) or "basic_rnn" not in call.function:
        return False
    slots = call.slots
    last, none = RnnMode.RNN_BATCH_TO_LAST, RnnOutActivation.RNN_ACT_NONE
    state, out = slots["prev_out"].data, slots["out"].data
    shared = state is not None and out is not None and np.may_share_memory(state, out)
    return (cfg.mode, cfg.act) == (last, none) and shared


def test_a_state_that_is_overwritten(tmp_path: Path) -> None:
    """A basic RNN cell reads the whole previous output before it writes over it."""
    comparison = Comparison(Options(), tmp_path)
    generator = Generator(7)
    while len(comparison.expected) < _SHARED_CALLS:
        call = generator.call()
        if _overwrites_its_state(call):
            comparison.make(call)
    assert comparison.differences() == []


@pytest.mark.heavy
@pytest.mark.parametrize("build", BUILDS)
def test_a_hundred_thousand_random_calls(
    build: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten thousand calls in each of ten builds have Python's effects, under ASan and UBSan."""
    seed = 100 + list(BUILDS).index(build)
    comparison = _compare(BUILDS[build], _CALLS, seed, tmp_path)
    kinds = comparison.refusals()
    with capsys.disabled():
        print(f"\nlibmli, {build}: {_CALLS} calls, {kinds} refused, as in Python", file=sys.stderr)
    assert _CALLS / 10 < kinds < _CALLS / 2 or BUILDS[build].debug is DebugLevel.RELEASE
