# SPDX-License-Identifier: Apache-2.0
"""Sweep a program: run it once for each of its calls and each status, and classify what it does.

A clean run counts the calls. In each further run one function does its work and returns a failing
status nevertheless: a program that ignores the status behaves exactly as in the clean run.
"""

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Literal, TypeAlias

from nnpa.zdnn.v1.fault_pb2 import FaultRule

from nnpa_client._workers import spread
from nnpa_client.faults.program import Ended, FaultServer, Marked, run
from nnpa_client.faults.rules import status_text
from nnpa_client.status import Status, is_warning

Verdict: TypeAlias = Literal["handled", "ignored", "crashed", "hung", "missed"]
VERDICTS: tuple[Verdict, ...] = ("handled", "ignored", "crashed", "hung", "missed")
STATUSES = tuple(status for status in Status if status != Status.ZDNN_OK)
# What the library prints is not the program's output: libzdnn's log is turned off, and lines of the
# Python client, which Python's last-resort handler prints, are filtered out.
_QUIET = {"ZDNN_LOGLEVEL": "off"}
_CLIENT_LOG = b"() (nnpa): "
_NO_STATUS = ("is_", "get_", "init")  # prefixes of functions that return no status
_MAX_SIGNAL = 64
_NOTE = FaultRule(note=True)


class Unusable(Exception):
    """The program cannot be swept; the text says why."""


@dataclass(frozen=True, slots=True)
class Site:
    """A call of the program: its number in the session, from 1, and the function."""

    call: int
    operation: str


@dataclass(frozen=True, slots=True)
class Trial:
    """One run: the call, the injected status, and what the program did.

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
    """All runs of a program. `steady` is whether clean runs print the same."""

    sites: tuple[Site, ...]
    trials: tuple[Trial, ...]
    steady: bool

    def counts(self) -> dict[Verdict, int]:
        """Count the verdicts."""
        counts = Counter(trial.verdict for trial in self.trials)
        return {verdict: counts[verdict] for verdict in VERDICTS}


@dataclass(frozen=True, slots=True)
class _Clean:
    """The behaviour of the program without faults."""

    ended: Ended
    calls: tuple[tuple[str, ...], ...]
    steady: bool


@dataclass(frozen=True, slots=True)
class _Bench:
    """A server of its own, and how the program behaves at it: its output may have the address."""

    run: Callable[..., Ended]
    clean: _Clean


def sweep(
    command: Sequence[str],
    statuses: Sequence[int] = STATUSES,
    timeout: float = 10.0,
    machine: str = "",
    first_timeout: float = 60.0,
    progress: Callable[[int, int], None] | None = None,
    jobs: int = 1,
) -> Sweep:
    """Run a program once for each of its calls and each status, `jobs` runs at a time.

    A run ends after `timeout` seconds, the first one at a server after `first_timeout` if that is
    more: the server may compile kernels. `progress` is called with the runs done and their total.
    Raises `Unusable` for a program that, without faults, fails, hangs, makes no call, or makes
    different calls in each run.
    """
    start = partial(_bench, command, timeout, machine, max(timeout, first_timeout))
    with start() as first:
        sites = _sites(first.clean.ended.marked)
        pairs = [(site, status) for site in sites for status in statuses]
        benches = chain([nullcontext(first)], iter(start, None))
        trials: list[Trial] = []
        for trial in spread(min(jobs, max(1, len(pairs))), partial(next, benches), _try, pairs):
            trials.append(trial)
            if progress is not None:
                progress(len(trials), len(pairs))
    return Sweep(tuple(sites), tuple(trials), first.clean.steady)


@contextmanager
def _bench(
    command: Sequence[str], timeout: float, machine: str, first_timeout: float
) -> Generator[_Bench]:
    """Have a server at which the program has run without faults."""
    variables = {**_QUIET, **({"ZDNN_MACHINE": machine} if machine else {})}
    server = FaultServer(idle=2 * first_timeout)

    def once(*rules: FaultRule, seconds: float = timeout) -> Ended:
        return run(server, command, [_NOTE, *rules], seconds, variables)

    try:
        yield _Bench(once, _clean(once(seconds=first_timeout), once(), timeout))
    finally:
        server.stop()


def _clean(first: Ended, second: Ended, timeout: float) -> _Clean:
    for ended in (first, second):
        if ended.code is None:
            raise Unusable(f"without faults the program does not end within {timeout:g} s")
        if ended.code != 0:
            last = ended.errors.decode(errors="replace").strip().rpartition("\n")[2]
            raise Unusable(f"without faults the program ends with {ended.code}: {last}")
    calls = _calls(first.marked)
    if not calls:
        raise Unusable("the program makes no call at ZDNN_SERVER: is it linked with libzdnn?")
    if calls != _calls(second.marked):
        raise Unusable("without faults the program makes other calls each time")
    steady = _printed(first) == _printed(second)
    return _Clean(first, calls, steady)


def _printed(ended: Ended) -> tuple[bytes, list[bytes]]:
    lines = ended.errors.splitlines()
    return ended.output, [line for line in lines if _CLIENT_LOG not in line]


def _calls(marked: Sequence[Marked]) -> tuple[tuple[str, ...], ...]:
    """Return the calls of each session, in the order in which sessions began."""
    calls: dict[str, list[str]] = {}
    for fault in marked:
        if fault.effect == "note":
            calls.setdefault(fault.session, []).append(fault.operation)
    return tuple(tuple(call) for call in calls.values())


def _sites(marked: Sequence[Marked]) -> list[Site]:
    """Return the calls that return a status; of several sessions, the first has precedence."""
    operations = {
        fault.call: fault.operation
        for fault in reversed(marked)
        if fault.effect == "note" and not fault.operation.startswith(_NO_STATUS)
    }
    return [Site(call, operations[call]) for call in sorted(operations)]


def _try(bench: _Bench, pair: tuple[Site, int]) -> Trial:
    (site, status), clean = pair, bench.clean
    ended = bench.run(FaultRule(call=site.call, status=status_text(status), output_written=True))
    verdict = classify(clean.ended, ended, clean.steady)
    return Trial(site, status, verdict, ended.code, ended.seconds)


def classify(clean: Ended, ended: Ended, steady: bool) -> Verdict:
    """Return the verdict on a run: "ignored" if it equals the clean run.

    Compared are the exit code, the calls, and, where clean runs print the same, the output.
    """
    if ended.code is None:
        return "hung"
    if ended.code < 0 or 128 < ended.code <= 128 + _MAX_SIGNAL:
        return "crashed"
    if not any(fault.effect == "status" for fault in ended.marked):
        return "missed"
    same = ended.code == clean.code and _calls(ended.marked) == _calls(clean.marked)
    if same and steady:
        same = _printed(ended) == _printed(clean)
    return "ignored" if same else "handled"
