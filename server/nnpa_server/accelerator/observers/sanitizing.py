# SPDX-License-Identifier: Apache-2.0
"""Watch the operations of a session with its sanitizer."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from nnpa_emulator import Outcome

from nnpa_server.accelerator.decode import Request, Step
from nnpa_server.accelerator.sanitizer.padding import fill
from nnpa_server.accelerator.sanitizer.reports import Finding, rescue
from nnpa_server.accelerator.sanitizer.sanitizer import Sanitizer
from nnpa_server.accelerator.seams import Answer, CallPath, Hold, Result, Sticks, Tensors
from nnpa_server.errors import CallRefused
from nnpa_server.sessions.cancellation import Context
from nnpa_server.sessions.store import Session

_HOLDING = "sanitizer"


def begin(session: Session) -> None:
    """Give a session a sanitizer if its options say so; it fills new memory with a pattern."""
    if session.options.sanitize:
        session.holdings[_HOLDING] = Sanitizer()
        session.fill_new = fill


def sanitizer_of(session: Session) -> Sanitizer | None:
    """Return the sanitizer of a session, or None."""
    sanitizer = session.holdings.get(_HOLDING)
    return sanitizer if isinstance(sanitizer, Sanitizer) else None


def wrap(path: CallPath, session: Session) -> None:
    """Watch the calls of a session with a sanitizer, and attach its reports to their answers."""
    sanitizer = sanitizer_of(session)
    if sanitizer is None:
        return
    results: list[Result] = []  # of the call under way
    path.hold = _note_flight(path.hold, sanitizer, results)
    _explain(path, sanitizer)
    _watch(path, sanitizer)
    _collect(path, results)


def _note_flight(plain: Hold, sanitizer: Sanitizer, results: list[Result]) -> Hold:
    """Note a call before it waits for the session; attach its reports to an error that ends it."""

    @contextmanager
    def hold(session: Session, request: Request, context: Context) -> Generator[None]:
        with sanitizer.in_flight(request.operations), plain(session, request, context):
            results.clear()
            try:
                yield
            except CallRefused as refused:
                rescue(refused, results)
                raise

    return hold


def _explain(path: CallPath, sanitizer: Sanitizer) -> None:
    """Add the history of a missing tensor to the error that names it."""
    plain = path.decode

    def decode(session: Session, request: Request) -> Sequence[Step]:
        try:
            return plain(session, request)
        except CallRefused as refused:
            index = int(refused.metadata.get("operation_index", 0))
            sanitizer.explain(refused, request.operations[: index + 1])
            raise

    path.decode = decode


def _watch(path: CallPath, sanitizer: Sanitizer) -> None:
    """Watch each function's reads and writes, and add the reports to its result."""
    plain, encode = path.call_function, path.encode_result

    def call_function(session: Session, step: Step, tensors: Tensors) -> Outcome:
        return sanitizer.watch(session, step, tensors, lambda: plain(session, step, tensors))

    def encode_result(
        session: Session, step: Step, tensors: Tensors, outcome: Outcome
    ) -> tuple[Result, Sticks]:
        result, sticks = encode(session, step, tensors, outcome)
        for line, diagnostic in zip(result.diagnostics, outcome.diagnostics, strict=True):
            if isinstance(diagnostic, Finding):
                line.report.CopyFrom(diagnostic.report)
        return result, sticks

    path.call_function, path.encode_result = call_function, encode_result


def _collect(path: CallPath, results: list[Result]) -> None:
    """Collect the results of a call, for an error that may end it."""
    plain = path.run_step

    def run_step(session: Session, step: Step) -> Answer:
        answer = plain(session, step)
        results.append(answer.result)
        return answer

    path.run_step = run_step
