# SPDX-License-Identifier: Apache-2.0
"""Inject the faults of a session's rules into its operations."""

from collections.abc import Sequence
from functools import partial

from nnpa_emulator import Outcome, ProgramCheck

from nnpa_server.accelerator.decode import Step
from nnpa_server.accelerator.execute import check_outcome, report_outputs
from nnpa_server.accelerator.seams import CallPath, Result, Sticks, Tensors
from nnpa_server.faults import WrittenAnyway, attend, faults_of
from nnpa_server.rpc.codec import Response
from nnpa_server.sessions.cancellation import Context
from nnpa_server.sessions.store import Session


def wrap(path: CallPath, session: Session) -> None:
    """Inject faults into the calls that the program makes, if the session has fault rules.

    Faults wrap the sanitizer, which so sees the results of the function itself.
    """
    faults = faults_of(session)
    if faults is None:
        return
    plain_run, call, encode = path.run, path.call_function, path.encode_result

    def run(session: Session, steps: Sequence[Step], context: Context) -> Response:
        attend(session, context)
        return plain_run(session, steps, context)

    def call_function(session: Session, step: Step, tensors: Tensors) -> Outcome:
        if not step.of_program:
            return call(session, step, tensors)
        try:
            return faults.call(step.spec.name, tensors, partial(call, session, step, tensors))
        except ProgramCheck as check:
            return check_outcome(session, check)

    def encode_result(
        session: Session, step: Step, tensors: Tensors, outcome: Outcome
    ) -> tuple[Result, Sticks]:
        """Encode outputs that were written despite an error; then lose the connection, if due."""
        result, sticks = encode(session, step, tensors, outcome)
        creates = step.creates or step.new_ids
        if isinstance(outcome, WrittenAnyway) and not outcome.valid and not creates:
            sticks = report_outputs(session, result, step, tensors)
        faults.require_connection()
        return result, sticks

    path.run, path.call_function, path.encode_result = run, call_function, encode_result
