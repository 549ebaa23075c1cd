# SPDX-License-Identifier: Apache-2.0
"""Load for a long time: memory and times are to stay as they are, every answer right."""

import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean, median

from tests.hostile import models, state
from tests.hostile.calls import Caller
from tests.hostile.gauges import MIB, Gauges, own_memory
from tests.hostile.soak_clients import MODEL, PERIOD
from tests.hostile.target import Server

FLAGS = ("--max-sessions", "128")
CLIENTS_OF_PROCESS = 16
END_TIMEOUT = 60.0
SETTLE_SHARE, MAX_SETTLE = 1 / 6, 600.0
"""The first ten minutes do not count, nor the first sixth of a shorter run."""
MAX_GROWTH, MAX_SLOWDOWN = 1.05, 1.5
MAX_FAMILY_GROWTH = 1.15
"""Of the later half, on average: workers come and go with the clients of the moment."""
WINDOW = 12
MIN_SAMPLES = 12
MAX_FAILURES = 20


@dataclass
class Sample:
    """A few seconds of a run: gauges in the end; calls, failures, and quantiles in milliseconds.

    `own_memory` counts the server alone, without files' pages; `memory` includes its workers.
    """

    seconds: float
    own_memory: int
    memory: int
    threads: int
    descriptors: int
    shared: int
    calls: int
    failed: int
    p50: float
    p99: float


@dataclass
class Soak:
    """The runs that a file of state keeps; a new run follows an interrupted one."""

    runs: list[list[Sample]] = field(default_factory=list[list[Sample]])
    failures: list[str] = field(default_factory=list[str])

    def to_json(self) -> str:
        """Return all runs as JSON."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def load(cls, path: Path | None) -> "Soak":
        """Return what a file of state has."""
        kept = state.load(path)
        runs = [[Sample(**sample) for sample in run] for run in kept.get("runs", ())]
        return cls(runs, kept.get("failures", []))

    @property
    def seconds(self) -> float:
        """How long all runs took together."""
        return sum(run[-1].seconds for run in self.runs if run)

    def complaints(self) -> list[str]:
        """Return why the server does not hold, if it does not."""
        texts = [f"failed: {text}" for text in self.failures]
        for run in self.runs:
            if len(run) >= MIN_SAMPLES:
                texts += _complaints(run)
        return texts


def _complaints(run: Sequence[Sample]) -> list[str]:
    """Compare memory with the first minutes', and times with the second quarter's."""
    texts: list[str] = []
    settle = min(MAX_SETTLE, SETTLE_SHARE * run[-1].seconds)
    settled = [sample for sample in run if sample.seconds >= settle]
    own = [sample.own_memory for sample in settled]
    windows = [median(own[at : at + WINDOW]) for at in range(0, len(own), WINDOW)]
    if max(windows) > MAX_GROWTH * windows[0]:
        texts.append(f"memory: {windows[0] / MIB:.0f} MiB, then {max(windows) / MIB:.0f}")
    half = len(settled) // 2
    early, late = (
        mean(sample.memory for sample in part) for part in (settled[:half], settled[half:])
    )
    if late > MAX_FAMILY_GROWTH * early:
        texts.append(f"memory with workers: {early / MIB:.0f} MiB, then {late / MIB:.0f}")
    quarter = len(run) // 4
    before = median(sample.p99 for sample in run[quarter : 2 * quarter])
    after = median(sample.p99 for sample in run[-quarter:])
    if after > MAX_SLOWDOWN * before:
        texts.append(f"p99: {before:.1f} ms in the second quarter, {after:.1f} in the last")
    return texts


class _Load:
    """Processes of clients, and the lines that they print."""

    def __init__(self, server: Server, clients: int) -> None:
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.hostile.soak_clients", server.address,
                 str(server.socket), str(first), str(min(CLIENTS_OF_PROCESS, clients - first))],
                cwd=state.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for first in range(0, clients, CLIENTS_OF_PROCESS)
        ]  # fmt: skip
        self._readers = [
            threading.Thread(target=self._read, args=(process,), daemon=True)
            for process in self._processes
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout as printed:
            for line in printed:
                self._lines.put(line)

    def take(self) -> tuple[list[float], int, list[str]]:
        """Return the clients' news since the last call: seconds, failures, texts of some."""
        seconds, failed, failures = list[float](), 0, list[str]()
        with suppress(queue.Empty):
            while line := self._lines.get_nowait():
                facts = json.loads(line)
                seconds += facts["seconds"]
                failed += facts["failed"]
                failures += facts["failures"]
        return seconds, failed, failures

    def end(self) -> None:
        """Let the clients finish, and end them."""
        for process in self._processes:
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_TIMEOUT)
            process.kill()
            process.wait()
        for reader in self._readers:
            reader.join()


def soak(executable: Path, minutes: float, clients: int, state_file: Path | None = None) -> Soak:
    """Load a server until all runs together took `minutes`; return their samples."""
    progress = Soak.load(state_file)
    before = progress.seconds
    if before >= 60 * minutes:
        return progress
    progress.runs.append([])
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nnpa-soak-")))
        server = stack.enter_context(Server(executable, folder, *FLAGS))
        caller = Caller(server.address)
        assert models.load(caller, MODEL, models.harmless()).is_ok
        caller.close()
        load = _Load(server, clients)
        stack.callback(load.end)
        begin = time.monotonic()
        while before + (now := time.monotonic() - begin) < 60 * minutes and server.is_alive():
            time.sleep(PERIOD)
            _sample(progress, server, load, now + PERIOD)
            if state_file is not None:
                state.save(state_file, progress.to_json())
        if not server.is_alive():
            progress.failures.append("the server ended")
    return progress


def _sample(progress: Soak, server: Server, load: _Load, seconds: float) -> None:
    """Add a sample to the last run."""
    times, failed, failures = load.take()
    times.sort()
    progress.failures += failures[: MAX_FAILURES - len(progress.failures)]
    if times:
        p50, p99 = (1e3 * times[int(share * len(times))] for share in (0.5, 0.99))
        gauges = Gauges.read(server.pid).to_json()
        progress.runs[-1].append(
            Sample(round(seconds, 1), own_memory(server.pid), **gauges, calls=len(times),
                   failed=failed, p50=round(p50, 2), p99=round(p99, 2))
        )  # fmt: skip


def draw(progress: Soak, path: Path) -> None:
    """Draw memory, p50 and p99 over the minutes of all runs, one after the other."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    memory, times = figure.subplots(2, 1, sharex=True)
    begin = 0.0
    for run in filter(None, progress.runs):
        minutes = [(begin + sample.seconds) / 60 for sample in run]
        memory.plot(minutes, [sample.memory / MIB for sample in run], color="C0", label="all")
        own = [sample.own_memory / MIB for sample in run]
        memory.plot(minutes, own, color="C3", label="without workers")
        times.plot(minutes, [sample.p50 for sample in run], color="C1", label="p50")
        times.plot(minutes, [sample.p99 for sample in run], color="C2", label="p99")
        begin += run[-1].seconds
    memory.set_ylabel("memory, MiB")
    memory.set_ylim(bottom=0)
    times.set_ylabel("call, ms")
    times.set_yscale("log")
    times.set_xlabel("minutes")
    for axes in (memory, times):
        axes.legend(*(each[:2] for each in axes.get_legend_handles_labels()))
    figure.savefig(path, dpi=120)
