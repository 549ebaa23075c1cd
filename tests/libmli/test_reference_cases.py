# SPDX-License-Identifier: Apache-2.0
"""The reference cases of the MLI library, made in C.

The rules of tests/mli compare Python with the files. A recorder keeps every call of a rule, and C
makes it, too, in a build with its options.
"""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import mli_emulator as mli
import pytest
from mli_emulator import Options, Outcome

from tests.libmli.calls import FUNCTIONS, Call
from tests.libmli.comparison import Comparison
from tests.mli.golden import Row, run_file
from tests.mli.test_golden import FILES

_FUNCTIONS = {name: mli.find(name).function for name in FUNCTIONS}


@dataclass(slots=True)
class Recorder:
    """Stands in for the emulator's functions: makes their calls, and keeps them for C."""

    folder: Path
    comparisons: dict[Options, Comparison] = field(default_factory=dict)

    def replacement(self, name: str) -> Callable[..., Outcome | int]:
        """Return the function that replaces a function of the emulator."""
        signature = inspect.signature(_FUNCTIONS[name])

        def recorded(*values: object, **named: object) -> Outcome | int:
            arguments = dict(signature.bind(*values, **named).arguments)
            options = arguments.pop("options", mli.DEFAULT)
            assert isinstance(options, Options)
            outcome = self._comparison(options).make(Call(name, arguments)).outcome
            assert outcome is not None
            return outcome

        return recorded

    def _comparison(self, options: Options) -> Comparison:
        if options not in self.comparisons:
            folder = self.folder / str(len(self.comparisons))
            folder.mkdir()
            self.comparisons[options] = Comparison(options, folder)
        return self.comparisons[options]

    def calls(self) -> int:
        """Count the calls that were made."""
        return sum(len(comparison.expected) for comparison in self.comparisons.values())


def _replace(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the rules call the recorder."""
    functions = {name: recorder.replacement(name) for name in FUNCTIONS}
    for name, function in functions.items():
        monkeypatch.setattr(mli, name, function)

    def find(name: str) -> SimpleNamespace:
        return SimpleNamespace(function=functions[name.removeprefix("mli_")])

    monkeypatch.setattr(mli, "find", find)


def test_every_reference_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every call of every case has the same effects in C as in Python, which agrees with files."""
    recorder = Recorder(tmp_path)
    _replace(recorder, monkeypatch)
    rows: list[tuple[Row, int]] = []
    for path in FILES:
        before = recorder.calls()
        rows.append((run_file(path), recorder.calls() - before))
    monkeypatch.undo()
    assert [row.file for row, _ in rows if row.asserted and row.differences] == []
    for comparison in recorder.comparisons.values():
        differences = comparison.differences()
        assert not differences, "\n".join(differences[:10])
    with capsys.disabled():
        print(f"\n{_table(rows)}", file=sys.stderr)


def _table(rows: list[tuple[Row, int]]) -> str:
    lines = [f"{'file':<42}{'cases':>6}{'calls in C':>12}"]
    lines += [f"{row.file:<42}{row.cases:>6}{calls:>12}" for row, calls in rows]
    cases, calls = sum(row.cases for row, _ in rows), sum(calls for _, calls in rows)
    return "\n".join([*lines, f"{'all':<42}{cases:>6}{calls:>12}"])
