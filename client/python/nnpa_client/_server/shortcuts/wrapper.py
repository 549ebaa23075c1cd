# SPDX-License-Identifier: Apache-2.0
"""A transport that forwards every call to another one; shortcuts override some of them."""

from collections.abc import Callable, Iterable, Iterator

from nnpa_client._server.transport import Ended, Method, Received, Sent, Transport

__tracebackhide__ = True  # pytest shows the line that called, not these


class TransportWrapper:
    """Base of the shortcuts: forwards the calls that a shortcut does not make quicker."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner

    @property
    def target(self) -> str:
        """Where the server is, for people."""
        return self.inner.target

    def ticket(self, name: str) -> str:
        """Return the ticket that a proxy gave to a session or trace, "" for none."""
        return self.inner.ticket(name)

    def unary(self, method: Method[Sent, Received], request: Sent) -> Received:
        """Send one message, and return the answer."""
        return self.inner.unary(method, request)

    def send_stream(self, method: Method[Sent, Received], requests: Iterable[Sent]) -> Received:
        """Send messages, and return the answer to all of them."""
        return self.inner.send_stream(method, requests)

    def receive_stream(self, method: Method[Sent, Received], request: Sent) -> Iterator[Received]:
        """Send one message, and return its answers."""
        return self.inner.receive_stream(method, request)

    def hold(
        self, method: Method[Sent, Received], request: Sent, ended: Ended, is_again: bool
    ) -> Callable[[], object]:
        """Send one message of a call that stays open."""
        return self.inner.hold(method, request, ended, is_again)

    def close(self) -> None:
        """Close the connection."""
        self.inner.close()
