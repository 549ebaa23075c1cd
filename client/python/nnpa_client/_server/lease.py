# SPDX-License-Identifier: Apache-2.0
"""The lease of a session: an open call that ends with this process, even when it is killed.

Source: nnpa/zdnn/v1/accelerator.proto, Session.lease.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from nnpa.zdnn.v1.accelerator_pb2 import HoldSessionRequest

from nnpa_client._server.methods import HOLD_SESSION
from nnpa_client._server.transport import Transport
from nnpa_client.errors import NnpaError, SessionLostError

__tracebackhide__ = True  # pytest shows the line that called, not these

_PAUSE = 1.0  # seconds before another call, where one has ended sooner than that
_MAX_SHORT = 10  # such calls in a row


class Lease:
    """Holds a session's lease until `close`, and renews it after a broken connection."""

    def __init__(self, transport: Transport, session: str) -> None:
        self._transport = transport
        self._request = HoldSessionRequest(name=session)
        self._owner = os.getpid()
        self._is_closed = False
        self._short_calls = 0  # in a row
        self._cancel: Callable[[], object] = int
        self._hold(is_again=False)

    def _hold(self, is_again: bool) -> None:
        began = time.monotonic()

        def ended(failure: NnpaError | None) -> None:
            has_lasted = time.monotonic() - began > _PAUSE
            self._short_calls = 0 if has_lasted else self._short_calls + 1
            is_broken = isinstance(failure, SessionLostError) and self._short_calls <= _MAX_SHORT
            if is_broken and not self._is_closed:
                threading.Thread(target=self._hold_again, name="nnpa-lease", daemon=True).start()

        self._cancel = self._transport.hold(HOLD_SESSION, self._request, ended, is_again)
        if self._is_closed:  # meanwhile
            self._cancel()

    def _hold_again(self) -> None:
        if self._short_calls:
            time.sleep(_PAUSE)
        with suppress(NnpaError):  # the session's next call tells why
            self._hold(is_again=True)

    def close(self) -> None:
        """Release the lease; may be repeated. A forked copy of this process releases nothing."""
        if os.getpid() != self._owner:
            return
        self._is_closed = True
        self._cancel()
