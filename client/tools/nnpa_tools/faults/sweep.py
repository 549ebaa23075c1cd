# SPDX-License-Identifier: Apache-2.0
"""Sweep a program: run it once for each of its calls and each status, and classify what it does.

A clean run counts the calls. In each further run one call does its work and returns a failing
status nevertheless: a program that ignores the status behaves exactly as in the clean run.
"""

import json
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Literal, TypeAlias, get_args

from nnpa.zdnn.v1.fault_pb2 import FaultRule
from nnpa_client.faults.rules import status_text
from nnpa_client.status import Status, is_warning, status_name

from nnpa_tools.evaluation.cluster import node_error
from nnpa_tools.faults.program import Ended, FaultServer, Marked, run
from nnpa_tools.faults.workers import spread
from nnpa_tools.jobs import Cluster, Progress

Verdict: TypeAlias = Literal["handled", "ignored", "crashed", "hung", "missed"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
STATUSES = tuple(status for status in Status if status != Status.ZDNN_OK)
# What the library prints is not the program's output: libzdnn's log is turned off, and lines of the
# Python client, which Python's last-resort handler prints, are filtered out.
_QUIET = {"ZDNN_LOGLEVEL": "off"}
_CLIENT_LOG = b"() (nnpa): "
_NO_STATUS = ("is_", "get_", "init")  # prefixes of functions that return no status
_MAX_SIGNAL = 64
_NOTE = FaultRule(note=True)
_HAS_PROGRAM = "every node needs the program, under the same path"


class Unusable(Exception):
    """The program cannot be swept; the text says why."""


@dataclass(frozen=True, slots=True)
class Site:
    """A call of the program: its number in the session, from 1, and the function."""

    call: int
    operation: str


@dataclass(frozen=True, slots=True)
class Trial:
    """One run: the call, the injected status, and the verdict on the program.

    `code` is the exit code, negative for a signal, None for a program that did not end.
    """

    site: Site
    status: int
    verdict: Verdict
    code: int | None
    seconds: float

    @property
    def is_fine(self) -> bool:
        """Whether the verdict is acceptable: a warning may be ignored, as its output is valid."""
        return self.verdict == "handled" or (self.verdict == "ignored" and is_warning(self.status))


@dataclass(frozen=True, slots=True)
class Sweep:
    """All runs of a program; `steady` is whether clean runs print the same output.

    `lost` has a sentence for each run that is missing because it ended every worker that tried it.
    """

    sites: tuple[Site, ...]
    trials: tuple[Trial, ...]
    steady: bool
    lost: tuple[str, ...] = ()

    def counts(self) -> dict[Verdict, int]:
        """Count the verdicts."""
        counts = Counter(trial.verdict for trial in self.trials)
        return {verdict: counts[verdict] for verdict in VERDICTS}


@dataclass(frozen=True, slots=True)
class Clean:
    """The behaviour of the program without faults; `calls` are the calls of each session."""

    ended: Ended
    calls: tuple[tuple[str, ...], ...]
    steady: bool

    def sites(self) -> list[Site]:
        """Return the calls that return a status; the first session that has a number decides."""
        operations = {
            fault.call: fault.operation
            for fault in reversed(self.ended.marked)
            if fault.effect == "note" and not fault.operation.startswith(_NO_STATUS)
        }
        return [Site(call, operations[call]) for call in sorted(operations)]


@dataclass(frozen=True, slots=True)
class Bench:
    """A server and the clean run of a program at it, as output may contain the address."""

    run: Callable[..., Ended]
    clean: Clean

    def attempt(self, pair: tuple[Site, int]) -> Trial:
        """Run the program while a call answers a status, and return the verdict."""
        site, status = pair
        rule = FaultRule(call=site.call, status=status_text(status), output_written=True)
        ended = self.run(rule)
        verdict = classify(self.clean.ended, ended, self.clean.steady)
        return Trial(site, status, verdict, ended.code, ended.seconds)


@dataclass(frozen=True, slots=True)
class Program:
    """A program to sweep, and its machine, "" for the default.

    A run ends after `timeout` seconds; the first run at a server after `first_timeout`, if that is
    longer, as the server may have just started.
    """

    command: list[str]
    timeout: float = 10.0
    machine: str = ""
    first_timeout: float = 60.0

    @contextmanager
    def bench(self) -> Generator[Bench]:
        """Yield a server with the clean run of the program; raise `Unusable`, OSError."""
        variables = {**_QUIET, **({"ZDNN_MACHINE": self.machine} if self.machine else {})}
        first_timeout = max(self.timeout, self.first_timeout)
        server = FaultServer(idle=2 * first_timeout)

        def once(*rules: FaultRule, seconds: float = self.timeout) -> Ended:
            return run(server, self.command, [_NOTE, *rules], seconds, variables)

        try:
            yield Bench(once, _clean(once(seconds=first_timeout), once(), self.timeout))
        finally:
            server.stop()


def sweep(
    program: Program,
    statuses: Sequence[int] = STATUSES,
    progress: Progress | None = None,
    jobs: int = 1,
) -> Sweep:
    """Run a program once for each of its calls and each status, `jobs` runs at a time.

    Raises `Unusable` for a program that fails, hangs or makes no call without faults, or that makes
    different calls in each run.
    """
    with program.bench() as first:
        sites = first.clean.sites()
        pairs = [(site, status) for site in sites for status in statuses]
        benches = chain([nullcontext(first)], iter(program.bench, None))
        trials: list[Trial] = []
        at_once, start = min(jobs, max(1, len(pairs))), partial(next, benches)
        for trial in spread(at_once, start, Bench.attempt, pairs):
            trials.append(trial)
            if progress is not None:
                progress(len(trials), len(pairs))
    return Sweep(tuple(sites), tuple(trials), first.clean.steady)


def sweep_on_cluster(
    program: Program, statuses: Sequence[int], cluster: Cluster, progress: Progress
) -> Sweep:
    """Run a program as `sweep` does, on a cluster whose nodes have the program.

    The clean run happens here, and at the server of each worker. Raises also ValueError.
    """
    with program.bench() as first:
        clean = first.clean
    sites, trials, lost = clean.sites(), list[Trial](), list[str]()
    pairs = [(site, status) for site in sites for status in statuses]
    begin = partial(_Runner, program, clean.calls)
    for pair, answer in cluster.answers(pairs, tuple, begin, lost, _title, progress):
        trials.append(Trial(*pair, *json.loads(answer)))
    return Sweep(tuple(sites), tuple(trials), clean.steady, tuple(lost))


def _title(pair: tuple[Site, int]) -> str:
    site, status = pair
    return f"the run of call {site.call}, {site.operation}, {status_name(status)}"


class _Runner:
    """A server at which the program of a node runs a call under a status.

    It answers with verdict, exit code and seconds, as JSON; `calls` are the calls of the clean run.
    """

    def __init__(self, program: Program, calls: tuple[tuple[str, ...], ...]) -> None:
        self._kept = ExitStack()
        try:
            self._bench = self._kept.enter_context(program.bench())
        except (OSError, Unusable) as error:
            raise node_error(error, _HAS_PROGRAM) from error
        if self._bench.clean.calls != calls:
            text = "without faults the program makes other calls than where the sweep began"
            raise node_error(text, _HAS_PROGRAM)

    def __call__(self, piece: tuple[Site, int]) -> bytes:
        trial = self._bench.attempt(piece)
        return json.dumps([trial.verdict, trial.code, trial.seconds]).encode()


def _clean(first: Ended, second: Ended, timeout: float) -> Clean:
    for ended in (first, second):
        if ended.code is None:
            raise Unusable(f"without faults the program does not end within {timeout:g} s")
        if ended.code != 0:
            last = ended.errors.decode(errors="replace").strip().rpartition("\n")[2]
            raise Unusable(f"without faults the program ends with {ended.code}: {last}")
    calls = calls_of(first.marked)
    if not calls:
        raise Unusable("the program makes no call at ZDNN_SERVER: is it linked with libzdnn?")
    if calls != calls_of(second.marked):
        raise Unusable("without faults the program makes other calls each time")
    steady = printed(first) == printed(second)
    return Clean(first, calls, steady)


def printed(ended: Ended) -> tuple[bytes, list[bytes]]:
    """Return the program's own output, and its own lines of errors."""
    lines = ended.errors.splitlines()
    return ended.output, [line for line in lines if _CLIENT_LOG not in line]


def calls_of(marked: Sequence[Marked]) -> tuple[tuple[str, ...], ...]:
    """Return the calls of each session, in the order in which sessions began."""
    calls: dict[str, list[str]] = {}
    for fault in marked:
        if fault.effect == "note":
            calls.setdefault(fault.session, []).append(fault.operation)
    return tuple(tuple(call) for call in calls.values())


def classify(clean: Ended, ended: Ended, steady: bool) -> Verdict:
    """Return the verdict on a run: "ignored" if it equals the clean run.

    Exit code and calls are compared, and the output if clean runs print the same.
    """
    if ended.code is None:
        return "hung"
    if ended.code < 0 or 128 < ended.code <= 128 + _MAX_SIGNAL:
        return "crashed"
    if all(fault.effect == _NOTE.WhichOneof("effect") for fault in ended.marked):
        return "missed"
    same = ended.code == clean.code and calls_of(ended.marked) == calls_of(clean.marked)
    if same and steady:
        same = printed(ended) == printed(clean)
    return "ignored" if same else "handled"
