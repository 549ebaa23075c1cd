# SPDX-License-Identifier: Apache-2.0
"""`nnpa run` of a program of this machine, which is linked with libzdnn."""

import contextlib
import json
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nnpa_client._server.transport import GrpcTransport
from nnpa_client.config import Endpoint, Recorder, program_environment
from nnpa_client.libzdnn import library_folder

from nnpa_tools.commands.exit_codes import starting
from nnpa_tools.commands.terminal import echo

_REPEATED = "CACHE_MISS"  # the client repeats such a call by itself


@dataclass(frozen=True, slots=True)
class NativeStats:
    """The counts of a program of this machine: sessions, operations, answers and times."""

    sessions: int
    operations: Counter[str]
    answers: Counter[str]
    """Answers other than ZDNN_OK, by status or reason."""
    nanoseconds: int
    seconds: float

    def as_json(self) -> str:
        """Return the JSON document."""
        document = {
            "sessions": self.sessions,
            "operations": dict(sorted(self.operations.items())),
            "answers_not_ok": dict(sorted(self.answers.items())),
            "operation_seconds": self.nanoseconds / 1e9,
            "seconds": self.seconds,
        }
        return json.dumps(document, indent=2)

    def lines(self) -> list[str]:
        """Return the summary for people."""
        missing = "" if self.sessions else ": does the program use libzdnn?"
        return [
            f"operations: {self.operations.total()}{_listed(self.operations)}",
            f"answers other than ZDNN_OK: {self.answers.total()}{_listed(self.answers)}",
            f"time: {self.seconds:.3f} s; of all operations: {self.nanoseconds / 1e9:.3f} s",
            f"sessions: {self.sessions}{missing}",
        ]


def _listed(counts: Counter[str]) -> str:
    rows = [f"{name} {count}" for name, count in sorted(counts.items())]
    return f" ({', '.join(rows)})" if rows else ""


@dataclass(frozen=True, slots=True)
class NativeProgram:
    """A program of this machine, its command, and its emulated machine."""

    path: Path
    command: Sequence[str]
    machine: str
    needs_unix: bool = False

    def run(
        self,
        stack: contextlib.ExitStack,
        server: Endpoint,
        faults: Path | None,
        trace: Path | None,
        precheck: bool,
        is_counted: bool,
    ) -> tuple[int, NativeStats | None]:
        """Run it at a server; return its exit code, negative for a signal, and what it did."""
        if faults is not None:
            from nnpa_client.faults import read_rules  # seldom needed, and needs NumPy

            read_rules(faults)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nnpa-run-")))
        file = folder / "trace.nnpa" if trace is None and is_counted else trace
        started = time.monotonic()
        with _recorder(server, file) as recorder:
            code = _wait(self._start(server, recorder, faults, precheck))
        seconds = time.monotonic() - started
        return code, _stats_of(file, seconds) if file is not None and is_counted else None

    def _start(
        self, server: Endpoint, recorder: Recorder, faults: Path | None, precheck: bool
    ) -> "subprocess.Popen[bytes]":
        variables = {
            "ZDNN_MACHINE": self.machine,
            "ZDNN_TOKEN": server.token,
            "ZDNN_FAULTS": "" if faults is None else str(faults),
            **({"ZDNN_ENABLE_PRECHECK": "true"} if precheck else {}),
        }
        environment = program_environment(recorder, library_folder()) | variables
        path = str(self.path.absolute())
        with starting(str(self.path)):
            return subprocess.Popen(self.command, executable=path, env=environment)


@contextlib.contextmanager
def _recorder(server: Endpoint, trace: Path | None) -> Generator[Recorder]:
    """Record in a file what sessions do in the block; None records nothing."""
    if trace is None:
        yield Recorder(server.target, "")
        return
    from nnpa_client.trace.record import Recording  # seldom needed, and needs NumPy

    with contextlib.closing(GrpcTransport(server)) as transport:
        recording = Recording(transport, trace)
        try:
            yield Recorder(server.target, recording.name, recording.ticket)
        finally:
            recording.stop()
        if recording.problem is not None:
            echo(f"--trace: {trace} is not complete: {recording.problem}", err=True)


def _wait(process: "subprocess.Popen[bytes]") -> int:
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue  # the program got it too, and decides


def _stats_of(trace: Path, seconds: float) -> NativeStats:
    """Return the counts of the sessions of a trace."""
    from nnpa_client.trace.history import read  # seldom needed, and needs NumPy

    recorded = read(trace)
    operations = [
        operation
        for operation in recorded.operations
        if not operation.is_housekeeping and operation.failure != _REPEATED
    ]
    return NativeStats(
        len(recorded.sessions),
        Counter(operation.name for operation in operations),
        Counter(operation.status for operation in operations if operation.status != "ZDNN_OK"),
        sum(operation.duration_ns for operation in operations),
        seconds,
    )
