# SPDX-License-Identifier: Apache-2.0
"""Prepared calls: a step that comes again is computed without the checks that it has passed."""

from contextlib import suppress

from nnpa_emulator import ALIGNED, OK, Outcome, Ztensor
from nnpa_emulator.prepared import prepare

from nnpa_server.accelerator.decode import Step
from nnpa_server.accelerator.operands import bare
from nnpa_server.accelerator.seams import CallFunction, CallPath, ReadStructure, Tensors
from nnpa_server.accelerator.shortcuts.step_memo import StepMemo
from nnpa_server.sessions.store import Session


def wrap(path: CallPath, _session: Session) -> None:
    """Prepare calls, and keep the structures of inline tensors."""
    path.call_function = _prepare_calls(path.call_function)
    path.read_structure = _keep_structures(path.read_structure)


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
            memo.prepared = prepare(session.guest, step.arm.name, arguments)
        return outcome

    return call_function


def _keep_structures(plain: ReadStructure) -> ReadStructure:
    def read_structure(step: Step, name: str) -> Ztensor:
        memo = step.memo
        if not isinstance(memo, StepMemo):
            return plain(step, name)
        if name not in memo.structures:
            memo.structures[name] = plain(step, name)
        return bare(memo.structures[name])

    return read_structure
