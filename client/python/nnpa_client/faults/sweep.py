# SPDX-License-Identifier: Apache-2.0
"""Every call of a program with every status: what does the program do?

A clean run counts the calls. Then there is one run for each call and status, in which the function
does its work and answers the status nevertheless: so a program that does not look at statuses does
exactly what it did in the clean run, and is found out by that.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from nnpa.zdnn.v1.fault_pb2 import FaultRule

from nnpa_client.faults.program import Ended, FaultServer, Marked, run
from nnpa_client.faults.rules import status_text
from nnpa_client.status import Status, is_warning

Verdict: TypeAlias = Literal["handled", "ignored", "crashed", "hung", "missed"]
VERDICTS: tuple[Verdict, ...] = ("handled", "ignored", "crashed", "hung", "missed")
STATUSES = tuple(status for status in Status if status != Status.ZDNN_OK)
# What the library prints is no answer of the program: libzdnn is told to be quiet, and the Python
# client's lines, which the log of a program without one prints, are passed over.
_QUIET = {"ZDNN_LOGLEVEL": "off"}
_LIBRARY = b"() (nnpa): "
_NO_STATUS = ("is_", "get_", "init")  # functions that return none, and getrange_ztensor is not one
_LARGEST_SIGNAL = 64
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
    """One run: where which status was injected, and what the program did.

    `code` is its exit code, negative for a signal, None where it did not end.
    """

    site: Site
    status: int
    verdict: Verdict
    code: int | None
    seconds: float

    @property
    def is_fine(self) -> bool:
        """Whether a program may do so: a warning's output is valid, so it may be ignored."""
        return self.verdict == "handled" or (self.verdict == "ignored" and is_warning(self.status))


@dataclass(frozen=True, slots=True)
class Sweep:
    """All runs of a program. `steady` tells whether clean runs print the same."""

    sites: tuple[Site, ...]
    trials: tuple[Trial, ...]
    steady: bool

    def counts(self) -> dict[Verdict, int]:
        """Count the verdicts."""
        found = Counter(trial.verdict for trial in self.trials)
        return {verdict: found[verdict] for verdict in VERDICTS}


@dataclass(frozen=True, slots=True)
class _Clean:
    """What the program does when nothing is wrong."""

    ended: Ended
    calls: tuple[tuple[str, ...], ...]
    steady: bool


def sweep(
    command: Sequence[str],
    statuses: Sequence[int] = STATUSES,
    timeout: float = 10.0,
    machine: str = "",
    patience: float = 60.0,
    told: Callable[[int, int], None] | None = None,
) -> Sweep:
    """Run a program once for each of its calls and each status.

    A run ends after `timeout` seconds, the first one after `patience` if that is more: the server
    may have kernels to compile. `told` hears how many runs are done. Raises `Unusable` for a
    program that fails, hangs, makes no call, or makes others each time, without any fault.
    """
    more = {**_QUIET, **({"ZDNN_MACHINE": machine} if machine else {})}
    server = FaultServer(idle=2 * max(timeout, patience))
    try:

        def once(*rules: FaultRule, seconds: float = timeout) -> Ended:
            return run(server, command, [_NOTE, *rules], seconds, more)

        clean = _clean(once(seconds=max(timeout, patience)), once(), timeout)
        sites = _sites(clean.ended.marked)
        pairs = [(site, status) for site in sites for status in statuses]
        trials = tuple(_trials(once, clean, pairs, told))
    finally:
        server.stop()
    return Sweep(tuple(sites), trials, clean.steady)


def _trials(
    once: Callable[..., Ended],
    clean: _Clean,
    pairs: Sequence[tuple[Site, int]],
    told: Callable[[int, int], None] | None,
) -> Iterator[Trial]:
    for done, (site, status) in enumerate(pairs, 1):
        yield _try(once, clean, site, status)
        if told is not None:
            told(done, len(pairs))


def _clean(first: Ended, second: Ended, timeout: float) -> _Clean:
    for one in (first, second):
        if one.code is None:
            raise Unusable(f"without faults the program does not end within {timeout:g} s")
        if one.code != 0:
            last = one.errors.decode(errors="replace").strip().rpartition("\n")[2]
            raise Unusable(f"without faults the program ends with {one.code}: {last}")
    calls = _calls(first.marked)
    if not calls:
        raise Unusable("the program makes no call at ZDNN_SERVER: is it linked with libzdnn?")
    if calls != _calls(second.marked):
        raise Unusable("without faults the program makes other calls each time")
    steady = _printed(first) == _printed(second)
    return _Clean(first, calls, steady)


def _printed(ended: Ended) -> tuple[bytes, list[bytes]]:
    lines = ended.errors.splitlines()
    return ended.output, [line for line in lines if _LIBRARY not in line]


def _calls(marked: Sequence[Marked]) -> tuple[tuple[str, ...], ...]:
    """Return the calls of each session, in the order in which sessions began."""
    calls: dict[str, list[str]] = {}
    for one in marked:
        if one.effect == "note":
            calls.setdefault(one.session, []).append(one.operation)
    return tuple(tuple(call) for call in calls.values())


def _sites(marked: Sequence[Marked]) -> list[Site]:
    """Return the calls that can answer a status; with several sessions those of each number."""
    found = {
        one.call: one.operation
        for one in reversed(marked)
        if one.effect == "note" and not one.operation.startswith(_NO_STATUS)
    }
    return [Site(call, found[call]) for call in sorted(found)]


def _try(once: Callable[..., Ended], clean: _Clean, site: Site, status: int) -> Trial:
    ended = once(FaultRule(call=site.call, status=status_text(status), output_written=True))
    return Trial(site, status, judge(clean.ended, ended, clean.steady), ended.code, ended.seconds)


def judge(clean: Ended, ended: Ended, steady: bool) -> Verdict:
    """Say what a program did with a status: exactly what it does without one is nothing.

    Its exit code counts, the calls that it made, and, where clean runs print the same, its output.
    """
    if ended.code is None:
        return "hung"
    if ended.code < 0 or 128 < ended.code <= 128 + _LARGEST_SIGNAL:
        return "crashed"
    if not any(one.effect == "status" for one in ended.marked):
        return "missed"
    same = ended.code == clean.code and _calls(ended.marked) == _calls(clean.marked)
    if same and steady:
        same = _printed(ended) == _printed(clean)
    return "ignored" if same else "handled"
