# SPDX-License-Identifier: Apache-2.0
"""Observe the calls of sessions while a page shows them."""

import time
from collections.abc import Collection
from contextlib import suppress

from nnpa_server.accelerator.composition import compose
from nnpa_server.accelerator.observers.recent_calls import HOLDING, RecentCalls, recent_calls_of
from nnpa_server.errors import CallCancelled, CallRefused
from nnpa_server.sessions.store import Session

_LEAVE_SECONDS = 5.0  # after the last look; a page looks every second
_WAIT_SECONDS = 0.02  # for a call to end, so that a session can be observed from the next one on


class Watches:
    """The observed sessions; `shortcuts` are the names of the shortcuts in their call paths."""

    def __init__(self, shortcuts: Collection[str]) -> None:
        self._shortcuts = shortcuts
        self._looked: dict[Session, float] = {}

    def look(self, session: Session) -> RecentCalls | None:
        """Return the calls of a session since the first look; None while its first call runs."""
        recent = recent_calls_of(session)
        with suppress(CallCancelled, CallRefused):  # it is busy, or has just ended
            if recent is None:
                with session.running(_WAIT_SECONDS):
                    recent = RecentCalls()
                    session.holdings[HOLDING] = recent
                    compose(session, self._shortcuts)
            self._looked[session] = time.monotonic()
        return recent

    def leave(self) -> None:
        """Stop observing sessions that no page has shown for some seconds."""
        latest = time.monotonic() - _LEAVE_SECONDS
        for session, looked in list(self._looked.items()):
            if looked < latest or session.closed:
                self._leave(session)

    def _leave(self, session: Session) -> None:
        """Remove the observer of a session; if the session is busy, leave it for the next time."""
        with suppress(CallCancelled):
            with suppress(CallRefused), session.running(0):
                session.holdings.pop(HOLDING, None)
                compose(session, self._shortcuts)
            del self._looked[session]
