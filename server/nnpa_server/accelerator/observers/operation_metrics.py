# SPDX-License-Identifier: Apache-2.0
"""Count operations by name, machine and status or reason, with their seconds."""

import time

from nnpa_server.accelerator.decode import Step
from nnpa_server.accelerator.seams import Answer, CallPath
from nnpa_server.errors import reason_of
from nnpa_server.sessions.store import Session


def wrap(path: CallPath, session: Session) -> None:
    """Count the operations of a server that has metrics."""
    metrics, plain = session.metrics, path.run_step
    if metrics is None:
        return

    def run_step(session: Session, step: Step) -> Answer:
        started = time.perf_counter()
        try:
            answer = plain(session, step)
        except Exception as error:
            seconds = time.perf_counter() - started
            metrics.operation(step.spec.name, session.trail.machine, reason_of(error), seconds)
            raise
        seconds = time.perf_counter() - started
        status = answer.outcome.status
        metrics.operation(step.spec.name, session.trail.machine, status, seconds)
        return answer

    path.run_step = run_step
