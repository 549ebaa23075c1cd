# SPDX-License-Identifier: Apache-2.0
"""The doctor and programs in Python: an example, a seeded fault, one that names its machine."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from nnpa_client.doctor import Report, examine, verdict

pytestmark = pytest.mark.heavy
HERE = Path(__file__).parent
EXAMPLE = HERE.parents[2] / "client/python/examples/lstm_forward.py"
TELUMS = ("telum1", "telum2")
ON_Z16 = """\
import numpy as np
from nnpa_client import connect, zdnn
with connect(machine="z16") as session:
    zdnn.tanh(session.ztensor(np.ones(4, np.float32)))
"""


def _examined(program: Path, quick: bool, machines: Sequence[str] = TELUMS) -> Report:
    command = [sys.executable, str(program)]
    return examine(command, machines, 60.0, quick, progress=_ignore)


def _ignore(_what: str, _done: int, _total: int) -> None:
    """Take no notice of progress."""


def test_an_example_has_no_findings() -> None:
    """An example in Python has no finding; possible savings of its client are advice."""
    report = _examined(EXAMPLE, quick=True)
    assert report.is_clean, verdict(report)
    assert any("with session.pipeline()" in text for text in report.gains)
    without = next(run for run in report.runs if run.title == "without NNPA")
    assert without.ended == "exit code 1"
    assert set(without.errors) == {"zdnn_allochelper_ztensor: ZDNN_UNSUPPORTED_AIU_EXCEPTION"}


def test_a_swallowed_error() -> None:
    """A swallowed exception is a status that the program passes over, at that call only."""
    report = _examined(HERE / "programs/swallowed_error.py", quick=False)
    (finding,) = report.findings
    assert finding.rule == "ignored-error"
    assert finding.text.startswith("zdnn_add, call 4: it goes on as if nothing were wrong")


@pytest.mark.parametrize(
    ("name", "faults"),
    [
        ("drift_monitor", {"transformed-twice": "the same 131072 bytes were transformed 12 times"}),
        (
            "exposures",
            {
                "ignored-warning": "zdnn_mul: ZDNN_ELEMENT_RANGE_VIOLATION",
                "ignored-error": "zdnn_transform_origtensor: ZDNN_CONVERT_FAILURE",
            },
        ),
    ],
)
def test_seeded_faults_are_found(name: str, faults: dict[str, str]) -> None:
    """The doctor finds exactly the seeded fault; the program's author did not know the rules."""
    report = _examined(HERE / f"foreign/{name}.py", quick=True)
    assert {finding.rule for finding in report.findings} == set(faults), verdict(report)
    for finding in report.findings:
        assert faults[finding.rule] in finding.text


def test_a_program_that_names_its_machine(tmp_path: Path) -> None:
    """A program's own choice of machine holds, and the verdict says so."""
    program = tmp_path / "program.py"
    program.write_text(ON_Z16)
    report = _examined(program, quick=True)
    assert {run.title: run.chose_machine for run in report.runs} == {
        "z17": True,
        "the same again": True,
        "z16": False,
        "without NNPA": True,
        "sanitizer": True,
        "zDNN 1.0.1": True,
        "zDNN 1.1.2": True,
    }
    assert "it chooses the machine itself" in verdict(report)
