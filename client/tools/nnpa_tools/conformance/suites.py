# SPDX-License-Identifier: Apache-2.0
"""The suites: where their files are, what each takes, and how its cases are run and told.

Suites are programs of the repository's `tests`. Those of `tests/score` are in the package too, in
the folder `shipped`, and run wherever it is installed; the others are pytest's, in a clone.
"""

import importlib.util
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from nnpa_client._server.private_server import PrivateServer
from nnpa_client.config import environment_with

from nnpa_tools.conformance.counts import FAILED, Case, Suite, summed

Progress: TypeAlias = Callable[[int, int], None]
_HERE = Path(__file__).parent
_POLL_SECONDS, _END_SECONDS = 0.2, 20.0
_TAIL = 800  # last characters of what a program wrote
_ENDS = (0, 1)  # of pytest, where tests ran; source: pytest documentation, "Exit codes"


@dataclass(frozen=True, slots=True)
class SuiteKind:
    """A suite: `tests` are pytest's words, None for one of `tests/score`.

    `grouped_by` says what of a test names its group: "law" is its docstring, "subject" what stands
    in its id before the last hyphen, "subject and machine" that with the machine behind it.
    """

    name: str
    title: str
    tests: tuple[str, ...] | None = None
    grouped_by: str = "law"

    @property
    def is_quick(self) -> bool:
        """Whether it runs wherever the package is installed."""
        return self.tests is None


SUITES: Final = (
    SuiteKind("vectors", "zDNN vectors"),
    SuiteKind("mli", "embARC MLI reference cases"),
    SuiteKind(
        "laws",
        "laws",
        ("tests/emulator/test_laws.py", "tests/emulator/test_instruction_law.py",
         "tests/mli/test_laws.py", "tests/mli/test_conversion_laws.py"),
    ),
    SuiteKind("onnx", "ONNX backend suite", ("tests/network/test_backend.py",)),
    SuiteKind("sdks", "SDKs", ("tests/conformance/test_conformance.py", "-k", "function"),
              "subject"),
    SuiteKind("models", "real models",
              ("tests/network/test_models.py", "-k", "does_what_the_list_says"),
              "subject and machine"),
    SuiteKind("run", "programs for s390x, nnpa run", ("tests/trap/test_vectors.py",)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tree:
    """The folder that holds `tests`, and whether it is a clone of the repository."""

    root: Path
    is_clone: bool

    @property
    def vectors(self) -> Path:
        """The folder of vectors."""
        return self.root / "tests/vectors"

    @property
    def results(self) -> Path:
        """The folder of results of real machines."""
        return self.root / "tests/results"

    def not_public(self) -> tuple[tuple[str, str], ...]:
        """Return what the fidelity contract says is not public or known to differ."""
        text = (self.root / "emulator/README.md").read_text(encoding="utf-8")
        return tuple(_not_public(re.sub(r"<!--.*?-->|`", "", text)))


def tree() -> Tree:
    """Return the clone that this package is in, else the files that it brought along."""
    clone = _HERE.parents[3]
    if (clone / "tests/score").is_dir() and (clone / "pyproject.toml").exists():
        return Tree(clone, True)
    return Tree(_HERE / "shipped", False)


def _not_public(contract: str) -> Iterator[tuple[str, str]]:
    for row in re.findall(r"^\|(.+)\|$", contract, re.MULTILINE):
        cells = [cell.strip() for cell in row.split("|")]
        if len(cells) == 3 and re.search("not public|Known difference", cells[2]):
            yield cells[0], cells[2]
    section = contract.partition("### Not public, decided here\n")[2].partition("\n#")[0]
    for item in re.split(r";\s+(?![^()]*\))|\.\s+(?=[A-Z])", section.strip().rstrip(".")):
        yield "decided here", " ".join(item.split())


def run_suite(
    kind: SuiteKind, files: Tree, vectors: Path, answers: Path | None, progress: Progress
) -> Suite:
    """Run a suite; what it lacks is the reason why it was not run.

    `vectors` is the folder of vectors, `answers` a file for our answers to them. Raises
    `TransportError` where no private server can be started.
    """
    began = time.monotonic()
    why = _missing(kind, files)
    if why:
        return Suite(kind.name, kind.title, why=why)
    if kind.tests is not None:
        cases = list(_pytest(kind, kind.tests, files, progress))
    else:
        cases = list(_portable(kind.name, files, vectors, answers, progress))
    return summed(kind.name, kind.title, cases, time.monotonic() - began)


def _missing(kind: SuiteKind, files: Tree) -> str:
    """Return why a suite cannot run, empty if it can."""
    needed = ["nnpa_server"] if kind.tests is None else ["pytest", "nnpa_server", "onnx"]
    if kind.tests is not None and not files.is_clone:
        return "takes a clone of the repository"
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    return f"{', '.join(missing)} is not installed" if missing else ""


def _portable(
    name: str, files: Tree, vectors: Path, answers: Path | None, progress: Progress
) -> Iterator[Case]:
    with _server(name == "vectors") as target:
        words = [name, str(vectors), *([target] if target else [])]
        words += ["--answers", str(answers)] if answers else []
        command = [sys.executable, "-m", "tests.score", *words]
        for line in _lines(command, files.root, progress, _ended_well(0)):
            yield Case(**line)


@contextmanager
def _server(is_needed: bool) -> Generator[str]:
    """Have the address of a private server, an empty one where none is needed."""
    if not is_needed:
        yield ""
        return
    server = PrivateServer()
    try:
        yield server.target
    finally:
        server.stop()


def _pytest(
    kind: SuiteKind, tests: Sequence[str], files: Tree, progress: Progress
) -> Iterator[Case]:
    with tempfile.TemporaryDirectory(prefix="nnpa-") as folder:
        log = Path(folder) / "cases"
        command = [sys.executable, "-m", "pytest", "-m", "", "-p", "tests.score.cases_of_pytest"]
        command += ["-o", "console_output_style=classic", "--score-log", str(log), *tests]
        for line in _lines(command, files.root, progress, _ended_well(*_ENDS), log):
            yield from _cases_of_test(line, kind.grouped_by)


def _cases_of_test(line: dict[str, Any], grouped_by: str) -> Iterator[Case]:
    """Yield the case that a test is, or those that it tells of itself."""
    group, machine = line["law"], ""
    if grouped_by != "law":
        group, _, last = line["id"].rpartition("-")
        machine = last if grouped_by == "subject and machine" else ""
    if "cases" not in line:
        yield Case(group, line["outcome"], machine, line["test"], line["reason"])
        return
    for outcome, count, reason in line["cases"]:
        yield Case(group, outcome, machine, line["test"], reason, count)


_Ended: TypeAlias = Callable[[int, str], dict[str, Any] | None]


def _ended_well(*codes: int) -> _Ended:
    """Return what tells of a program that ended otherwise: a failed case."""

    def failure(code: int, tail: str) -> dict[str, Any] | None:
        if code in codes:
            return None
        return {"group": "the suite itself", "outcome": FAILED,
                "reason": f"ended with code {code}: {tail}"}  # fmt: skip

    return failure


def _lines(
    command: list[str], root: Path, progress: Progress, ended: _Ended, log: Path | None = None
) -> Iterator[dict[str, Any]]:
    """Run a program and yield what it tells, JSON lines on its output or in the file `log`."""
    with tempfile.TemporaryDirectory(prefix="nnpa-") as folder:
        output, written = log or Path(folder) / "output", Path(folder) / "written"
        output.touch()
        with output.open("ab") as out, written.open("ab") as errors:
            child = subprocess.Popen(
                command,
                cwd=root,
                stdin=subprocess.DEVNULL,
                stdout=errors if log else out,
                stderr=errors,
                env=environment_with({"ZDNN_LOGLEVEL": "off"}),
            )
        try:
            yield from _counted(_tail(output, child), progress)
        finally:
            _end(child)
        tail = written.read_text(errors="replace").strip()[-_TAIL:]
        last = ended(child.returncode, tail)
        if last is not None:
            yield {"law": last["group"], "id": "", "test": "", **last} if log else last


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a program that is abandoned: by an interrupt, so that pytest ends its workers."""
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
    try:
        child.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _counted(lines: Iterator[dict[str, Any]], progress: Progress) -> Iterator[dict[str, Any]]:
    """Yield all but the line that says how many there will be; tell progress."""
    done, of = 0, 0
    for line in lines:
        if "of" in line:
            of = line["of"]
            continue
        done += line.get("count", 1)
        progress(done, max(done, of))
        yield line


def _tail(told: Path, child: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file while a program writes it."""
    with told.open("rb") as file:
        pending = b""
        while True:
            has_ended = child.poll() is not None
            *lines, pending = (pending + file.read()).split(b"\n")
            yield from map(json.loads, lines)
            if has_ended:
                return
            if not lines:
                time.sleep(_POLL_SECONDS)
