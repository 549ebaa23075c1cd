# SPDX-License-Identifier: Apache-2.0
"""Prepared calls: a step that comes again is computed without the checks that it has passed."""

from contextlib import suppress

from nnpa_emulator import ALIGNED, OK, Outcome
from nnpa_emulator.prepared import prepare

from nnpa_server.accelerator.decode import Step
from nnpa_server.accelerator.seams import CallFunction, CallPath, Tensors
from nnpa_server.accelerator.shortcuts.step_memo import StepMemo
from nnpa_server.sessions.store import Session


def wrap(path: CallPath, _session: Session) -> None:
    """Prepare the calls of steps that have a memo."""
    path.call_function = _prepare_calls(path.call_function)


def _prepare_calls(plain: CallFunction) -> CallFunction:
    def call_function(session: Session, step: Step, tensors: Tensors) -> Outcome:
        memo = step.memo
        if not isinstance(memo, StepMemo):
            return plain(session, step, tensors)
        if memo.prepared is not None:
            with suppress(MemoryError):  # which the plain call answers
                outcome = memo.prepared(session.guest, tensors)
                if outcome is not None:
                    return outcome
        outcome = plain(session, step, tensors)
        if outcome is OK and step.alignment is ALIGNED:
            arguments = {**tensors, **step.values}
            memo.prepared = prepare(session.guest, step.spec.name, arguments)
        return outcome

    return call_function
