# SPDX-License-Identifier: Apache-2.0
"""Operations as the metrics count them: name, machine, status or reason, seconds."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from nnpa_server.errors import CallCancelled, from_exception
from nnpa_server.sessions.metrics import Metrics
from nnpa_server.sessions.store import Session

Answer = TypeVar("Answer", bound=tuple[Any, ...])  # whose first item is an Outcome


def counting(
    metrics: Metrics, take: Callable[[Session, Any], Answer]
) -> Callable[[Session, Any], Answer]:
    """Return what runs a step as `take` does, and counts it however it ends."""

    def run(session: Session, step: Any) -> Answer:
        started = time.perf_counter()
        try:
            answer = take(session, step)
        except Exception as error:
            took = time.perf_counter() - started
            if isinstance(error, CallCancelled):
                reason = error.code.name
            else:
                reason = from_exception(error).name
            metrics.operation(step.arm.name, session.trail.machine, reason, took)
            raise
        took = time.perf_counter() - started
        metrics.operation(step.arm.name, session.trail.machine, answer[0].status, took)
        return answer

    return run
