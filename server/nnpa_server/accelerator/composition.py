# SPDX-License-Identifier: Apache-2.0
"""Compose the call path of a session: the plain functions, then what wraps them.

hold               take the session for one call
decode             a list of operations becomes steps
run                all steps, one after the other
run_step           one step: operands, call, result
run_with_contents  the same, where the result carries an array or sticks
call_function      the emulator computes
encode_result      an outcome becomes a message
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial

from nnpa_server.accelerator import execute, guards
from nnpa_server.accelerator.decode import decode
from nnpa_server.accelerator.observers import (
    fault_injection,
    operation_metrics,
    recent_calls,
    sanitizing,
    trace_records,
)
from nnpa_server.accelerator.seams import PATH, CallPath
from nnpa_server.accelerator.shortcuts import out_of_band_arrays, prepared_calls, request_cache
from nnpa_server.sessions.store import Session

Wrap = Callable[[CallPath, Session], None]
# The wrappers of the plain functions, the innermost first.
SHORTCUTS: Mapping[str, Wrap] = {
    "out-of-band-arrays": out_of_band_arrays.wrap,
    "request-cache": request_cache.wrap,
    "prepared-calls": prepared_calls.wrap,
}
GUARDS: tuple[Wrap, ...] = (guards.count_answers,)
OBSERVERS: tuple[Wrap, ...] = (
    sanitizing.wrap,
    fault_injection.wrap,
    operation_metrics.wrap,
    trace_records.wrap,
    recent_calls.wrap,
)


def compose(session: Session, shortcuts: Collection[str]) -> None:
    """Give a session its call path with the named shortcuts, the guards and the observers."""
    path = CallPath(execute.hold, decode, execute.call_function, execute.encode_result)
    path.run_step = partial(execute.run_step, path)
    path.run_with_contents = path.run_chunked = partial(execute.answer_step, path)
    path.run = partial(execute.run, path)
    for name, wrap in SHORTCUTS.items():
        if name in shortcuts:
            wrap(path, session)
    for wrap in (*GUARDS, *OBSERVERS):
        wrap(path, session)
    session.holdings[PATH] = path
