# SPDX-License-Identifier: Apache-2.0
"""The doctor and programs for s390x, which carry their own library."""

import subprocess
from pathlib import Path

import pytest
from nnpa_client.doctor import Report, examine, verdict
from nnpa_tools.faults.sweep import Unusable

from tests.trap.conftest import CROSS_COMPILER, ROOT, SECONDS
from tests.trap.vectors import SMALL

INCLUDE = ROOT / "client/libzdnn/include"
CLEAN = ROOT / "client/libzdnn/examples/add.c"
NEEDS_TELUM2 = ROOT / "tests/tools/doctor/programs/needs_telum2.c"
NOTHING = "int main(void) { return 0; }"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the small library for s390x."""
    folder = tmp_path_factory.mktemp("small")
    build = subprocess.run(
        ["make", "-C", str(SMALL), f"OUT={folder}", str(folder / "libzdnn.so")],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert build.returncode == 0, build.stderr
    return folder


@pytest.fixture
def trapped(trap_library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `nnpa run` find the library of these sources."""
    monkeypatch.setenv("NNPA_TRAP_LIBRARY", str(trap_library))


def _compiled(source: Path, program: Path, library: Path) -> Path:
    flags = ["-std=gnu11", "-O2", "-march=z14", f"-I{INCLUDE}"]
    linking = [f"-L{library}", "-lzdnn", "-lm", f"-Wl,-rpath,{library}"]
    command = [CROSS_COMPILER, *flags, str(source), "-o", str(program), *linking]
    build = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert build.returncode == 0, build.stderr
    return program


def _examined(program: Path, quick: bool = False) -> Report:
    return examine([str(program)], ("telum1", "telum2"), SECONDS, quick, progress=_ignore)


def _ignore(_what: str, _done: int, _total: int) -> None:
    """Take no notice of progress."""


@pytest.mark.usefixtures("trapped")
def test_an_example_is_clean(library: Path, tmp_path: Path) -> None:
    """An example is clean: it ends at response codes and flags, and skipped checks are named."""
    report = _examined(_compiled(CLEAN, tmp_path / "add", library))
    assert report.is_clean, verdict(report)
    assert [run.title for run in report.runs] == ["z17", "the same again", "z16", "without NNPA"]
    conduct = {
        (attempt.function, attempt.answer): attempt.conduct for attempt in report.trials.attempts
    }
    assert conduct["NNPA_ADD", "response code 0012"] == "aborted"
    assert conduct["NNPA_ADD", "range violation"] == "aborted"
    assert conduct["NNPA_ADD", "data exception"] == "interrupted"
    assert all(time.total is not None for time in report.times)
    assert sum("not applicable" in text for text in report.left_out) == 4


@pytest.mark.usefixtures("trapped")
def test_a_call_that_telum1_lacks(library: Path, tmp_path: Path) -> None:
    """A call that a program's own library refuses on a machine is a finding with its message."""
    report = _examined(_compiled(NEEDS_TELUM2, tmp_path / "program", library), quick=True)
    (finding,) = report.findings
    assert finding.rule == "machine"
    assert finding.text.startswith("z16: exit code 1; it says: gelu: ZDNN_UNAVAILABLE_FUNCTION")
    assert "z17" not in finding.text


@pytest.mark.usefixtures("trapped")
def test_a_program_without_an_instruction(library: Path, tmp_path: Path) -> None:
    """A program that ends well and issues no instruction cannot be examined."""
    source = tmp_path / "nothing.c"
    source.write_text(NOTHING)
    with pytest.raises(Unusable, match="it issued no NNPA instruction"):
        _examined(_compiled(source, tmp_path / "nothing", library))
