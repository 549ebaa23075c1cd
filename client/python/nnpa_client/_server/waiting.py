# SPDX-License-Identifier: Apache-2.0
"""Waiting for a full server: create the session again after the delay that the server names."""

import logging
import random
import time

from nnpa.zdnn.v1.accelerator_pb2 import CreateSessionRequest, Session

from nnpa_client._server.methods import CREATE_SESSION
from nnpa_client._server.transport import Transport
from nnpa_client.errors import TransportError

__tracebackhide__ = True  # pytest shows the line that called, not these

_log = logging.getLogger("nnpa_client")


def create_session(transport: Transport, request: CreateSessionRequest, wait: float) -> Session:
    """Create a session; ask a full server again for `wait` seconds, then raise its refusal.

    The pause between two attempts is 0.5 to 1.5 times the server's delay. It does not grow, so that
    the client that has waited longest is not at a disadvantage.
    """
    until, is_told = time.monotonic() + wait, False
    while True:
        try:
            return transport.unary(CREATE_SESSION, request)
        except TransportError as error:
            left = until - time.monotonic()
            if error.reason != "SESSION_QUOTA_EXCEEDED" or error.retry_delay is None or left <= 0:
                raise
            delay = error.retry_delay
        if not is_told:
            _log.warning("%s is full: waiting %g s at most for a session", transport.target, wait)
            is_told = True
        time.sleep(min(left, delay * random.uniform(0.5, 1.5)))
