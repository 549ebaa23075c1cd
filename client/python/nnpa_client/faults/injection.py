# SPDX-License-Identifier: Apache-2.0
"""Fault rules of a session, for the duration of a `with` block."""

from collections.abc import Sequence

from nnpa.zdnn.v1.accelerator_pb2 import Session as WireSession
from nnpa.zdnn.v1.accelerator_pb2 import UpdateSessionRequest
from nnpa.zdnn.v1.fault_pb2 import FaultRule, InjectedFault

from nnpa_client._guest.open_session import OpenSession
from nnpa_client._server.methods import UPDATE_SESSION
from nnpa_client.errors import NnpaError

__tracebackhide__ = True  # pytest shows the line that called, not these


def set_rules(session: OpenSession, rules: Sequence[FaultRule]) -> None:
    """Replace the fault rules of a session; rules at an unchanged index keep their counts."""
    request = UpdateSessionRequest(session=WireSession(name=session.name, fault_rules=rules))
    request.update_mask.paths.append("fault_rules")
    session.transport.unary(UPDATE_SESSION, request)
    session.status()


class Faults:
    """A context manager that adds rules to the session's rules, and removes them at its end.

    Blocks nest; earlier rules keep their counts.
    """

    def __init__(self, session: OpenSession, rules: Sequence[FaultRule]) -> None:
        self._session = session
        self._rules = list(rules)
        self._before: list[FaultRule] = []
        self._sequence = 0
        self._open = False
        self._injected: list[InjectedFault] = []

    def __enter__(self) -> "Faults":
        self._run_queued()
        state = self._session.status()
        self._before = list(state.fault_rules)
        self._sequence = max((fault.sequence for fault in state.injected_faults), default=0)
        set_rules(self._session, [*self._before, *self._rules])
        self._open = True
        return self

    def __exit__(self, exception: type[BaseException] | None, *_rest: object) -> None:
        try:
            if exception is None:
                self._run_queued()
        finally:
            self._leave(quietly=exception is not None)

    def _run_queued(self) -> None:
        """Run the calls that a pipeline has queued, by an empty list of operations."""
        self._session.execute(())

    def _leave(self, quietly: bool) -> None:
        try:
            self._injected = self._fetch()
            set_rules(self._session, self._before)
        except NnpaError:
            if not quietly:
                raise
        finally:
            self._open = False

    def _fetch(self) -> list[InjectedFault]:
        first = len(self._before)
        own_rules = range(first, first + len(self._rules))
        return [
            fault
            for fault in self._session.status().injected_faults
            if fault.sequence > self._sequence and fault.rule in own_rules
        ]

    @property
    def injected(self) -> list[InjectedFault]:
        """The faults that the rules of this block injected, in order; at most the last 1000."""
        if self._open:
            self._injected = self._fetch()
        return list(self._injected)
