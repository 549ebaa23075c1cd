# SPDX-License-Identifier: Apache-2.0
"""Prepared calls: a repeated call is computed without the checks that it has passed before."""

from dataclasses import dataclass, field

from nnpa_emulator import ALIGNED, OK, Outcome
from nnpa_emulator.prepared import PreparedCall, prepare

from nnpa_server.accelerator.decode import Step
from nnpa_server.accelerator.seams import CallFunction, CallPath, Tensors
from nnpa_server.sessions.store import Session

_MAX_CALLS = 4096  # of a session


def wrap(path: CallPath, _session: Session) -> None:
    """Prepare the calls of a session for repetition."""
    path.call_function = _PreparedCalls(path.call_function)


@dataclass(slots=True)
class _PreparedCalls:
    """The prepared calls of a session, by function and the identity of the output's descriptor.

    A prepared call keeps the descriptor, so that its identity stays its own.
    """

    plain: CallFunction
    _calls: dict[tuple[str, int], PreparedCall] = field(
        default_factory=dict[tuple[str, int], PreparedCall]
    )

    def __call__(self, session: Session, step: Step, tensors: Tensors) -> Outcome:
        """Run a call: by its prepared form, or plainly and then prepare it."""
        outputs = step.spec.function.outputs
        if not outputs or step.alignment is not ALIGNED:
            return self.plain(session, step, tensors)
        name = step.spec.name
        key = name, id(tensors[outputs[0]].transformed_desc)
        arguments = {**tensors, **step.values} if step.values else tensors
        prepared = self._calls.get(key)
        if prepared is not None:
            try:
                outcome = prepared(session.guest, arguments)
            except MemoryError:  # which the plain call answers
                outcome = None
            if outcome is not None:
                return outcome
        outcome = self.plain(session, step, tensors)
        if outcome is OK and (prepared := prepare(session.guest, name, arguments)) is not None:
            if len(self._calls) >= _MAX_CALLS:
                self._calls.clear()
            self._calls[key] = prepared
        return outcome
