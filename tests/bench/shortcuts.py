# SPDX-License-Identifier: Apache-2.0
"""The price tags of shortcuts: `python -m tests.bench --rows shortcuts`.

Each shortcut is measured on the scenario that it serves, on and off, while all others are on: both
sides are up at once, and take turns for ten rounds, by three pairs of processes, since a process's
place in memory counts, too. The figure is the median of off over on; its lower bound is the 2.5th
percentile of the medians of 2,000 bootstrap samples of the rounds. A shortcut whose lower bound is
below 1.15, and that saves less than a tenth of the memory of server and client, does not pay.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Literal, TypeAlias

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).parent / "shortcuts.json"
ROUNDS = 10
PAIRS = 3
SAMPLES = 2000
MIN_GAIN = 1.15
MIN_SAVED_SHARE = 0.1
Where: TypeAlias = Literal["server", "client", "libzdnn"]
_SERVER = "server/nnpa_server"
_CALLS = f"{_SERVER}/accelerator/shortcuts"
_INFERENCE = f"{_SERVER}/open_inference"
_EMULATOR = "emulator/nnpa_emulator"
_RUNNING = "emulator/nnpa_network/running"
_KERNELS = tuple(
    str(path.relative_to(ROOT)) for path in sorted((ROOT / _EMULATOR / "kernels").glob("*.py"))
)
_CLIENT = "client/python/nnpa_client/_server/shortcuts"
_LIBRARY = "client/libzdnn/src"


@dataclass(frozen=True, slots=True)
class Shortcut:
    """A shortcut: its name, the side that can turn it off, its seam, files and scenario."""

    name: str
    where: Where
    seam: str
    files: tuple[str, ...]
    scenario: str
    for_memory: bool = False

    @property
    def flags(self) -> list[str]:
        """The server's flags that turn it off."""
        return [f"--plain={self.name}"] if self.where == "server" else []

    @property
    def environment(self) -> dict[str, str]:
        """The clients' environment that turns it off."""
        return {} if self.where == "server" else {"ZDNN_PLAIN": self.name}

    def lines(self) -> int:
        """Count the lines of its files that hold code or docstrings."""
        return sum(_lines_of_code(ROOT / file) for file in self.files)


# Names that take a shortcut away: those of `nnpa-server --plain=`, of `connect(plain=[...])` and of
# libzdnn's ZDNN_PLAIN. A shortcut that serves several scenarios has several entries.
SHORTCUTS: tuple[Shortcut, ...] = (
    Shortcut("request-cache", "server", "decode", (f"{_CALLS}/request_cache.py",), "small add"),
    Shortcut(
        "request-cache", "server", "decode", (f"{_CALLS}/request_cache.py",), "list of 100 adds"
    ),
    Shortcut(
        "prepared-calls", "server", "run", (f"{_CALLS}/prepared_calls.py",), "list of 100 adds"
    ),
    Shortcut(
        "out-of-band-arrays", "server", "codec", (f"{_CALLS}/out_of_band_arrays.py",),
        "4 MiB inline, TCP", for_memory=True,
    ),
    Shortcut(
        "placed-operands", "server", "operand", (f"{_CALLS}/placed_operands.py",),
        "C program, 4 MiB shared", for_memory=True,
    ),
    Shortcut(
        "lazy-services", "server", "channel", (f"{_SERVER}/rpc/lazy.py",), "start to first add"
    ),
    Shortcut(
        "warm-up", "server", "kernel", (f"{_SERVER}/tuning/background.py",), "start to first add"
    ),
    Shortcut(
        "process-tuning", "server", "channel", (f"{_SERVER}/tuning/process.py",),
        "4 MiB inline", for_memory=True,
    ),
    Shortcut(
        "prepared-steps", "server", "network",
        (f"{_RUNNING}/prepared_steps.py", f"{_RUNNING}/bindings.py", f"{_RUNNING}/rows.py"),
        "hosted CNN",
    ),
    Shortcut(
        "further-sizes", "server", "network",
        ("emulator/nnpa_network/importing/lines.py",), "decoder",
    ),
    Shortcut(
        "run-buffers", "server", "network",
        (f"{_RUNNING}/run_buffers.py", f"{_RUNNING}/liveness.py"),
        "hosted CNN", for_memory=True,
    ),
    Shortcut(
        "host-groups", "server", "network",
        (f"{_RUNNING}/host_groups.py",), "hosted voice detector",
    ),
    Shortcut(
        "request-cache", "server", "network", (f"{_INFERENCE}/request_cache.py",), "ModelInfer"
    ),
    Shortcut("compiled-kernels", "server", "kernel", _KERNELS, "hosted CNN"),
    Shortcut(
        "widened-operands", "server", "operand", (f"{_EMULATOR}/widened.py",),
        "one row by weights",
    ),
    Shortcut("stream", "client", "channel", (f"{_CLIENT}/stream.py",), "small add, TCP"),
    Shortcut("plain-socket", "client", "channel", (f"{_CLIENT}/plain_socket.py",), "small add"),
    Shortcut(
        "out-of-band-arrays", "client", "codec", (f"{_CLIENT}/out_of_band_arrays.py",),
        "4 MiB inline, TCP", for_memory=True,
    ),
    Shortcut("stream", "libzdnn", "channel", (f"{_LIBRARY}/rpc/stream.rs",), "C program"),
    Shortcut(
        "plain-socket", "libzdnn", "channel", (f"{_LIBRARY}/rpc/plain_socket.rs",), "C program"
    ),
    Shortcut(
        "content-cache", "libzdnn", "operand",
        (f"{_LIBRARY}/transfer/cached.rs", f"{_LIBRARY}/transfer/content_cache.rs"),
        "C program, 256x1024",
    ),
    Shortcut(
        "shared-memory", "libzdnn", "operand",
        (f"{_LIBRARY}/transfer/shared.rs", f"{_LIBRARY}/transfer/shared_memory.rs"),
        "C program, 4 MiB shared", for_memory=True,
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Price:
    """The cost and gain of a shortcut; memory is the sum of the server's and client's peaks."""

    name: str
    where: str
    seam: str
    scenario: str
    lines: int
    ratio: float
    lower: float
    saved_mebibytes: float | None
    saved_share: float | None
    rounds: list[float]

    @property
    def verdict(self) -> str:
        """Whether the shortcut pays, in time or in memory."""
        if self.lower >= MIN_GAIN:
            return "pays"
        return "saves memory" if (self.saved_share or 0.0) >= MIN_SAVED_SHARE else "does not pay"


class Side:
    """A process that runs a round of a scenario for each line of its input."""

    def __init__(self, scenario: str, flags: Sequence[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.scenarios", scenario, *flags],
            cwd=ROOT,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "Side":
        if self._line() != "ready":
            raise SystemExit(f"the scenario of process {self._process.pid} is not ready")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.stdin and not self._process.stdin.closed:
            self._process.stdin.close()
        self._process.wait(120)

    def round(self) -> float:
        """Return the seconds of one round."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._line())

    def finish(self) -> float:
        """End the process; return the sum of its server's and its own peak of memory, MiB."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return sum(map(float, self._line().split()))

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def price(shortcut: Shortcut, rounds: int = ROUNDS) -> Price:
    """Measure a shortcut on and off by several pairs of processes."""
    ratios: list[float] = []
    saved: list[float] = []
    peaks: list[float] = []
    for _ in range(PAIRS):
        of_pair, on, off = _measure_pair(shortcut, rounds)
        ratios += of_pair
        saved.append(off - on)
        peaks.append(off)
    mebibytes = statistics.median(saved) if shortcut.for_memory else None
    return Price(
        shortcut.name,
        shortcut.where,
        shortcut.seam,
        shortcut.scenario,
        shortcut.lines(),
        statistics.median(ratios),
        lower_bound(ratios),
        mebibytes,
        None if mebibytes is None else mebibytes / statistics.median(peaks),
        ratios,
    )


def _measure_pair(shortcut: Shortcut, rounds: int) -> tuple[list[float], float, float]:
    """Measure on and off in turns, the order reversed each round; also return peaks, MiB."""
    with (
        Side(shortcut.scenario, (), {}) as on,
        Side(shortcut.scenario, shortcut.flags, shortcut.environment) as off,
    ):
        ratios: list[float] = []
        for index in range(rounds):
            order = (on, off) if index % 2 else (off, on)
            seconds = {side: side.round() for side in order}
            ratios.append(seconds[off] / seconds[on])
        return ratios, on.finish(), off.finish()


def lower_bound(ratios: Sequence[float]) -> float:
    """Return the 2.5th percentile of the medians of bootstrap samples, drawn with a fixed seed."""
    random = Random(1)
    medians = (statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(SAMPLES))
    return sorted(medians)[SAMPLES * 25 // 1000]


def _lines_of_code(file: Path) -> int:
    lines = (line.strip() for line in file.read_text(encoding="utf-8").splitlines())
    return sum(bool(line) and not line.startswith(("#", "//")) for line in lines)


def measure(names: Sequence[str] = ()) -> list[Price]:
    """Measure all shortcuts, or the named ones; print the names of shortcuts without files."""
    chosen = [shortcut for shortcut in SHORTCUTS if not names or shortcut.name in names]
    prices: list[Price] = []
    for index, shortcut in enumerate(chosen):
        title = f"{shortcut.where}'s {shortcut.name}, {index + 1} of {len(chosen)}"
        if not all((ROOT / file).exists() for file in shortcut.files):
            print(f"{title}: has no file {shortcut.files[0]}", file=sys.stderr, flush=True)
            continue
        print(f"{title}: {shortcut.scenario}", file=sys.stderr, flush=True)
        prices.append(price(shortcut))
    return prices


def show(console: Console, prices: Sequence[Price]) -> None:
    """Print the price tags."""
    heads = ("shortcut", "of", "seam", "lines", "scenario", "off/on", "at least", "MiB", "verdict")
    table = Table(*heads)
    for tag in prices:
        saved = "-" if tag.saved_mebibytes is None else f"{tag.saved_mebibytes:+.0f}"
        figures = (f"{tag.ratio:.2f}", f"{tag.lower:.2f}", saved, tag.verdict)
        table.add_row(tag.name, tag.where, tag.seam, str(tag.lines), tag.scenario, *figures)
    console.print(table)


def to_json(prices: Sequence[Price]) -> str:
    """Return price tags as JSON."""
    return json.dumps([asdict(tag) for tag in prices], indent=1) + "\n"


def from_json(text: str) -> list[Price]:
    """Read what `to_json` wrote."""
    return [Price(**tag) for tag in json.loads(text)]
