# SPDX-License-Identifier: Apache-2.0
"""The suites: their files, their requirements, and the programs that run them.

Suites are programs of the repository's `tests/score`. The quick ones are in the package too, in the
folder `shipped`, and run wherever it is installed; the others are pytest's, in a clone.
"""

import importlib.util
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from nnpa_client._server.private_server import server_at
from nnpa_client.config import environment_with

from nnpa_tools.conformance.counts import FAILED, Case, Suite, summed

Progress: TypeAlias = Callable[[int, int], None]
VECTORS: Final = "vectors"
_HERE = Path(__file__).parent
_END_SECONDS = 20.0
_TAIL = 800  # last characters of what a program wrote


@dataclass(frozen=True, slots=True)
class SuiteKind:
    """A suite of `tests/score`; a quick one runs wherever the package is installed."""

    name: str
    title: str
    is_quick: bool = False


SUITES: Final = (
    SuiteKind(VECTORS, "zDNN vectors", is_quick=True),
    SuiteKind("mli", "embARC MLI reference cases", is_quick=True),
    SuiteKind("laws", "laws"),
    SuiteKind("onnx", "ONNX backend suite"),
    SuiteKind("sdks", "SDKs"),
    SuiteKind("models", "real models"),
    SuiteKind("run", "programs for s390x, nnpa run"),
)


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
        """Return the entries of the fidelity contract that are not public, or known to differ."""
        text = (self.root / "deploy/docs/fidelity.md").read_text(encoding="utf-8")
        return tuple(_not_public(re.sub(r"<!--.*?-->|`", "", text)))


def tree() -> Tree:
    """Return the clone that contains this package, else the files in the package."""
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
    """Run a suite; if it cannot run here, return the reason in its `why`.

    `vectors` is the folder of vectors, `answers` a file for our answers to them. Raises
    `TransportError` if no private server can be started.
    """
    began = time.monotonic()
    why = _missing(kind, files)
    if why:
        return Suite(kind.name, kind.title, why=why)
    command = [sys.executable, "-m", "tests.score", kind.name, str(vectors)]
    with ExitStack() as stack:
        if kind.name == VECTORS:
            command.append(stack.enter_context(server_at(None)))
        command += ["--answers", str(answers)] if answers else []
        cases = list(cases_of(command, files.root, progress))
    return summed(kind.name, kind.title, cases, time.monotonic() - began)


def _missing(kind: SuiteKind, files: Tree) -> str:
    """Return why a suite cannot run, empty if it can."""
    if not (kind.is_quick or files.is_clone):
        return "takes a clone of the repository"
    needed = ["nnpa_server"] if kind.is_quick else ["pytest", "nnpa_server", "onnx"]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    return f"{', '.join(missing)} is not installed" if missing else ""


def cases_of(command: Sequence[str], root: Path, progress: Progress) -> Iterator[Case]:
    """Run a program in a folder and yield the cases that it writes, as JSON lines.

    A line {"of": cases} announces their number. A program that ends with a code other than 0 is a
    failed case.
    """
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            command,
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment_with({"ZDNN_LOGLEVEL": "off"}),
        )
        assert child.stdout is not None
        with child.stdout:
            try:
                yield from _counted(child.stdout, progress)
                child.wait()
            finally:
                _end(child)
        if child.returncode:
            errors.seek(0)
            tail = errors.read().decode(errors="replace").strip()[-_TAIL:]
            reason = f"ended with code {child.returncode}: {tail}"
            yield Case("the suite itself", FAILED, reason=reason)


def _counted(lines: Iterable[str], progress: Progress) -> Iterator[Case]:
    """Yield the cases of lines, and report progress."""
    done, of = 0, 0
    for line in map(json.loads, lines):
        if "of" in line:
            of = line["of"]
            continue
        done += 1
        progress(done, max(done, of))
        yield Case(**line)


def _end(child: "subprocess.Popen[str]") -> None:
    """End a program before its end, by an interrupt, so that pytest ends its workers."""
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
    try:
        child.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
