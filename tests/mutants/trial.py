# SPDX-License-Identifier: Apache-2.0
"""A trial of tests: do they fail in a copy of the repository that has a fault?"""

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import scratch_copy
from tests.mutants.sites import Mutation

_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_PATIENCE = 3  # times as long as the tests take without a fault
_SHORTEST_LIMIT = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a fault: `by` is the first test that failed, None if the fault survived."""

    file: str
    line: int
    kind: str
    by: str | None
    seconds: float
    diff: str


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the tests: `failed` is the first test that failed, None if all passed."""

    failed: str | None
    seconds: float
    output: str


class Trial:
    """Runs a command that tests a folder, without a fault and with one at a time."""

    def __init__(
        self, folder: Path, command: Sequence[str], shortest_limit: float = _SHORTEST_LIMIT
    ) -> None:
        self._folder, self._command = folder, command
        self._shortest_limit = shortest_limit
        self._limit: float | None = None

    def run_without_fault(self) -> Run:
        """Run the tests; runs with a fault may take three times as long."""
        run = self._run()
        self._limit = max(self._shortest_limit, _PATIENCE * run.seconds)
        return run

    def judge(self, file: Path, mutation: Mutation) -> Verdict:
        """Run the tests with a fault in a file of the folder, and take the fault away again."""
        source = (self._folder / file).read_text(encoding="utf-8")
        with _replaced(self._folder / file, source, mutation.applied(source)):
            run = self._run()
        diff = mutation.diff(source, file)
        return Verdict(str(file), mutation.line, mutation.kind, run.failed, run.seconds, diff)

    def _run(self) -> Run:
        began = time.monotonic()
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
            process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=scratch_copy.environment(self._folder),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            code = _end_of(process, self._limit)
            seconds = time.monotonic() - began
            output.seek(0)
            text = output.read()
        if code == 0:
            return Run(None, seconds, text)
        first = _FAILED.search(text)
        reason = f"exit code {code}" if code is not None else f"no end in {self._limit:.0f} s"
        return Run(first[1] if first else reason, seconds, text)


def _end_of(process: subprocess.Popen[bytes], limit: float | None) -> int | None:
    """Return the exit code of a process, None if it was killed at the limit in seconds."""
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def _replaced(path: Path, before: str, after: str) -> Generator[None]:
    """Write another source to a file, and restore the first one afterwards."""
    _write(path, after)
    try:
        yield
    finally:
        _write(path, before)


def _write(path: Path, source: str) -> None:
    """Write a source, and remove bytecode, which may be as new and as long as the source's."""
    path.write_text(source, encoding="utf-8")
    for bytecode in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        bytecode.unlink()
