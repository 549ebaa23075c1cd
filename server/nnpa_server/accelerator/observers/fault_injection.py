# SPDX-License-Identifier: Apache-2.0
"""Inject the faults of a session's rules into its operations."""

from collections.abc import Sequence
from functools import partial

from nnpa_emulator import Outcome, ProgramCheck

from nnpa_server.accelerator.decode import Step
from nnpa_server.accelerator.execute import check_outcome, report_outputs
from nnpa_server.accelerator.seams import CallPath, Result, Sticks, Tensors
from nnpa_server.faults import Faults, WrittenAnyway, attend, faults_of
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
    _attend(path)
    _inject(path, faults)
    _encode(path, faults)


def _attend(path: CallPath) -> None:
    """Tell the faults of the gRPC call to which operations belong."""
    plain = path.run

    def run(session: Session, steps: Sequence[Step], context: Context) -> Response:
        attend(session, context)
        return plain(session, steps, context)

    path.run = run


def _inject(path: CallPath, faults: Faults) -> None:
    plain = path.call_function

    def call_function(session: Session, step: Step, tensors: Tensors) -> Outcome:
        if not step.of_program:
            return plain(session, step, tensors)
        try:
            return faults.call(step.spec.name, tensors, partial(plain, session, step, tensors))
        except ProgramCheck as check:
            return check_outcome(session, check)

    path.call_function = call_function


def _encode(path: CallPath, faults: Faults) -> None:
    """Encode outputs that were written despite an error; then lose the connection, if due."""
    plain = path.encode_result

    def encode_result(
        session: Session, step: Step, tensors: Tensors, outcome: Outcome
    ) -> tuple[Result, Sticks]:
        result, sticks = plain(session, step, tensors, outcome)
        if isinstance(outcome, WrittenAnyway) and not outcome.valid and not _creates(step):
            sticks = report_outputs(session, result, step, tensors)
        faults.require_connection()
        return result, sticks

    path.encode_result = encode_result


def _creates(step: Step) -> bool:
    return bool(step.creates or step.new_ids)
