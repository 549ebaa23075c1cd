# SPDX-License-Identifier: Apache-2.0
"""Keep the last calls of a session while a page shows it."""

import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from nnpa_emulator.status import Status, status_name

from nnpa_server.accelerator.decode import Step
from nnpa_server.accelerator.seams import Answer, CallPath, RunStep
from nnpa_server.errors import reason_of
from nnpa_server.sessions.store import Session

HOLDING = "recent calls"
_MAX_CALLS = 100
_OK = int(Status.ZDNN_OK)


RecentCall: TypeAlias = tuple[str, Mapping[str, int], int | str, float, float]
"""A call that has ended: its function, its tensors by id, its zdnn_status or the reason that ended
it, and when it began and ended, by time.monotonic."""


@dataclass(slots=True, eq=False)
class RecentCalls:
    """The calls of a session since a page showed it, in order; the last 100 are kept.

    `running` is the name of the operation under way, or "". `calls_ok` counts the calls that ended
    with ZDNN_OK apart from other statuses: most do, and to note a call must cost little.
    """

    running: str = ""
    calls_ok: int = 0
    calls: deque[RecentCall] = field(default_factory=lambda: deque(maxlen=_MAX_CALLS))
    statuses: Counter[int | str] = field(default_factory=Counter[int | str])

    def close(self) -> None:
        """Do nothing: no page shows a session that has ended."""

    def counts(self) -> dict[str, int]:
        """Return the number of calls by status or reason."""
        named = {status_text(status): count for status, count in self.statuses.copy().items()}
        return {Status.ZDNN_OK.name: self.calls_ok, **named} if self.calls_ok else named


def status_text(status: int | str) -> str:
    """Return the name of a status number, or a reason as it is."""
    return status if isinstance(status, str) else status_name(status)


def recent_calls_of(session: Session) -> RecentCalls | None:
    """Return the recent calls of a session, or None while no page shows it."""
    recent = session.holdings.get(HOLDING)
    return recent if isinstance(recent, RecentCalls) else None


def wrap(path: CallPath, session: Session) -> None:
    """Note the calls of a session that a page shows."""
    recent = recent_calls_of(session)
    if recent is not None:
        path.run_step = _noting(path.run_step, recent)
        path.run_chunked = _noting(path.run_chunked, recent)


def _noting(plain: RunStep, recent: RecentCalls) -> RunStep:
    clock, append, statuses = time.monotonic, recent.calls.append, recent.statuses

    def run_step(session: Session, step: Step) -> Answer:
        name = recent.running = step.spec.name
        started = clock()
        try:
            answer = plain(session, step)
        except Exception as error:
            reason = reason_of(error)
            append((name, step.ids, reason, started, clock()))
            statuses[reason] += 1
            recent.running = ""
            raise
        status = answer.outcome.status
        append((name, step.ids, status, started, clock()))
        recent.running = ""
        if status == _OK:
            recent.calls_ok += 1
        else:
            statuses[status] += 1
        return answer

    return run_step
