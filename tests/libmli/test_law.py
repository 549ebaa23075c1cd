# SPDX-License-Identifier: Apache-2.0
"""The law of libmli: in every build, each call leaves in C what it leaves in Python."""

import sys
from pathlib import Path

import pytest
from mli_emulator import Accumulator, Conversion, DebugLevel, Options, Rounding

from tests.libmli.comparison import Comparison
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
_QUICK_CALLS, _CALLS = 1_000, 10_000


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
    """Of a thousand calls, many spoiled, memory, fields, status and text are Python's."""
    comparison = _compare(BUILDS[build], _QUICK_CALLS, 1, tmp_path)
    names = {function for function, _ in comparison.expected}
    assert len(names) == 22, "a function was never called"


@pytest.mark.heavy
@pytest.mark.parametrize("build", BUILDS)
def test_a_hundred_thousand_random_calls(
    build: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten thousand calls under each of ten builds are Python's, under ASan and UBSan."""
    seed = 100 + list(BUILDS).index(build)
    comparison = _compare(BUILDS[build], _CALLS, seed, tmp_path)
    kinds = comparison.refusals()
    with capsys.disabled():
        print(f"\nlibmli, {build}: {_CALLS} calls, {kinds} refused, as in Python", file=sys.stderr)
    assert _CALLS / 10 < kinds < _CALLS / 2 or BUILDS[build].debug is DebugLevel.RELEASE
